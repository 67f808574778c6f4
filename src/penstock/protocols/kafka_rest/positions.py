"""Positions: where each message of a log begins in the log's bytes (docs/kafka-rest.md).

A position counts the bytes of all frames since the log's very first message. It is the same whatever was
trimmed, restarted or added beside it, so it cannot be computed from what is there: points along the log are
kept, one about every 256 KiB, and what lies between two of them is read again when it is asked for. The index
grows when a scraper asks and before entries are trimmed, by reading what is new; it costs a publisher nothing.

The points of a log are kept in documents of the broker's store, each of many points. A full document never changes;
the points after the last one are found again by reading. `floor` is the point that the last trim left the log with:
what is before it can be read no more.
"""

import asyncio
import logging
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from penstock.broker.topic import MetaStore, Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.payloads import LazyEntry

from .blocks import Block, Blocks
from .framing import HEAD_BYTES

log = logging.getLogger(__name__)

# How far points are apart: what one look-up may have to decode.
BLOCK_BYTES: Final = 256 * 1024
BLOCK_ENTRIES: Final = 1024
POINTS_PER_DOCUMENT: Final = 256  # of 256 KiB each: a restart reads at most the last 64 MiB again

_READ_BYTES: Final = 256 * 1024  # decoded at one go on the loop: a few milliseconds at most
_UNFOLDS_INLINE: Final = 1024 * 1024  # what decompresses to more is worked on in a thread
_FLOOR: Final = "floor"
_POINT: Final = struct.Struct(">QQ")


class TrimmedError(Exception):
    """Entries went while they were being read; asking again finds what is left."""


class Point(NamedTuple):
    """An entry, and the position at which its first message begins."""

    entry_id: int
    position: int


