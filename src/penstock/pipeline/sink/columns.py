"""Which columns a frame may have that is written to topics, and of which types."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import types as t

from penstock.pipeline.errors import PipelineError

_BYTES: Final = (t.StringType, t.BinaryType)
_WHOLE: Final = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
_TIMES: Final = (t.TimestampType, t.TimestampNTZType)

_KINDS: Final[dict[str, tuple[tuple[type[t.DataType], ...], str]]] = {
    "key": (_BYTES, "string or binary"),
    "topic": ((t.StringType,), "string"),
    "partition": (_WHOLE, "a whole number"),
    "event_time": (_TIMES, "timestamp"),
    "deliver_at": (_TIMES, "timestamp"),
    "deliver_after_ms": (_WHOLE, "a whole number"),
    "ordering_key": (_BYTES, "string or binary"),
    "schema_version": (_WHOLE, "a whole number"),
    "_raw": ((t.BinaryType,), "binary"),
    "_key": ((t.BinaryType,), "binary"),
    "_error": ((t.StringType,), "string"),
}
_OTHERS: Final = ("value", "properties", "headers")

# What the source says of where a row came from. It is written to dead letters only.
ORIGIN: Final = (
    "offset",
    "timestamp",
    "timestampType",
    "message_id",
    "producer_name",
    "sequence_id",
)


def check_columns(schema: t.StructType, *, topic: bool, dead_letter_topic: bool) -> None:
    """Raise PipelineError, which names the column, unless a frame of that schema can be written.

    `topic`, `dead_letter_topic`: whether the options name them.
    """
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise PipelineError(f"column {field.name} is there twice")
        if field.name in ORIGIN:
            continue
        if field.name in _KINDS:
            kinds, wanted = _KINDS[field.name]
            if not isinstance(field.dataType, kinds):
                raise PipelineError(
                    f"column {field.name} is {field.dataType.simpleString()}; it must be {wanted}"
                )
        elif field.name not in _OTHERS:
            known = ", ".join((*_OTHERS, *_KINDS))
            raise PipelineError(f"column {field.name} is none that a topic takes; there are {known}")
    if "value" not in names:
        raise PipelineError("column value is missing")
    _check_properties(schema)
    if "deliver_at" in names and "deliver_after_ms" in names:
        raise PipelineError("columns deliver_at and deliver_after_ms exclude one another")
    if not topic and "topic" not in names:
        raise PipelineError("which topic? option topic or a column topic is needed")
    if not topic and came_from_topic(schema):
        raise PipelineError(
            "column topic says where a row came from, as there is a column offset; option topic is needed"
        )
    if chooses_version(names) and not is_plain(schema["value"].dataType):
        kind = schema["value"].dataType.simpleString()
        raise PipelineError(
            f"column schema_version is for values that are bytes; column value is {kind}, which gets its version"
            " when it is encoded"
        )
    if "_error" in names and not dead_letter_topic:
        raise PipelineError("column _error needs option deadLetterTopic, for the rows that have one")


def came_from_topic(schema: t.StructType) -> bool:
    """Whether topic and partition of a row say where it came from, rather than where it is to go."""
    return "offset" in schema.fieldNames()


def _check_properties(schema: t.StructType) -> None:
    names = schema.fieldNames()
    if "properties" in names and "headers" in names:
        raise PipelineError("columns properties and headers exclude one another")
    if "properties" in names:
        kind = schema["properties"].dataType
        fits = isinstance(kind, t.MapType) and all(
            isinstance(each, t.StringType) for each in (kind.keyType, kind.valueType)
        )
        if not fits:
            raise PipelineError(f"column properties is {kind.simpleString()}; it must be map<string,string>")
    if "headers" in names:
        kind = schema["headers"].dataType
        element = kind.elementType if isinstance(kind, t.ArrayType) else None
        fits = (
            isinstance(element, t.StructType)
            and element.fieldNames() == ["key", "value"]
            and isinstance(element["key"].dataType, t.StringType)
            and isinstance(element["value"].dataType, _BYTES)
        )
        if not fits:
            raise PipelineError(
                f"column headers is {kind.simpleString()}; it must be array<struct<key:string,value:binary>>"
            )


def chooses_version(names: Sequence[str]) -> bool:
    """Whether a row says by which version of the topic's schema its bytes are to be read, not what it was once."""
    return "schema_version" in names and "offset" not in names


def is_plain(kind: t.DataType) -> bool:
    """Whether a value goes out as its bytes, without a schema."""
    return isinstance(kind, _BYTES)
