"""The positions of a log of a cluster: the same in every process, also after trims (docs/kafka-rest.md).

A log's entries are found by their offsets, which rise and may skip. Positions are counted from the start of the log at the
first request, by reading it. Counted positions are stored as checkpoints (`checkpoints`), and no position is answered that
lies STEP_BYTES or more beyond the last one. So if uncounted messages were trimmed, positions go on
STEP_BYTES beyond the last checkpoint, and none ever names two messages.
"""

import asyncio
import logging
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

from penstock.broker.journal import Journal, JournalLostError
from penstock.broker.topic import Topic
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

from .blocks import Blocks
from .checkpoints import Checkpoint, Checkpoints, Seen
from .positions import BLOCK_BYTES, READ_BYTES, LogPositions, Point, Stored, TrimmedError

log = logging.getLogger(__name__)

STEP_BYTES: Final = 4 * 1024 * 1024
POINTS_MAX: Final = (
    65_536  # 16 bytes each; beyond, every other one is dropped, and points lie twice as far apart
)
ENTRY_MESSAGES: Final = 16  # offsets count messages: so many are taken for as far as one entry
JOURNAL_MS: Final = 10_000  # poll interval for checkpoints of other processes
COUNTING_S: Final = 20.0  # a log that is long and new is counted by several requests
# To find the position of a message just stored, so much of the log is read; farther behind it is not tried.
PLACING_BYTES: Final = 1024 * 1024
PLACING_MESSAGES: Final = 4096
PLACING_MS: Final = 2000.0
LOSSES_MAX: Final = 2  # of a journal, in one request
PLACED_MAX: Final = 1024  # entries that were read last, whose places are remembered

_KEYS = count(1)  # below zero they are of no ledger


