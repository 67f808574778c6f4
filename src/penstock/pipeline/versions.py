"""What differs between the versions of PySpark: 4.0 to 4.3. The one place that asks which one there is.

Spark 4.2 tells a stream's reader where a batch begins and how much it may hold; before, the reader is only asked where
the newest message is. Spark 4.1 writes streams by Arrow; before, it does not.
"""

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

from .errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:
        DataSourceStreamArrowWriter = object  # see `check`: no writer is made
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


__all__ = [
    "DataSourceStreamArrowWriter",
    "Feature",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
    "check",
    "has",
]

VERSION: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])


class Feature(Enum):
    """What an older version lacks: its name in messages, and the version that brought it."""

    STREAM_WRITER = ("writing a stream", (4, 1))
    PIPELINES = ("a declared pipeline", (4, 2))
    LIMITS = ("a stream's limits", (4, 2))


def has(feature: Feature) -> bool:
    """Whether this PySpark has it."""
    return feature.value[1] <= VERSION


def check(feature: Feature) -> None:
    """Raises PipelineError where this PySpark lacks a feature."""
    if not has(feature):
        what, (major, minor) = feature.value
        raise PipelineError(f"{what} needs PySpark {major}.{minor} or later; this is {pyspark.__version__}")


_UTC: Final[dict[str, Any]] = {"timezone": "UTC"} if VERSION >= (4, 2) else {}  # UTC is all that there was


def arrow_schema(columns: t.StructType) -> pa.Schema:
    """The Arrow schema of columns, timestamps in UTC."""
    return to_arrow_schema(columns, **_UTC)


def arrow_type(kind: t.DataType) -> pa.DataType:
    """The Arrow type of a column, timestamps in UTC."""
    return to_arrow_type(kind, **_UTC)
