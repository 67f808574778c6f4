"""The journal of cursors as a port of the core: `Cursors` of the topics that this process has open."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from penstock.engines.attached.link import Moved
from penstock.engines.core.ports import OpenedCursor
from penstock.engines.kafka.naming import Place
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.store import CursorChange, CursorWriter
from penstock.model.errors import ErrorKind, PenstockError

from .cursors import Cursors
from .state import CursorKey, CursorRecord, Replaced, StoredCursor, check_properties, deletion_of

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


def _log_misfit(key: CursorKey, misfit: Misfit, stored: int, begins_at: int) -> None:
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


class JournalCursors:
    """`core.ports.Cursors`, and `CursorWriter` of topics while their subscriptions are served here. A topic whose slot another process
    owns raises `Moved`."""

    def __init__(self, cursors: Cursors) -> None:
        self.misfits: Counter[Misfit] = Counter()  # cursors that did not fit their logs, since the start
        self._cursors = cursors
        self._places: dict[int, Place] = {}  # by ledger

    def writer(self, topic: KafkaTopic) -> CursorWriter:
        self._places[topic.ledger] = topic.place
        return self

    def unbind(self, ledger: int) -> None:
        """The subscriptions of a topic are not served here any more."""
        self._places.pop(ledger, None)

    def has(self, topic: KafkaTopic, name: str) -> bool:
        return self._cursors.state.has(_key(topic.place, name))

    def names(self, topic: KafkaTopic) -> Collection[str]:
        return self._cursors.known(topic.place.topic, topic.place.partition).keys()

    async def open(self, topic: KafkaTopic, name: str, *, refreshed: bool) -> OpenedCursor | None:
        """As `Cursors.open`.

        A cursor that does not fit the log begins at the earliest place at which no message is missed, which is saved, logged
        and counted. Raises as `Cursors.load` and `Cursors.save`.
        """
        place, key = topic.place, _key(topic.place, name)
        slot = self._cursors.slot(place.topic, place.partition)
        try:
            if key not in self._cursors.load(slot):
                return None
            if not refreshed:
                await topic.refresh()
            end = topic.next_offset if topic.cut_at is None else min(topic.next_offset, topic.cut_at)
            stored = self._cursors.load(slot).get(key)
            if stored is None:
                return None
            cursor, misfit = fitted(stored, place.topic_id, min(topic.first_offset, end), end)
            if misfit is not None:
                self.misfits[misfit] += 1
                _log_misfit(key, misfit, stored.mark, cursor.mark)
                # Now: once the log has grown, the stored cursor would seem to fit. What it has beyond the mark goes, too.
                cursor.touch({**stored.chunks})
                await self._cursors.save((_record(place, name, cursor.mark, cursor.take_changes()),))
        except Replaced:
            raise Moved(topic.name) from None
        return OpenedCursor(cursor, msgspec.json.decode(stored.properties or b"{}", type=dict[str, str]))

    async def create(self, topic: KafkaTopic, name: str, mark: int, properties: Mapping[str, str]) -> None:
        document = msgspec.json.encode(properties) if properties else None
        check_properties(document)
        try:
            await self._cursors.save((_record(topic.place, name, mark, {}, document),))
        except Replaced:
            raise Moved(topic.name) from None

    # -- while subscriptions are served

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        """As `CursorWriter`, but if it fails a part of the changes may be stored: saving them again is harmless. Raises
        Replaced if another process owns one of the logs, UNAVAILABLE if the outcome is unknown."""
        await self._cursors.save(
            [
                _record(self._place(one.ledger), one.subscription, one.mark, one.chunks, one.properties)
                for one in changes
            ]
        )

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        """As `CursorWriter`; raises as `save_cursors`."""
        place = self._place(ledger)
        await self._cursors.save((deletion_of(_key(place, subscription), place.topic_id),))

    def _place(self, ledger: int) -> Place:
        found = self._places.get(ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"ledger {ledger} is not served here")
        return found


def _key(place: Place, subscription: str) -> CursorKey:
    return CursorKey(place.topic, place.partition, subscription)


def _record(
    place: Place,
    subscription: str,
    mark: int,
    chunks: Mapping[int, bytes | None],
    properties: bytes | None = None,
) -> CursorRecord:
    return CursorRecord(
        place.topic, place.partition, subscription, place.topic_id, mark, dict(chunks), properties
    )
