"""The columns of a topic's table: Kafka's first, then those asked for with `include`.

Every column costs time in every row, and Spark prunes no columns of a Python source: hence the choice. The
Arrow types are exactly what Spark makes of its own (timestamps in us and UTC, no large or view types, all
nullable), because Spark compares them and its reader of Arrow trusts them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


class Kind(NamedTuple):
    """A type as Spark has it and as Arrow has it."""

    spark: DataType
    arrow: pa.DataType


BINARY: Final = Kind(BinaryType(), pa.binary())
STRING: Final = Kind(StringType(), pa.string())
INT: Final = Kind(IntegerType(), pa.int32())
BIGINT: Final = Kind(LongType(), pa.int64())
TIMESTAMP: Final = Kind(TimestampType(), pa.timestamp("us", tz="UTC"))
STRING_MAP: Final = Kind(MapType(StringType(), StringType()), pa.map_(pa.string(), pa.string()))

BASIC: Final[dict[str, Kind]] = {
    "key": BINARY,
    "value": BINARY,
    "topic": STRING,
    "partition": INT,
    "offset": BIGINT,
    "timestamp": TIMESTAMP,
    "timestampType": INT,
}

INCLUDABLE: Final[dict[str, Kind]] = {
    "properties": STRING_MAP,
    "event_time": TIMESTAMP,
    "message_id": STRING,
    "producer_name": STRING,
    "sequence_id": BIGINT,
    "schema_version": BIGINT,
    "ordering_key": BINARY,
    "deliver_at": TIMESTAMP,
}

_ALL: Final = BASIC | INCLUDABLE


def names(include: Sequence[str] = ()) -> list[str]:
    """The columns' names in their order."""
    return [*BASIC, *include]


def spark_schema(include: Sequence[str] = ()) -> StructType:
    """The table's schema for Spark."""
    return StructType([StructField(name, _ALL[name].spark) for name in names(include)])


def arrow_schema(include: Sequence[str] = ()) -> pa.Schema:
    """The table's schema as Arrow batches have it."""
    return pa.schema([pa.field(name, _ALL[name].arrow) for name in names(include)])
