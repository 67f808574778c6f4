"""The records of the cursors' journal, and the state that they describe: the owner of each slot, and its cursors.

A record's key is its kind: `claim`, `save` or `done`.

- A claim is JSON and has no version: every release has to know the owner of a slot. Unknown fields are ignored.
- The other kinds are MessagePack: an array of the process, the record's number within it, the terms by slot, and the body. These
  four keep their form in all versions, so that a process which does not know the body's version knows which slots it concerns. A
  header names the version (`model/formats.py`).

The body of a save is an array of `CursorRecord`. A `done` has none: the process wrote all cursors of its slots after its claim.

A record *counts* for a slot if its term is that of the slot's last claim before it. Other records are those of processes that were
replaced, and are ignored. Every process that reads the same records has the same state.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from zlib import crc32

import msgspec

from penstock.engines.kafka.driver.shared_log import JournalRecord
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import CURSORS, version_of

log = logging.getLogger(__name__)

CLAIM: Final = b"claim"
SAVE: Final = b"save"
DONE: Final = b"done"

RECORD_BYTES: Final = 256 << 10  # of the cursors in one record, about
PROPERTIES_BYTES_MAX: Final = 2 * RECORD_BYTES  # of one cursor
CHUNK_BYTES: Final = 530  # of a chunk with its number
CURSOR_BYTES: Final = 100  # of a cursor without names, chunks and properties
KEY_SHOWN: Final = 40  # bytes of an unknown record's key


class Replaced(PenstockError):
    """Another process owns the slot, or none does yet: nothing was saved."""


def replaced(slot: int) -> Replaced:
    """The error of a save for a slot that this process does not own."""
    return Replaced(ErrorKind.UNAVAILABLE, f"another process owns slot {slot}")


class Claim(msgspec.Struct, frozen=True):
    """From here on records of these slots count only if they name these terms.

    `group` is the service's, `slots` the number of all slots; `process` is unique per start, `number` counts its records.
    """

    group: str
    slots: int
    process: str
    number: int
    terms: dict[int, str]


class CursorKey(msgspec.Struct, frozen=True, order=True):
    """A subscription of one partition. `topic` is Kafka's name."""

    topic: str
    partition: int
    subscription: str


class CursorRecord(msgspec.Struct, array_like=True, frozen=True):
    """A change of a cursor, as `CursorChange` describes it; `topic_id` is the topic that its offsets belong to.

    All of a cursor is a change, too, with all chunks and the properties. `deleted`: the subscription is gone;
    with a topic id only if the cursor belongs to that topic.
    """

    topic: str
    partition: int
    subscription: str
    topic_id: str
    mark: int
    chunks: dict[int, bytes | None] = {}
    properties: bytes | None = None
    deleted: bool = False

    @property
    def key(self) -> CursorKey:
        return CursorKey(self.topic, self.partition, self.subscription)

    @property
    def size(self) -> int:
        """Bytes in a record, about."""
        names = 4 * (len(self.topic) + len(self.subscription))
        return CURSOR_BYTES + names + CHUNK_BYTES * len(self.chunks) + len(self.properties or b"")


def check_properties(document: bytes | None) -> None:
    """Raise TOO_LARGE for properties that fit into no record: those that are saved together would all fail."""
    size = len(document or b"")
    if size > PROPERTIES_BYTES_MAX:
        raise PenstockError(
            ErrorKind.TOO_LARGE,
            f"properties of a subscription of {size} bytes; the most is {PROPERTIES_BYTES_MAX}",
        )


def deletion_of(key: CursorKey, topic_id: str = "") -> CursorRecord:
    """The change that deletes a cursor; with a topic id only that of this topic."""
    return CursorRecord(key.topic, key.partition, key.subscription, topic_id, 0, deleted=True)


class Envelope(msgspec.Struct, array_like=True, frozen=True):
    """A record that is not a claim."""

    process: str
    number: int
    terms: dict[int, str]
    body: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil


def slot_of(topic: str, partition: int, slots: int) -> int:
    """The slot of a partition. The partitions of a topic are in different slots, as long as there are enough."""
    return (crc32(topic.encode()) + partition) % slots


