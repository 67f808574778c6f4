"""The options of the sink and the columns that it writes, checked. Spark passes its own options, too."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
from pyspark.sql import types as t

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import SERVER, SINK, parse_server, read_options
from penstock.wire.bulk import COMPRESSIONS

_SPARKS: Final = ("checkpointlocation", "queryname")
_TOPIC: Final = "the topic is named by option topic, or row by row in a column topic"
_HINTS: Final = {
    "path": f"save() and start() take no name; {_TOPIC}",
    "subscribe": _TOPIC,
    "includeheaders": "leave it out: a column headers, or properties, is written",
}

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

# The origin of a row, as the source gives it. It is written to dead letters only.
ORIGIN: Final = ("offset", "timestamp", "timestampType", "message_id", "producer_name", "sequence_id")


class Delivery(StrEnum):
    """What becomes of rows that Spark computes more than once."""

    EXACTLY_ONCE = "exactly_once"  # staged, seen when the batch is committed
    SEQUENCE = (
        "sequence"  # at once; repeats are known by their numbers, as far as rows come in the same order
    )
    AT_LEAST_ONCE = "at_least_once"  # at once; repeats are stored again


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """A requested write. `writer` is empty and `batch` -1 if not named."""

    server: Access
    topic: TopicName | None
    dead_letter_topic: TopicName | None
    delivery: Delivery
    delivery_named: bool  # by the user
    writer: str
    batch: int
    compression: int
    encode: str


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Check the options of a write. Raises PipelineError, which names the option."""
    found = read_options(given, (*SERVER, *SINK), _SPARKS, _HINTS)
    server = parse_server(found)
    delivery = Delivery(found["delivery"] or Delivery.EXACTLY_ONCE)
    if delivery is Delivery.SEQUENCE and not found["ordered"]:
        raise PipelineError(
            "option delivery: sequence needs rows that come in the same order when a task is repeated; say"
            " ordered=true where the plan has no shuffle, or leave delivery=exactly_once"
        )
    writer, batch = found["writer"].strip(), found["batch"]
    if found["writer"] and not writer:
        raise PipelineError("option writer is empty")
    if streaming and batch is not None:
        raise PipelineError("option batch is for a batch write: a stream numbers its batches itself")
    if not streaming and bool(writer) != (batch is not None):
        raise PipelineError("options writer and batch go together: they say which batch this is")
    return Options(
        server=server,
        topic=_topic(found, "topic"),
        dead_letter_topic=_topic(found, "deadLetterTopic"),
        delivery=delivery,
        delivery_named=found["delivery"] is not None,
        writer=writer,
        batch=-1 if batch is None else batch,
        compression=COMPRESSIONS[found["compression"]],
        encode=found["value.encode"],
    )


def offered(options: Options, *, staged: bool) -> Delivery:
    """The delivery of a write to a server that can stage (`staged`) or not; raises PipelineError for one that it lacks."""
    if staged or options.delivery is not Delivery.EXACTLY_ONCE:
        return options.delivery
    if options.delivery_named:
        raise PipelineError(
            "option delivery: the server has no staged publishing, as the Pulsar cluster behind it has no transactions, so that"
            " nothing is written exactly once; leave the option out, or say delivery=at_least_once",
            ErrorKind.NOT_SUPPORTED,
        )
    return Delivery.AT_LEAST_ONCE


def _topic(found: Mapping[str, Any], option: str) -> TopicName | None:
    return None if found[option] is None else parse_topic(f"option {option}", found[option])


def parse_topic(place: str, text: str) -> TopicName:
    """A topic to write to. Raises PipelineError, which names the place."""
    try:
        topic = TopicName.parse(text.strip())
    except PenstockError as error:
        raise PipelineError(f"{place}: {error.message}") from None
    if not topic.persistent:
        raise PipelineError(f"{place}: {topic} keeps nothing; a pipeline writes to persistent topics")
    return topic


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
    """Whether topic and partition of a row are its origin, not its target."""
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
