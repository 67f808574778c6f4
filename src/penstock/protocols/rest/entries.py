"""Entries in bulk: the body that staging and publishing them share, checked as far as the server relies on what it
says, and POST of entries to be published at once."""

from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.broker import Broker
from penstock.broker.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.wire.bulk import read_sections
from penstock.wire.entry import admit_versioned
from penstock.wire.frames import OVERHEAD_BYTES

from .operations import ALWAYS, FLAG
from .stage_shapes import AppendAnswer, Appended

MEDIA: Final = "application/vnd.penstock.sections"
SECTIONS: Final = (
    "Sections: topic size u16, topic, count u32, then entries, each with its size u32 before it; big endian. A"
    " topic is a log's full name; an entry is Pulsar's."
)
PUBLISHING: Final = (
    *ALWAYS,
    ErrorKind.NOT_SUPPORTED,
    ErrorKind.BAD_ENCODING,
    ErrorKind.CHECKSUM,
    ErrorKind.BAD_MEDIA_TYPE,
    ErrorKind.TOO_LARGE,
    ErrorKind.TOPIC_NOT_FOUND,
    ErrorKind.PARTITION_NOT_FOUND,
    ErrorKind.SCHEMA_NOT_FOUND,
    ErrorKind.INCOMPATIBLE_SCHEMA,
    ErrorKind.TOPIC_TERMINATED,
    ErrorKind.STORAGE_FULL,
    ErrorKind.STORAGE_FAILED,
)

Sections = Sequence[tuple[Topic, Sequence[NewEntry]]]


async def sections_of(broker: Broker, caller: Caller, body: bytes) -> Sections:
    """The entries of a body by topic; topics that are missing are made, as configured.

    Raises BAD_ENCODING, CHECKSUM, TOO_LARGE, SCHEMA_NOT_FOUND, INCOMPATIBLE_SCHEMA, FORBIDDEN, TOPIC_NOT_FOUND,
    and BAD_PARAMETER for a partitioned topic as a whole and for a body without entries.
    """
    bytes_max = broker.settings.max_message_bytes + OVERHEAD_BYTES
    found: list[tuple[TopicName, list[NewEntry]]] = []
    for text, blobs in read_sections(body):
        name = TopicName.parse(text)
        await broker.topics.learn(name)
        caller.may_produce(name)
        entries: list[NewEntry] = []
        versions: set[int | None] = set()
        for blob in blobs:
            if len(blob) > bytes_max:
                raise PenstockError(
                    ErrorKind.TOO_LARGE, f"an entry of {len(blob)} bytes; the most is {bytes_max}"
                )
            entry, version = admit_versioned(blob)
            entries.append(entry)
            versions.add(version)
        for version in versions:
            if version is None:
                broker.schemas.check_next(name, None)
            else:
                await broker.schemas.find_version(name, version)
        if entries:
            found.append((name, entries))
    if not found:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the body holds no entries")
    return [(await broker.topics.get(name), entries) for name, entries in found]


async def sections_body(context: ServerContext, exchange: Exchange) -> bytes:
    """The body of a request; raises BAD_MEDIA_TYPE, TOO_LARGE."""
    kind = (exchange.header(b"content-type") or MEDIA).partition(";")[0].strip().lower()
    if kind != MEDIA:
        raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, f"entries come as {MEDIA}, not as {kind[:80]}")
    return await exchange.body(context.limits.max_request_bytes)


operations: Final = Table("stage")

_PARAMETERS: Final = (Parameter("deduplicate", "", FLAG),)


@operations.on(
    "POST",
    "/entries",
    summary="Publish entries at once.",
    description=f"{SECTIONS} With `deduplicate`, entries whose ids their producer has stored are passed over.",
    parameters=_PARAMETERS,
    bodies=(MEDIA,),
    answer=AppendAnswer,
    errors=(*PUBLISHING, ErrorKind.EXCLUSIVE_PRODUCER),
)
async def publish(context: ServerContext, caller: Caller, names: Any, exchange: Exchange) -> AppendAnswer:
    deduplicate = Params(exchange.scope["query_string"], _PARAMETERS).flag("deduplicate")
    sections = await sections_of(context.broker, caller, await sections_body(context, exchange))
    for topic, _ in sections:
        topic.check_open()
    results: list[Appended] = []
    for topic, entries in sections:
        done = await context.broker.append_entries(topic, entries, deduplicate=deduplicate)
        results.append(
            Appended(
                topic=str(topic.name),
                messages=sum(entry.count for entry in entries),
                repeats=done.repeats,
                offset=done.offset,
                message_id=None if done.first is None else str(done.first),
                last_sequence_id=done.last_sequence_id,
            )
        )
    return AppendAnswer(results=results)
