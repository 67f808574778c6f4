"""Positions: the start of each message in the log's bytes (docs/kafka-rest.md).

A position counts the bytes of all frames since the log's very first message. It is the same whatever was
trimmed, restarted or added, so it cannot be computed from the present log: points along the log are
kept, one about every 256 KiB, and what lies between two of them is read again when it is asked for. The index
grows when a client asks and before entries are trimmed, by reading new entries; it costs a publisher nothing.

The engine decides how points are stored: with its own log (`local_positions`), or in a journal that all processes before a
cluster share (`shared_positions`).
"""

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.model.message_id import MessageId
from penstock.wire.payloads import LazyEntry

from .blocks import Block, Blocks
from .framing import HEAD_BYTES

# How far points are apart: what one look-up may have to decode.
BLOCK_BYTES: Final = 256 * 1024
BLOCK_ENTRIES: Final = 1024
POINTS_PER_DOCUMENT: Final = 256  # of 256 KiB each: a restart reads at most the last 64 MiB again

READ_BYTES: Final = 256 * 1024  # decoded at one go on the loop: a few milliseconds at most
_UNFOLDS_INLINE: Final = 1024 * 1024  # what decompresses to more is worked on in a thread


class TrimmedError(Exception):
    """Entries were deleted while they were read; a second attempt finds the rest."""


class Point(NamedTuple):
    """An entry, as its log numbers it (`Log.read`), and the position at which its first message begins."""

    entry_id: int
    position: int


class Stored(NamedTuple):
    """The range of published messages, from one position to before another, and the log's size."""

    start: int
    end: int
    size: int


class LogPositions:
    """The positions of one log, and its bytes. `key` is its alone among all logs of this process."""

    def __init__(self, topic: Topic, blocks: Blocks, key: int) -> None:
        self.topic = topic
        self.key = key
        self._blocks = blocks
        self._lock = asyncio.Lock()
        # Points in order, the first at the first entry there is; the head is how far the log is known.
        self._entries = array("Q")
        self._positions = array("Q")
        self._head = Point(0, 0)
        self._unsaved: list[Point] = []

    @property
    def first(self) -> int:
        """The start of the first existing message."""
        return self._positions[0]

    async def extend(self) -> int:
        """Get to know the log up to its present end; returns that position. Raises TrimmedError."""
        raise NotImplementedError

    async def place(self, ids: Sequence[MessageId], size_bytes: int) -> Stored | None:
        """The range of messages just stored, whose frames have `size_bytes`; None if that is not known cheaply.
        Raises TrimmedError."""
        raise NotImplementedError

    async def boundary(self, at: int) -> int:
        """The start of the first message at or after `at`; the head's position without one. O(log n)."""
        if at <= self.first:
            return self.first
        if at >= self._head.position:
            return self._head.position
        return (await self._block_at(at)).boundary(at)

    async def before(self, at: int) -> int:
        """The start of the last message before `at`, which is beyond the first position."""
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
        """The start of an entry that the index reaches."""
        if entry_id >= self._head.entry_id:
            return self._head.position
        at = bisect_right(self._entries, entry_id) - 1
        if at < 0:
            raise TrimmedError
        entry, position = self._entries[at], self._positions[at]
        return position + await self._measure(entry, entry_id)

    # -- the index

    async def _read_on(self, until: int) -> None:
        async for entry, after, payloads in self._payloads(self._head.entry_id, until):
            start = self._head.position
            position = start + sum(map(len, payloads)) + HEAD_BYTES * len(payloads)
            self._head = Point(after, position)
            self._counted(entry, start)
            if self._is_far(self._entries[-1], after) or position - self._positions[-1] >= BLOCK_BYTES:
                self._entries.append(after)
                self._positions.append(position)
                self._unsaved.append(self._head)
                if len(self._unsaved) >= POINTS_PER_DOCUMENT:
                    await self._save()

    def _is_far(self, since: int, entry_id: int) -> bool:
        """Whether there are many entries between two."""
        return entry_id - since >= BLOCK_ENTRIES

    def _counted(self, entry: Entry, start: int) -> None:
        """The head went over an entry that begins at a position."""

    async def _save(self) -> None:
        """Keep the points that are not kept yet."""
        raise NotImplementedError

    # -- the bytes

    async def _block_at(self, at: int) -> Block:
        """The block that holds the byte at a position, which must be below the head's."""
        index = bisect_right(self._positions, at) - 1
        if index < 0:
            raise TrimmedError
        entry_id, position = self._entries[index], self._positions[index]
        known = (
            Point(self._entries[index + 1], self._positions[index + 1])
            if index + 1 < len(self._entries)
            else self._head
        )
        until = known.entry_id
        block = self._blocks.get(self.key, entry_id)
        if block is not None and block.until_entry >= until:  # beyond: a trim put a point into it
            return block
        if block is None:
            block = Block(entry_id, entry_id, position, b"", array("Q"))
        more = [p async for _, _, payloads in self._payloads(block.until_entry, until) for p in payloads]
        block = block.grown(until, more)
        if block.end < known.position:
            raise TrimmedError  # messages within it are gone, by compaction
        self._blocks.put(self.key, block)
        return block

    async def _measure(self, entry_id: int, until: int) -> int:
        size = 0
        async for _, _, payloads in self._payloads(entry_id, until):
            size += sum(map(len, payloads)) + HEAD_BYTES * len(payloads)
        return size

    async def _payloads(self, entry_id: int, until: int) -> AsyncIterator[tuple[Entry, int, list[bytes]]]:
        """Each entry, the number after it, and its payloads. The loop gets its turn between reads."""
        while entry_id < until:
            entries = await self._read(entry_id, until)
            if not entries:
                return
            for entry in entries:
                parcel = LazyEntry(entry.data)
                entry_id = self._after(entry)
                if parcel.unfolds_to > _UNFOLDS_INLINE:
                    yield entry, entry_id, await asyncio.to_thread(parcel.payloads)
                else:
                    yield entry, entry_id, parcel.payloads()
            await asyncio.sleep(0)

    def _at_once(self, entry_id: int, until: int) -> int:
        """How many entries are read at one go."""
        return min(until - entry_id, BLOCK_ENTRIES)

    async def _read(self, entry_id: int, until: int) -> Sequence[Entry]:
        """Some entries from one on, only those before `until`; empty at the end. Raises TrimmedError."""
        raise NotImplementedError

    def _after(self, entry: Entry) -> int:
        """The number that follows an entry."""
        raise NotImplementedError