def encode_claim(claim: Claim) -> bytes:
    return _JSON.encode(claim)


def encode_save(process: str, number: int, terms: dict[int, str], cursors: Sequence[CursorRecord]) -> bytes:
    return _PACK.encode(Envelope(process, number, terms, msgspec.Raw(_PACK.encode(cursors))))


def encode_done(process: str, number: int, terms: dict[int, str]) -> bytes:
    return _PACK.encode(Envelope(process, number, terms))


decode_claim: Final = msgspec.json.Decoder(Claim).decode  # raises msgspec.DecodeError, as the others do
decode_envelope: Final = msgspec.msgpack.Decoder(Envelope).decode
decode_cursors: Final = msgspec.msgpack.Decoder(list[CursorRecord]).decode

_JSON: Final = msgspec.json.Encoder()
_PACK: Final = msgspec.msgpack.Encoder()


def split(cursor: CursorRecord) -> Iterator[CursorRecord]:
    """The change in parts that fit into records. Each is a change by itself: together, in any number, they lose nothing."""
    most = RECORD_BYTES // CHUNK_BYTES
    if len(cursor.chunks) <= most:
        yield cursor
        return
    chunks = list(cursor.chunks.items())
    for start in range(0, len(chunks), most):
        yield msgspec.structs.replace(cursor, chunks=dict(chunks[start : start + most]))


def packed(cursors: Sequence[CursorRecord]) -> Iterator[list[CursorRecord]]:
    """The changes, in their order, as the contents of records."""
    part: list[CursorRecord] = []
    size = 0
    for cursor in cursors:
        for one in split(cursor):
            if part and size + one.size > RECORD_BYTES:
                yield part
                part, size = [], 0
            part.append(one)
            size += one.size
    if part:
        yield part


class Waiting(msgspec.Struct, eq=False):
    """A save that is not answered."""

    changes: Sequence[CursorRecord]
    holdings: dict[int, int]  # the slots, and which time of owning them it belongs to
    size: int
    future: "asyncio.Future[None]"

    def end(self, error: PenstockError | None) -> None:
        if self.future.done():  # the caller no longer waits
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(type(error)(error.kind, error.message))


class StoredCursor(msgspec.Struct):
    """A cursor as it is stored; the fields are those of `CursorRecord`."""

    topic_id: str
    mark: int
    chunks: dict[int, bytes]
    properties: bytes | None = None

    def apply(self, change: CursorRecord) -> None:
        if change.topic_id != self.topic_id:  # the topic was recreated: nothing of before is left
            self.topic_id = change.topic_id
            self.chunks.clear()
        self.mark = change.mark
        for number, chunk in change.chunks.items():
            if chunk is None:
                self.chunks.pop(number, None)
            else:
                self.chunks[number] = chunk
        if change.properties is not None:
            self.properties = change.properties

    def offsets(self) -> OffsetSet:
        """The acknowledged offsets."""
        return OffsetSet.load(self.mark, dict(self.chunks))


class Slot(msgspec.Struct):
    """A slot. `begin` is the offset before which its records are superseded, and `begin_bytes` the size of the journal there;
    None before its first checkpoint."""

    claim: Claim | None = None
    term: str = ""
    claimed: int = 0  # the offset of the claim
    claimed_bytes: int = 0
    begin: int | None = None
    begin_bytes: int = 0
    whole_bytes: int = 0  # that the journal grew by during the last checkpoint
    unknown: PenstockError | None = None  # a record of a newer version that counts
    cursors: dict[CursorKey, StoredCursor] = {}


class Read(msgspec.Struct, frozen=True):
    """What a record was: of which process, which of its records, and for which slots it counts."""

    process: str
    number: int
    counts: frozenset[int]
    claim: Claim | None = None


