"""Confluent's framing of a topic's values: which version of the topic's schema a value is of.

    0x00 | the schema's id, 4 bytes, big-endian | payload

A value that only looks like it, as the registry has no such id, is taken as it is. Ids that are not known yet are reported, and
learned before the records are handed on; while the registry is away they stand for themselves: the version is `BY_ID` + id, as
it is for ids of another subject, and is found later. Values of ours with a schema that is not in the registry say so in a
header, as do those without a schema that look framed.
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Final, Protocol

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaVersion
from penstock.runtime.clock import Clock

from .driver.record import Header
from .headers import ENTRY, SCHEMA_VERSION, UNVERSIONED, schema_header

MAGIC: Final = b"\0"
HEAD_BYTES: Final = 5
BY_ID: Final = 1 << 32  # versions from here on are ids
DOCUMENTS: Final = (
    1 << 33
)  # versions from here on are those of documents: of types that are not in the registry
IDS_MAX: Final = 10_000  # of a topic that are remembered
NONE_MS: Final = 60_000  # so long an id that the registry has not is not asked for again

_UNFRAMED: Final = frozenset((SCHEMA_VERSION, ENTRY))  # a record with one of these says itself what it is


class UnknownSchemas(Exception):
    """Records have ids of schemas that are to be learned first."""

    def __init__(self, ids: Collection[bytes]) -> None:
        super().__init__(f"{len(ids)} unknown schemas")
        self.ids = ids


class Framings(Protocol):
    """The framings of all topics, by a registry."""

    def framing(self, topic: TopicName) -> "Framing":
        """That of one topic, to be used at once."""

    async def learn(self, topic: TopicName) -> None:
        """Learn the versions of a topic's schema; never fails: what was learned last counts."""

    async def learn_ids(self, topic: TopicName, heads: Collection[bytes]) -> None:
        """Learn what ids in front of values mean; never fails, and afterwards each is known or guessed."""

    async def find_version(self, topic: TopicName, number: int) -> SchemaVersion:
        """As `broker.Schemas.find_version`; then its framing can write it."""

    async def close(self) -> None:
        """Ask the registry no more."""


class UnknownVersion(PenstockError):
    """A message names a version that is not known here: it is to be found first."""

    def __init__(self, topic: TopicName, version: int) -> None:
        super().__init__(ErrorKind.SCHEMA_NOT_FOUND, f"{topic} has no schema version {version}")
        self.version = version


class _Known(msgspec.Struct, frozen=True, gc=False):
    """What an id means: a version, or no schema (None); 0: for good."""

    version: int | None
    until_ms: int = 0


class Framing:
    """Of one topic."""

    def __init__(self, topic: TopicName, clock: Clock) -> None:
        self.topic = topic
        self._clock = clock
        self._ids: OrderedDict[bytes, _Known] = OrderedDict()
        self._heads: dict[int, bytes] = {}

    # -- what is known

    def know(self, number: int, version: int) -> None:
        """An id is a version of the topic."""
        head = number.to_bytes(4, "big")
        self._put(head, _Known(version))
        if len(self._heads) >= IDS_MAX:
            self._heads.clear()
        self._heads[version] = MAGIC + head

    def guess(self, head: bytes, version: int | None, for_ms: int = NONE_MS) -> None:
        """An id is taken for a version, or for no schema's, for some time."""
        self._put(head, _Known(version, self._clock.monotonic_ms() + for_ms))

    def _put(self, head: bytes, known: _Known) -> None:
        self._ids.pop(head, None)
        self._ids[head] = known
        if len(self._ids) > IDS_MAX:
            self._ids.popitem(last=False)

    def knows(self, version: int) -> bool:
        """Whether `frame` can write this version."""
        return version >= BY_ID or version in self._heads

    # -- values out and in

    def frame(self, value: bytes | None, version: int | None) -> tuple[bytes | None, list[Header]]:
        """The value of a record, and its headers that concern it; raises UnknownVersion."""
        if value is None:
            return None, []
        if version is None:
            return value, [UNVERSIONED] if value[:1] == MAGIC and len(value) >= HEAD_BYTES else []
        if version >= DOCUMENTS:
            return value, schema_header(version - DOCUMENTS)
        head = self._heads.get(version)
        if head is None:
            if version < BY_ID:
                raise UnknownVersion(self.topic, version)
            head = MAGIC + (version - BY_ID).to_bytes(4, "big")
        return head + value, []

    def open(
        self, values: list[bytes | None], headers: Sequence[Sequence[Header] | None]
    ) -> list[int | None] | None:
        """Take the framing from values, in place; returns the versions, None where there is none.

        Raises UnknownSchemas, and changes nothing then.
        """
        found: list[tuple[int, int]] = []
        unknown: set[bytes] = set()
        for at, value in enumerate(values):
            if value is None or value[:1] != MAGIC or len(value) < HEAD_BYTES or _says(headers[at]):
                continue
            head = value[1:HEAD_BYTES]
            known = self._ids.get(head)
            if known is None or 0 < known.until_ms <= self._clock.monotonic_ms():
                unknown.add(head)
            elif known.version is not None:
                found.append((at, known.version))
        if unknown:
            raise UnknownSchemas(unknown)
        if not found:
            return None
        versions: list[int | None] = [None] * len(values)
        for at, version in found:
            versions[at] = version
            values[at] = (values[at] or b"")[HEAD_BYTES:]
        return versions


def _says(headers: Sequence[Header] | None) -> bool:
    return bool(headers) and any(name in _UNFRAMED for name, _ in headers or ())


def version_of(said: int | None, found: int | None) -> int | None:
    """The version of a record by its header, which is the number of a document, or else by its framing."""
    if said is None:
        return found
    return said + DOCUMENTS if 0 <= said < DOCUMENTS else None


def plain_value(
    value: bytes | None, version: int | None, framing: Framing | None
) -> tuple[bytes | None, list[Header]]:
    """A record's value, and the headers that say of which schema it is; raises as `Framing.frame`."""
    if framing is not None:
        return framing.frame(value, version)
    return value, [] if version is None else schema_header(version)