class SharedPositions(LogPositions):
    """The positions of one log, and its bytes."""

    def __init__(self, topic: Topic, blocks: Blocks, open_journal: Callable[[], Journal]) -> None:
        super().__init__(topic, blocks, -next(_KEYS))
        self._open_journal = open_journal
        self._checkpoints = Checkpoints(open_journal(), str(topic.name))
        self._loaded = False
        self._looked_ms = 0
        self._kept = Point(0, 0)  # the last one of the checkpoints
        self._seen: Seen | None = None  # the entry that ends at the head
        self._placed: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()

    async def extend(self) -> int:
        """As `LogPositions.extend`. Raises UNAVAILABLE if the log is too long to be counted at once."""
        try:
            async with asyncio.timeout(COUNTING_S), self._lock:
                await self._extend()
                return self._head.position
        except TimeoutError:
            raise PenstockError(
                ErrorKind.UNAVAILABLE,
                f"the bytes of {self.topic.name} are being counted, {self._head.entry_id} of"
                f" {self.topic.bounds.next_entry} offsets so far: ask again, it goes on from there",
            ) from None

    async def place(self, ids: Sequence[MessageId], size_bytes: int) -> Stored | None:
        async with self._lock:
            await self._extend(0)
            if self.topic.bounds.next_entry - self._head.entry_id > PLACING_MESSAGES:
                return None
            first, last = ((one.ledger, one.entry) for one in (ids[0], ids[-1]))
            until = self._head.position + PLACING_BYTES
            while last not in self._placed and self._head.position < until:
                reach = self._reach
                if self.topic.bounds.next_entry <= reach and not await self.topic.grown(reach, PLACING_MS):
                    break
                await self._extend(self._head.position + 1)
            start, end = self._placed.get(first), self._placed.get(last)
            if start is None or end is None or end[1] - start[0] != size_bytes:
                return None  # it is further on, or messages of others lie between
            return Stored(start[0], end[1], self._head.position)

    async def keep(self) -> None:
        """Write a checkpoint of the positions counted since the last one, if any."""
        async with self._lock:
            if self._loaded and self._head > self._kept:
                await self._learn()
                if self._head > self._kept:
                    await self._save()

    # -- the log as it is now

    @property
    def _reach(self) -> int:
        """The offset up to which the log is known: beyond the head if it ends with offsets without messages."""
        return self.topic.gap_end(self._head.entry_id)

    async def _extend(self, until: int | None = None) -> None:
        """Count on, up to the log's end, or until the head is at the position `until`, which may be answered then."""
        losses = 0
        while True:
            try:
                await self._prepare()
                while self._reach < self.topic.bounds.next_entry:
                    head, reach = self._head, self._reach
                    if until is not None and head.position >= until:
                        break
                    await self._read_on(self.topic.bounds.next_entry if until is None else reach + 1)
                    if (self._head, self._reach) == (head, reach):
                        raise PenstockError(
                            ErrorKind.UNAVAILABLE,
                            f"{self.topic.name} brings nothing at offset {head.entry_id}",
                        )
                while self._head.position - self._kept.position >= STEP_BYTES:
                    await self._save()
                return
            except _MovedError:
                continue
            except JournalLostError:
                losses += 1
                self._read_journal_again(losses)

    def _read_journal_again(self, losses: int) -> None:
        name = str(self.topic.name)
        if losses > LOSSES_MAX:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"the checkpoints of {name} cannot be read") from None
        log.warning("checkpoints are lost: what is there is read again", extra={"topic": name})
        self._checkpoints = Checkpoints(self._open_journal(), name)
        self._loaded = False

    async def _prepare(self) -> None:
        """Let the index begin at the start of the log."""
        if not self._loaded:
            await self._load()
        elif self.topic.clock.monotonic_ms() - self._looked_ms >= JOURNAL_MS:
            await self._learn()
        if self._head.entry_id > self.topic.bounds.next_entry:
            await self.topic.refresh()
            bounds = self.topic.bounds
            if bounds.first_entry < bounds.next_entry < self._head.entry_id:
                await self._load()  # it is another log
        bounds = self.topic.bounds
        first = bounds.first_entry
        if first == bounds.next_entry:
            first = max(first, self._head.entry_id)  # an empty log may not know its end
        if first > self._head.entry_id:
            # The size of the trimmed part is unknown.
            await self._decide(Point(first, self._kept.position + STEP_BYTES), steps=True)
        elif first > self._entries[0]:
            await self._trim(first)

    async def _trim(self, first: int) -> None:
        """Drop the points of deleted entries, so that the first is the first entry's."""
        at = bisect_left(self._entries, first)
        if at < len(self._entries) and self._entries[at] == first:
            position = self._positions[at]
        else:
            known = self._head
            if at < len(self._entries):
                known = Point(self._entries[at], self._positions[at])
            position = known.position - await self._measure(first, known.entry_id)
            at = bisect_left(self._entries, first)
            self._entries.insert(at, first)
            self._positions.insert(at, position)
        del self._entries[:at]
        del self._positions[:at]

    # -- what all processes know

    async def _load(self) -> None:
        """Read the checkpoints; a log without any begins with its first message."""
        await self._learn()
        await self.topic.refresh()  # after the checkpoints: none of them is of what comes later
        if self._checkpoints.number and not await self._is_same():
            log.warning(
                "a topic was made anew: its positions begin again", extra={"topic": str(self.topic.name)}
            )
            await self._decide(Point(self.topic.bounds.first_entry, 0), anew=True)
        while not self._checkpoints.number:
            await self._decide(Point(self.topic.bounds.first_entry, 0), anew=True)
        self._loaded = True

    async def _is_same(self) -> bool:
        """Whether the log is the one that the last checkpoint is of."""
        at, topic = self._kept.entry_id, self.topic
        await topic.read(topic.bounds.first_entry, 1, READ_BYTES)  # recent trims are noticed by reading
        bounds = topic.bounds
        if bounds.first_entry == bounds.next_entry:
            return True  # while empty, it may be trimmed, and not know its end
        if at > bounds.next_entry:
            return False
        if bounds.first_entry >= at:
            return True  # as far as can be known: what the checkpoint saw is gone
        if self._seen is None:
            return False  # the log began there
        found = await topic.read(at - 1, 1, READ_BYTES)
        return bool(found) and found[0].end == at and _seen(found[0]) == self._seen

    async def _learn(self) -> None:
        """Apply new checkpoints. Raises _MovedError if the head changed."""
        before = self._head
        for one in await self._checkpoints.read_on():
            self._follow(one)
        self._looked_ms = self.topic.clock.monotonic_ms()
        if self._loaded and self._head != before:
            raise _MovedError

    def _follow(self, checkpoint: Checkpoint) -> None:
        points = [Point(*pair) for pair in checkpoint.points]
        last = points[-1]
        if checkpoint.anew or checkpoint.steps:
            # What this process has counted beyond the last checkpoint is counted otherwise now.
            at = 0 if checkpoint.anew else bisect_left(self._entries, self._kept.entry_id + 1)
            del self._entries[at:], self._positions[at:]
            self._unsaved.clear()
            self._placed.clear()
            self.key = -next(_KEYS)
        else:
            points = [point for point in points if point > self._head]
            self._unsaved = [point for point in self._unsaved if point > last]
        for point in points:
            self._add(point)
        if points:
            self._head = last
            self._seen = checkpoint.last
        self._kept = last
        if len(self._entries) > POINTS_MAX:
            del self._entries[1:-1:2], self._positions[1:-1:2]

    def _add(self, point: Point) -> None:
        """Add a point behind the others, in place of the last one if that is near."""
        if len(self._entries) > 1:
            near = point.position - self._positions[-2] < BLOCK_BYTES
            if near and not self._is_far(self._entries[-2], point.entry_id):
                del self._entries[-1], self._positions[-1]
        self._entries.append(point.entry_id)
        self._positions.append(point.position)

    async def _save(self) -> None:
        points = [(*point,) for point in self._unsaved if point < self._head]
        await self._propose([*points, (*self._head,)], self._seen)

    async def _decide(self, point: Point, *, steps: bool = False, anew: bool = False) -> None:
        """Propose the position to continue at; this proposal counts, or that of another process."""
        await self._learn()
        await self._propose([(*point,)], steps=steps, anew=anew)

    async def _propose(
        self,
        points: list[tuple[int, int]],
        seen: Seen | None = None,
        *,
        steps: bool = False,
        anew: bool = False,
    ) -> None:
        number = self._checkpoints.number
        await self._checkpoints.propose(Checkpoint(number, points, seen, steps, anew))
        await self._learn()
        if self._checkpoints.number == number:
            raise JournalLostError  # one of that number has to be there now

    # -- entries

    def _is_far(self, since: int, entry_id: int) -> bool:
        return super()._is_far(since // ENTRY_MESSAGES, entry_id // ENTRY_MESSAGES)

    def _counted(self, entry: Entry, start: int) -> None:
        self._seen = _seen(entry)
        self._placed[entry.ledger, entry.entry_id] = start, self._head.position
        if len(self._placed) > PLACED_MAX:
            self._placed.popitem(last=False)

    async def _read(self, entry_id: int, until: int) -> Sequence[Entry]:
        entries = await self.topic.read(entry_id, self._at_once(entry_id, until), READ_BYTES)
        if self.topic.deleted:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{self.topic.name} was deleted")
        # An offset may be no message's: of a marker of the cluster's, or of one that was compacted away.
        if self.topic.bounds.first_entry > entry_id or not (
            entries or self.topic.gap_end(entry_id) > entry_id
        ):
            raise TrimmedError
        found: list[Entry] = []
        for entry in entries:
            if entry_id <= entry.offset < until:
                found.append(entry)
                entry_id = entry.end
        return found

    def _after(self, entry: Entry) -> int:
        return entry.end


class _MovedError(TrimmedError):
    """Another process counted on, or decided: the head is another one."""


def _seen(entry: Entry) -> Seen:
    return Seen(entry.ledger, entry.entry_id, entry.publish_time)
