"""Entries that come in bulk, checked as far as the server relies on what they say."""

from collections.abc import Sequence
from typing import Final

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.topic import Topic
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.caller import Caller
from penstock.wire.bulk import read_sections
from penstock.wire.entry import admit_versioned
from penstock.wire.frames import OVERHEAD_BYTES

MEDIA: Final = "application/vnd.penstock.sections"

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
                broker.schemas.check_unversioned(name)
            else:
                broker.schemas.version(name, version)
        if entries:
            found.append((name, entries))
    if not found:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "the body holds no entries")
    return [(await broker.topics.get(name), entries) for name, entries in found]
