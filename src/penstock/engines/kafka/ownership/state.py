"""What the journal says: who owns each slot, and its cursors. Every process that reads the same records knows the same.

A record *counts* for a slot if its term is that of the slot's last claim before it. Other records are those of processes that were
replaced, and are ignored.
"""

import logging
from collections.abc import Iterable
from typing import Final

import msgspec

from penstock.engines.kafka.driver.journal import JournalRecord
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.formats import CURSORS, version_of

from .records import (
    CLAIM,
    DONE,
    SAVE,
    Claim,
    CursorKey,
    CursorRecord,
    Envelope,
    decode_claim,
    decode_cursors,
    decode_envelope,
    slot_of,
)

log = logging.getLogger(__name__)

KEY_SHOWN: Final = 40  # bytes of an unknown record's key


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
        """What is acknowledged."""
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
