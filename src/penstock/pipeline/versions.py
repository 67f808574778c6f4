"""What differs between the versions of PySpark: 4.0 to 4.3. The one place that asks which one there is.

Spark 4.2 tells a stream's reader where a batch begins and how much it may hold; before, the reader is only asked where
the newest message is. Spark 4.1 has a class for streams that are written by Arrow.

Nothing of Arrow is imported here before it is asked for: a driver that starts has no use for it.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyspark

from .errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as t
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxBytes as ReadMaxBytes
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

        class DataSourceStreamArrowWriter(DataSourceArrowWriter, DataSourceStreamWriter):
            """Spark 4.0 hands Arrow to a batch's writer, and takes one for a stream's, too."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """What a batch may take, as Spark 4.2 and later have it."""

        class ReadAllAvailable(ReadLimit):
            """Everything."""

        class ReadMaxRows(ReadLimit):
            """Rows."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class ReadMaxBytes(ReadLimit):
            """Bytes."""

            def __init__(self, max_bytes: int) -> None:
                self.max_bytes = max_bytes

        class SupportsTriggerAvailableNow:
            """Spark before 4.2 freezes the end of a stream itself."""


VERSION: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

# Where Java has the classes that write a checkpoint: their own package since Spark 4.1.
CHECKPOINTING: Final = "checkpointing." if VERSION >= (4, 1) else ""

# Whether a stream's reader is told where a batch begins and how much it may hold.
LIMITS: Final = VERSION >= (4, 2)

# If it is not, `availableNow` would run one batch, however little is in it, and leave the windows that it closes.
WRAPPED: Final = {} if LIMITS else {"spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true"}

_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if VERSION >= (4, 2) else {}  # UTC is all that there was


def arrow_schema(columns: "t.StructType") -> "pa.Schema":
    """The Arrow schema of columns, timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, **_UTC)


def arrow_type(kind: "t.DataType") -> "pa.DataType":
    """The Arrow type of a column, timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(kind, **_UTC)


def check_stateful() -> None:
    """Raise PipelineError if this PySpark has no `transformWithState` of rows: before 4.1."""
    if VERSION < (4, 1):
        raise PipelineError(f"a stateful step needs PySpark 4.1 or later; this is {pyspark.__version__}")


def map_in_arrow(
    frame: "DataFrame", function: Callable[..., Any], schema: "str | t.StructType"
) -> "DataFrame":
    """`mapInArrow`, for which PySpark asks for pandas, and warns of pandas 3, although it uses neither."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        return frame.mapInArrow(function, schema)


def be_active(spark: "SparkSession") -> None:
    """Let Spark find the session from this thread, if it has none: else a write finds no data source of Python's."""
    sessions = spark._get_j_spark_session_class(spark._jvm)
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)