class JournalState:
    """Built from the records of a journal, in their order."""

    def __init__(self, slots: int) -> None:
        self.slots = [Slot() for _ in range(slots)]
        self.bytes = 0  # of the records that were read
        self.newest: Claim | None = None

    def apply(self, record: JournalRecord) -> Read | None:
        """Take a record in; None if it cannot be decoded, and is ignored."""
        self.bytes += len(record.value)
        try:
            if record.key == CLAIM:
                return self._claimed(decode_claim(record.value), record.offset)
            return self._written(decode_envelope(record.value), record)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            log.error(
                "a record of the cursors' journal cannot be read",
                extra={"offset": record.offset, "reason": str(error)},
            )
            return None

    def _claimed(self, claim: Claim, offset: int) -> Read:
        self.newest = claim
        claimed = [number for number in claim.terms if 0 <= number < len(self.slots)]
        for number in claimed:
            slot = self.slots[number]
            slot.claim, slot.term = claim, claim.terms[number]
            slot.claimed, slot.claimed_bytes = offset, self.bytes
        return Read(claim.process, claim.number, frozenset(claimed), claim)

    def _written(self, envelope: Envelope, record: JournalRecord) -> Read:
        counts = frozenset(
            number
            for number, term in envelope.terms.items()
            if 0 <= number < len(self.slots) and term and term == self.slots[number].term
        )
        unknown: PenstockError | None = None
        try:
            CURSORS.check(version_of(record.headers), f"at {record.offset}")
        except PenstockError as error:
            unknown = error
        if unknown is None and record.key not in (SAVE, DONE):
            what = (
                f"record {record.key[:KEY_SHOWN]!r} at {record.offset} of the cursors' journal is not known"
            )
            unknown = PenstockError(ErrorKind.NEWER_FORMAT, what)
        if unknown is not None:
            for number in counts:
                self.slots[number].unknown = unknown
        elif record.key == DONE:
            for number in counts:
                slot = self.slots[number]
                slot.begin, slot.begin_bytes = slot.claimed, slot.claimed_bytes
                slot.whole_bytes = self.bytes - slot.claimed_bytes
        else:
            self._save(decode_cursors(envelope.body), counts)
        return Read(envelope.process, envelope.number, counts)

    def _save(self, changes: list[CursorRecord], counts: frozenset[int]) -> None:
        for change in changes:
            if not change.topic:  # of an earlier build: that the cursors of a slot were taken over
                continue
            number = slot_of(change.topic, change.partition, len(self.slots))
            if number not in counts:
                continue
            cursors, key = self.slots[number].cursors, change.key
            if change.deleted:
                if key in cursors and change.topic_id in ("", cursors[key].topic_id):
                    del cursors[key]
            elif key in cursors:
                cursors[key].apply(change)
            else:
                kept = cursors[key] = StoredCursor(change.topic_id, change.mark, {})
                kept.apply(change)

    def cursors_of(self, topic: str, partition: int) -> dict[str, StoredCursor]:
        """The cursors of a partition, by subscription."""
        cursors = self.slots[slot_of(topic, partition, len(self.slots))].cursors
        return {
            key.subscription: stored
            for key, stored in cursors.items()
            if key.topic == topic and key.partition == partition
        }

    def whole(self, slot: int, key: CursorKey) -> CursorRecord | None:
        """All of a cursor; None if it was deleted."""
        stored = self.slots[slot].cursors.get(key)
        if stored is None:
            return None
        names = key.topic, key.partition, key.subscription
        return CursorRecord(*names, stored.topic_id, stored.mark, dict(stored.chunks), stored.properties)

    def has(self, key: CursorKey) -> bool:
        """Whether there is such a cursor."""
        return key in self.slots[slot_of(key.topic, key.partition, len(self.slots))].cursors

    def keys(self, slots: Iterable[int]) -> list[CursorKey]:
        """The cursors of slots."""
        return [key for slot in slots for key in self.slots[slot].cursors]

    def exists(self, topic: str, subscription: str) -> bool:
        """Whether a subscription is in any partition of a topic."""
        return any(
            key.topic == topic and key.subscription == subscription
            for slot in self.slots
            for key in slot.cursors
        )

    def superseded(self) -> int | None:
        """The offset before which no record of any slot is needed; None as long as a slot needs all of them."""
        begins = [slot.begin for slot in self.slots]
        return None if None in begins else min(begin for begin in begins if begin is not None)
