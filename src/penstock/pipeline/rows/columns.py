"""The columns of a topic's table: Kafka's first, then those asked for with `include`.

Every column costs time in every row, and Spark prunes no columns of a Python source: hence the choice. The
Arrow types are exactly what Spark makes of its own (timestamps in us and UTC, no large or view types, all
nullable), because Spark compares them and its reader of Arrow trusts them.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import types as t

from penstock.pipeline import versions

VERSION: Final = "schema_version"  # which decoding starts from

BASIC: Final[dict[str, t.DataType]] = {
    "key": t.BinaryType(),
    "value": t.BinaryType(),
    "topic": t.StringType(),
    "partition": t.IntegerType(),
    "offset": t.LongType(),
    "timestamp": t.TimestampType(),
    "timestampType": t.IntegerType(),
}

INCLUDABLE: Final[dict[str, t.DataType]] = {
    "properties": t.MapType(t.StringType(), t.StringType()),
    "event_time": t.TimestampType(),
    "message_id": t.StringType(),
    "producer_name": t.StringType(),
    "sequence_id": t.LongType(),
    VERSION: t.LongType(),
    "ordering_key": t.BinaryType(),
    "deliver_at": t.TimestampType(),
}

_ALL: Final = BASIC | INCLUDABLE

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def names(include: Sequence[str] = ()) -> list[str]:
    """The columns' names in their order."""
    return [*BASIC, *include]


def spark_schema(include: Sequence[str] = ()) -> t.StructType:
    """The table's schema for Spark."""
    return t.StructType([t.StructField(name, _ALL[name]) for name in names(include)])


def arrow_schema(include: Sequence[str] = ()) -> pa.Schema:
    """The table's schema as Arrow batches have it."""
    return versions.arrow_schema(spark_schema(include))