class PositionDocuments:
    """The documents of one log. A kind of their own, as a store loads all documents of a kind."""

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
        """Store the point that a trim is about to leave; what is only of entries before `first_entry` may go.

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


class LogPositions:
    """The positions of one log, and its bytes."""

    def __init__(self, topic: Topic, blocks: Blocks) -> None:
        self.topic = topic
        self._blocks = blocks
        self._documents = PositionDocuments(topic.documents, topic.ledger)
        self._lock = asyncio.Lock()
        self._loaded = False
        # Points in order, the first at the first entry there is; the head is how far the log is known.
        self._entries = array("Q")
        self._positions = array("Q")
        self._head = Point(0, 0)
        self._unsaved: list[Point] = []

    @property
    def first(self) -> int:
        """Where the first message that is still there begins."""
        return self._positions[0]

    async def extend(self) -> int:
        """Get to know the log up to its present end; returns that position. Raises TrimmedError."""
        async with self._lock:
            await self._follow_trim()
            if self._head.entry_id < self.topic.next_entry:
                await self._read_on(self.topic.next_entry)
            return self._head.position

    async def boundary(self, at: int) -> int:
        """Where the first message begins at or after `at`: the head's position where none does. O(log n)."""
        if at <= self.first:
            return self.first
        if at >= self._head.position:
            return self._head.position
        return (await self._block_at(at)).boundary(at)

    async def before(self, at: int) -> int:
        """Where the last message begins before `at`, which is beyond the first position."""
        block = await self._block_at(at - 1)
        return block.starts[bisect_left(block.starts, at) - 1]

    async def frames(self, start: int, end: int) -> bytes:
        """The bytes between two boundaries."""
        parts: list[bytes] = []
        while start < end:
            block = await self._block_at(start)
            parts.append(block.cut(start, end))
            start = block.end
        return b"".join(parts)

    async def position_of(self, entry_id: int) -> int:
        """Where an entry begins that the index reaches."""
        if entry_id >= self._head.entry_id:
            return self._head.position
        at = bisect_right(self._entries, entry_id) - 1
        if at < 0:
            raise TrimmedError
        entry, position = self._entries[at], self._positions[at]
        return position + await self._measure(entry, entry_id)

    # -- events of the topic

    async def before_trim(self, before_entry: int) -> None:
        """See what is about to go, and keep durably where the log will begin."""
        await self.extend()
        async with self._lock:
            try:
                floor = Point(before_entry, await self.position_of(before_entry))
            except TrimmedError:
                if before_entry > self.topic.first_entry:
                    raise
                return  # another trim went further meanwhile
            at = bisect_left(self._entries, before_entry)
            if at == len(self._entries) or self._entries[at] != before_entry:
                self._entries.insert(at, floor.entry_id)
                self._positions.insert(at, floor.position)
            await self._documents.keep_floor(floor, self.topic.first_entry)

    async def forget(self) -> None:
        """The log was deleted."""
        await self._documents.clear()

    # -- the index

    async def _load(self) -> None:
        points = await self._documents.load()
        if not points or (self.topic.first_entry == 0 and points[0].entry_id > 0):
            points.insert(0, Point(0, 0))
        self._entries = array("Q", [point.entry_id for point in points])
        self._positions = array("Q", [point.position for point in points])
        self._head = points[-1]
        self._loaded = True

    async def _follow_trim(self) -> None:
        """Drop the points of what is gone, so that the first is the first entry's."""
        if not self._loaded:
            await self._load()
        first = self.topic.first_entry
        if self._entries[0] == first:
            return
        at = bisect_left(self._entries, first)
        if at == len(self._entries) or self._entries[at] != first:
            # Something else than this server trimmed. The nearest position known is where it was last seen.
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

    async def _read_on(self, until: int) -> None:
        async for entry_id, payloads in self._payloads(self._head.entry_id, until):
            position = self._head.position + sum(map(len, payloads)) + HEAD_BYTES * len(payloads)
            self._head = Point(entry_id + 1, position)
            far = self._head.entry_id - self._entries[-1] >= BLOCK_ENTRIES
            if far or position - self._positions[-1] >= BLOCK_BYTES:
                self._entries.append(self._head.entry_id)
                self._positions.append(position)
                self._unsaved.append(self._head)
                if len(self._unsaved) >= POINTS_PER_DOCUMENT:
                    await self._save()

    async def _save(self) -> None:
        points, self._unsaved = self._unsaved, []
        try:
            await self._documents.keep(points)
        except PenstockError as error:  # they are found again by reading
            log.warning("positions not kept: %s", error.message, extra={"topic": str(self.topic.name)})

    # -- the bytes

    async def _block_at(self, at: int) -> Block:
        """The block that holds the byte at a position, which must be below the head's."""
        index = bisect_right(self._positions, at) - 1
        if index < 0:
            raise TrimmedError
        entry_id, position = self._entries[index], self._positions[index]
        until = self._entries[index + 1] if index + 1 < len(self._entries) else self._head.entry_id
        block = self._blocks.get(self.topic.ledger, entry_id)
        if block is not None and block.until_entry >= until:  # beyond: a trim put a point into it
            return block
        if block is None:
            block = Block(entry_id, entry_id, position, b"", array("Q"))
        more = [p async for _, payloads in self._payloads(block.until_entry, until) for p in payloads]
        block = block.grown(until, more)
        self._blocks.put(self.topic.ledger, block)
        return block

    async def _measure(self, entry_id: int, until: int) -> int:
        size = 0
        async for _, payloads in self._payloads(entry_id, until):
            size += sum(map(len, payloads)) + HEAD_BYTES * len(payloads)
        return size

    async def _payloads(self, entry_id: int, until: int) -> AsyncIterator[tuple[int, list[bytes]]]:
        """The payloads of each entry. The loop gets its turn between reads."""
        while entry_id < until:
            entries = await self.topic.read(entry_id, min(until - entry_id, BLOCK_ENTRIES), _READ_BYTES)
            if self.topic.deleted:
                raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.topic.name} was deleted")
            if not entries or entries[0].entry_id != entry_id:
                raise TrimmedError
            for entry in entries:
                parcel = LazyEntry(entry.data)
                if parcel.unfolds_to > _UNFOLDS_INLINE:
                    yield entry.entry_id, await asyncio.to_thread(parcel.payloads)
                else:
                    yield entry.entry_id, parcel.payloads()
            entry_id += len(entries)
            await asyncio.sleep(0)
