"""The positions of a log of this server: entries are dense, their points are stored with the log, and nothing trims it
without saying so.

The points are kept in documents of the broker's store, each of many points. A full document never changes;
the points after the last one are found again by reading. `floor` is the point that the last trim left the log with:
earlier entries can no longer be read.
"""

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from penstock.broker.topic import MetaStore, Topic
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .blocks import Blocks
from .positions import READ_BYTES, LogPositions, Point, Stored, TrimmedError

log = logging.getLogger(__name__)

_FLOOR: Final = "floor"
_POINT: Final = struct.Struct(">QQ")


class PositionDocuments:
    """The documents of one log. A separate kind, as a store loads all documents of a kind."""

    def __init__(self, store: MetaStore, ledger: int) -> None:
        self._store = store
        self._kind = f"positions-{ledger}"
        self._lasts: dict[str, int] = {}  # the last entry that of each document

    async def load(self) -> list[Point]:
        """Every point kept, in order."""
        points: set[Point] = set()
        for key, document in (await self._store.load_meta(self._kind)).items():
            read = [Point(*pair) for pair in _POINT.iter_unpack(document)]
            points.update(read)
            if key != _FLOOR and read:
                self._lasts[key] = read[-1].entry_id
        return sorted(points)

    async def keep(self, points: Sequence[Point]) -> None:
        """Store a document; raises what the store raises."""
        key = f"{points[0].entry_id:020}"
        await self._store.save_meta([(self._kind, key, self._packed(points))])
        self._lasts[key] = points[-1].entry_id

    async def keep_floor(self, floor: Point, first_entry: int) -> None:
        """Store the point before a trim; entries before `first_entry` are about to be deleted.

        Completes when it is durable; raises what the store raises.
        """
        gone = [key for key, last in self._lasts.items() if last < first_entry]
        await self._store.save_meta(
            [(self._kind, _FLOOR, self._packed([floor])), *((self._kind, key, None) for key in gone)]
        )
        for key in gone:
            del self._lasts[key]

    async def clear(self) -> None:
        """Forget everything."""
        keys = await self._store.load_meta(self._kind)
        await self._store.save_meta([(self._kind, key, None) for key in keys])
        self._lasts.clear()

    @staticmethod
    def _packed(points: Sequence[Point]) -> bytes:
        return b"".join(_POINT.pack(*point) for point in points)


class LocalPositions(LogPositions):
    """The positions of a log in this process."""

    def __init__(self, topic: Topic, blocks: Blocks) -> None:
        super().__init__(topic, blocks, topic.ledger)
        assert topic.documents is not None, "the broker has no journals"
        self._documents = PositionDocuments(topic.documents, topic.ledger)
        self._loaded = False

    async def extend(self) -> int:
        async with self._lock:
            await self._follow_trim()
            if self._head.entry_id < self.topic.bounds.next_entry:
                await self._read_on(self.topic.bounds.next_entry)
            return self._head.position

    async def place(self, ids: Sequence[MessageId], size_bytes: int) -> Stored | None:
        size = await self.extend()
        start, end = await self.position_of(ids[0].entry), await self.position_of(ids[-1].entry + 1)
        return Stored(start, end, size)

    # -- events of the topic

    async def before_trim(self, before_entry: int) -> None:
        """Read entries that are about to be deleted, and durably store the future start of the log."""
        await self.extend()
        async with self._lock:
            try:
                floor = Point(before_entry, await self.position_of(before_entry))
            except TrimmedError:
                if before_entry > self.topic.bounds.first_entry:
                    raise
                return  # another trim went further
            at = bisect_left(self._entries, before_entry)
            if at == len(self._entries) or self._entries[at] != before_entry:
                self._entries.insert(at, floor.entry_id)
                self._positions.insert(at, floor.position)
            await self._documents.keep_floor(floor, self.topic.bounds.first_entry)

    async def forget(self) -> None:
        """The log was deleted."""
        await self._documents.clear()

    # -- the index

    async def _load(self) -> None:
        points = await self._documents.load()
        if not points or (self.topic.bounds.first_entry == 0 and points[0].entry_id > 0):
            points.insert(0, Point(0, 0))
        self._entries = array("Q", [point.entry_id for point in points])
        self._positions = array("Q", [point.position for point in points])
        self._head = points[-1]
        self._loaded = True

    async def _follow_trim(self) -> None:
        """Drop the points of deleted entries, so that the first is the first entry's."""
        if not self._loaded:
            await self._load()
        first = self.topic.bounds.first_entry
        if self._entries[0] == first:
            return
        at = bisect_left(self._entries, first)
        if at == len(self._entries) or self._entries[at] != first:
            # The log was trimmed by other means. The nearest known position is the last seen one.
            position = self._positions[max(0, at - 1)]
            if at < len(self._entries):
                position = self._positions[at] - await self._measure(first, self._entries[at])
            else:
                log.warning("positions begin anew", extra={"topic": str(self.topic.name), "entry": first})
            self._entries.insert(at, first)
            self._positions.insert(at, position)
            self._head = max(self._head, Point(first, position))
        del self._entries[:at]
        del self._positions[:at]

    async def _save(self) -> None:
        points, self._unsaved = self._unsaved, []
        try:
            await self._documents.keep(points)
        except PenstockError as error:  # they are found again by reading
            log.warning("positions not kept: %s", error.message, extra={"topic": str(self.topic.name)})

    # -- entries

    async def _read(self, entry_id: int, until: int) -> Sequence[Entry]:
        entries = await self.topic.read(entry_id, self._at_once(entry_id, until), READ_BYTES)
        if self.topic.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.topic.name} was deleted")
        if not entries or entries[0].entry_id != entry_id:
            raise TrimmedError
        return entries

    def _after(self, entry: Entry) -> int:
        return entry.entry_id + 1
