"""The journal of cursors as a port of the core: `Cursors` of the topics that this process has open."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from penstock.engines.attached.link import Moved
from penstock.engines.core.ports.cursors import OpenedCursor
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange, CursorWriter
from penstock.model.errors import ErrorKind, PenstockError

from .cursors import Cursors, Replaced
from .state import CursorKey, CursorRecord, StoredCursor, check_properties

log = logging.getLogger(__name__)


class Misfit(StrEnum):
    """Why a cursor does not fit. The values are metric labels."""

    RECREATED = "recreated"  # the topic of this name is another one
    BEYOND_END = "beyond_end"  # the log ends before the mark: it was truncated, or is a mirror's
    ACKS_BEYOND_END = "acks_beyond_end"  # the log ends before messages that were acknowledged one by one
    EXPIRED = "expired"  # the log begins after the mark: unacknowledged messages were deleted


def fitted(stored: StoredCursor, topic_id: str, begin: int, end: int) -> tuple[OffsetSet, Misfit | None]:
    """The cursor for a log with the offsets `begin` up to, not with, `end`, and why it is not the stored one."""
    if stored.topic_id != topic_id:
        return OffsetSet(begin), Misfit.RECREATED
    if stored.mark > end:
        return OffsetSet(begin), Misfit.BEYOND_END
    cursor = stored.offsets()
    last = max((last for _, last in cursor.ranges()), default=-1)
    if last >= end:  # other messages may have these offsets now, or will have them
        return OffsetSet(max(begin, stored.mark)), Misfit.ACKS_BEYOND_END
    if cursor.mark < begin:
        cursor.raise_mark(begin)
        return cursor, Misfit.EXPIRED
    return cursor, None


def log_misfit(key: CursorKey, misfit: Misfit, stored: int, begins_at: int) -> None:
    """Log that a cursor does not fit, with the marks that were stored and that count now."""
    extra = {
        "topic": key.topic,
        "partition": key.partition,
        "subscription": key.subscription,
        "why": misfit.value,
        "stored": stored,
        "begins_at": begins_at,
    }
    log.warning("a cursor does not fit its log", extra=extra)


class JournalWriter:
    """`CursorWriter`. A log is bound while its subscriptions are served here; `cursors` is set before that."""

    cursors: Cursors

    def __init__(self) -> None:
        self.misfits: Counter[Misfit] = Counter()  # cursors that did not fit their logs, since the start
        self._logs: dict[int, tuple[str, int, str]] = {}

    def bind(self, ledger: int, topic: str, partition: int, topic_id: str) -> None:
        """A ledger is this partition of the Kafka topic with this id."""
        self._logs[ledger] = topic, partition, topic_id

    def unbind(self, ledger: int) -> None:
        """Its subscriptions are not served here any more."""
        self._logs.pop(ledger, None)

    async def load(
        self, key: CursorKey, topic_id: str, begin: int, end: int
    ) -> tuple[OffsetSet, bytes | None] | None:
        """A cursor and its properties, for a log with the offsets `begin` up to, not with, `end`; None if there is none.

        A cursor that does not fit the log begins at the earliest place at which no message is missed, which is saved, logged
        and counted. Raises as `Cursors.load` and `Cursors.save`.
        """
        stored = self.cursors.load(self.cursors.slot(key.topic, key.partition)).get(key)
        if stored is None:
            return None
        cursor, misfit = fitted(stored, topic_id, begin, end)
        if misfit is not None:
            self.misfits[misfit] += 1
            log_misfit(key, misfit, stored.mark, cursor.mark)
            # Now: once the log has grown, the stored cursor would seem to fit. What it has beyond the mark goes, too.
            cursor.touch({**stored.chunks})
            names = key.topic, key.partition, key.subscription
            await self.cursors.save((CursorRecord(*names, topic_id, cursor.mark, cursor.take_changes()),))
        return cursor, stored.properties

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        """As `CursorWriter`, but if it fails a part of the changes may be stored: saving them again is harmless. Raises
        Replaced if another process owns one of the logs, UNAVAILABLE if the outcome is unknown."""
        records: list[CursorRecord] = []
        for one in changes:
            topic, partition, topic_id = self._log(one.ledger)
            names = topic, partition, one.subscription
            records.append(CursorRecord(*names, topic_id, one.mark, one.chunks, one.properties))
        await self.cursors.save(records)

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        """As `CursorWriter`; raises as `save_cursors`."""
        topic, partition, topic_id = self._log(ledger)
        await self.cursors.delete(CursorKey(topic, partition, subscription), topic_id)

    def _log(self, ledger: int) -> tuple[str, int, str]:
        found = self._logs.get(ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"ledger {ledger} is not served here")
        return found


class JournalCursors(JournalWriter):
    """`core.ports.Cursors`. A topic whose slot another process owns raises `Moved`."""

    def writer(self, topic: KafkaTopic) -> CursorWriter:
        place = topic.place
        self.bind(topic.ledger, place.topic, place.partition, place.topic_id)
        return self

    def has(self, topic: KafkaTopic, name: str) -> bool:
        return self.cursors.state.has(_key(topic, name))

    def names(self, topic: KafkaTopic) -> Collection[str]:
        return self.cursors.known(topic.place.topic, topic.place.partition).keys()

    async def open(self, topic: KafkaTopic, name: str, *, refreshed: bool) -> OpenedCursor | None:
        """As `Cursors.open`. A cursor that does not fit its log begins as `load` says."""
        key, slot = _key(topic, name), self.cursors.slot(topic.place.topic, topic.place.partition)
        try:
            if key not in self.cursors.load(slot):
                return None
            if not refreshed:
                await topic.refresh()
            end = topic.next_offset if topic.cut_at is None else min(topic.next_offset, topic.cut_at)
            found = await self.load(key, topic.place.topic_id, min(topic.first_offset, end), end)
        except Replaced:
            raise Moved(topic.name) from None
        if found is None:
            return None
        cursor, document = found
        return OpenedCursor(
            cursor, {} if document is None else msgspec.json.decode(document, type=dict[str, str])
        )

    async def create(self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str]) -> None:
        document = msgspec.json.encode(properties) if properties else None
        check_properties(document)
        place = topic.place
        record = CursorRecord(place.topic, place.partition, name, place.topic_id, mark, properties=document)
        try:
            await self.cursors.save((record,))
        except Replaced:
            raise Moved(topic.name) from None


def _key(topic: KafkaTopic, name: str) -> CursorKey:
    return CursorKey(topic.place.topic, topic.place.partition, name)
