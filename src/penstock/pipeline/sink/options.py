"""The options of the sink, read and checked. Spark hands them over in lower case, some of its own among them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import NAMES as SERVER_NAMES
from penstock.pipeline.options import flag, named, parse_server
from penstock.wire.bulk import COMPRESSIONS

_NAMES: Final = (
    *SERVER_NAMES,
    "topic",
    "delivery",
    "writer",
    "batch",
    "ordered",
    "compression",
    "deadLetterTopic",
    "value.encode",
)
_SPARKS: Final = ("checkpointlocation", "queryname")
_TOPIC: Final = "the topic is named by option topic, or row by row in a column topic"
_HINTS: Final = {
    "path": f"save() and start() take no name; {_TOPIC}",
    "subscribe": _TOPIC,
    "includeheaders": "leave it out: a column headers, or properties, is written",
}
_BATCH_MAX: Final = 2**63 - 1


class Delivery(StrEnum):
    """What becomes of rows that Spark computes more than once."""

    EXACTLY_ONCE = "exactly_once"  # staged, seen when the batch is committed
    SEQUENCE = (
        "sequence"  # at once; repeats are known by their numbers, as far as rows come in the same order
    )
    AT_LEAST_ONCE = "at_least_once"  # at once; repeats are stored again


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a write asks for. `writer` is empty and `batch` -1 where none is named; `texts` are all options."""

    server: Access
    topic: TopicName | None
    dead_letter_topic: TopicName | None
    delivery: Delivery
    delivery_named: bool  # by the user
    writer: str
    batch: int
    compression: int
    texts: dict[str, str]


def parse_options(given: Mapping[str, str], *, streaming: bool) -> Options:
    """Check the options of a write. Raises PipelineError, which names the option."""
    texts = named(given, _NAMES, _SPARKS, _HINTS)
    server = parse_server(texts)
    delivery = _delivery(texts)
    writer, batch = texts.get("writer", "").strip(), _batch(texts)
    if "writer" in texts and not writer:
        raise PipelineError("option writer is empty")
    if streaming and batch >= 0:
        raise PipelineError("option batch is for a batch write: a stream numbers its batches itself")
    if not streaming and bool(writer) != (batch >= 0):
        raise PipelineError("options writer and batch go together: they say which batch this is")
    return Options(
        server=server,
        topic=_topic(texts, "topic"),
        dead_letter_topic=_topic(texts, "deadLetterTopic"),
        delivery=delivery,
        delivery_named="delivery" in texts,
        writer=writer,
        batch=batch,
        compression=_compression(texts),
        texts=texts,
    )


def _delivery(texts: Mapping[str, str]) -> Delivery:
    text = texts.get("delivery", Delivery.EXACTLY_ONCE).strip().lower()
    try:
        delivery = Delivery(text)
    except ValueError:
        raise PipelineError(f"option delivery: {text!r} is none of {', '.join(Delivery)}") from None
    ordered = flag(texts, "ordered", default=False)
    if delivery is Delivery.SEQUENCE and not ordered:
        raise PipelineError(
            "option delivery: sequence needs rows that come in the same order when a task is repeated; say"
            " ordered=true where the plan has no shuffle, or leave delivery=exactly_once"
        )
    return delivery


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


def _batch(texts: Mapping[str, str]) -> int:
    text = texts.get("batch")
    if text is None:
        return -1
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or int(text) > _BATCH_MAX:
        raise PipelineError(f"option batch: {text!r} is no whole number from 0 on")
    return int(text)


def _compression(texts: Mapping[str, str]) -> int:
    text = texts.get("compression", "none").strip().lower()
    if text not in COMPRESSIONS:
        raise PipelineError(f"option compression: {text!r} is none of {', '.join(COMPRESSIONS)}")
    return COMPRESSIONS[text]


def _topic(texts: Mapping[str, str], option: str) -> TopicName | None:
    if option not in texts:
        return None
    return parse_topic(f"option {option}", texts[option])


def parse_topic(place: str, text: str) -> TopicName:
    """A topic to write to. Raises PipelineError, which names the place."""
    try:
        topic = TopicName.parse(text.strip())
    except PenstockError as error:
        raise PipelineError(f"{place}: {error.message}") from None
    if not topic.persistent:
        raise PipelineError(f"{place}: {topic} keeps nothing; a pipeline writes to persistent topics")
    return topic
