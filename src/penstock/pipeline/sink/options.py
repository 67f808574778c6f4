"""The options of the sink, read and checked. Spark hands them over in lower case, some of its own among them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

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


class Delivery(StrEnum):
    """What becomes of rows that Spark computes more than once."""

    EXACTLY_ONCE = "exactly_once"  # staged, seen when the batch is committed
    SEQUENCE = (
        "sequence"  # at once; repeats are known by their numbers, as far as rows come in the same order
    )
    AT_LEAST_ONCE = "at_least_once"  # at once; repeats are stored again


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a write asks for. `writer` is empty and `batch` -1 where none is named."""

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
