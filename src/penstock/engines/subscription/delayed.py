"""Delayed messages: the entries due first with their delivery times, and one bit for each further message.

Up to `HELD_MAX` entries are held in a heap by time. Every further message is one bit, in chunks of offsets as in a cursor;
a chunk keeps its earliest time, and the log has the others. When few entries are held, chunks are read from the log again,
those due first.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from penstock.broker.delivery import Budget
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Timer
from penstock.runtime.tasks import Tasks

from .offsets import CHUNK, OffsetSet
from .pending import Slice
from .reading import ReadFailures
from .receiver import SubscribedLog

HELD_MAX: Final = 50_000  # entries held with their times: 64 bytes each
RELEASE_MAX: Final = 1024  # entries released at a time
READ_ENTRIES: Final = 500  # entries read from the log before yielding to the loop
RETRY_MS: Final = 1000  # after a failed read of the log
TIMER_MAX_MS: Final = 60_000  # the wall clock may be changed while a timer runs
NEVER: Final = 1 << 64  # later than any delivery time

_FULL: Final = (1 << CHUNK) - 1


class DelayedMessages:
    """The delayed messages of one subscription. `due` is called when some may be due."""

    def __init__(
        self,
        topic: SubscribedLog,
        cursor: OffsetSet,
        tasks: Tasks,
        due: Callable[[], None],
        failures: ReadFailures,
    ) -> None:
        self.messages = 0  # includes messages acknowledged before they are due, until then
        self.ready = False  # whether `release` has work
        self._topic = topic
        self._cursor = cursor
        self._tasks = tasks
        self._due = due
        self._failures = failures
        self._held: list[int] = []  # a heap of `_packed`
        # The waiting messages of held entries, by offset, if not all messages of the entry wait.
        self._parts: dict[int, int] = {}
        self._deferred: dict[int, int] = {}  # bits of messages that are not held, by chunk of offsets
        self._earliest: dict[int, int] = {}  # by chunk: none of its messages is due before this time
        self._limit = NEVER  # messages due from this time on are not held
        self._loading = False
        self._incomplete = False  # whether a message that is not held may be due before one that is held
        self._epoch = 0  # a seek starts another; work of earlier ones is dropped
        self._timer: Timer | None = None
        self._timer_at = NEVER

    # -- adding

    def add(self, entry: Entry, mask: int) -> None:
        """Delay the messages in `mask` of an entry until its delivery time."""
        self.messages += mask.bit_count()
        self._keep(entry, mask)
        self._arm()

    def add_run(self, entries: Sequence[Entry]) -> None:
        """Delay all messages of consecutive entries."""
        self.messages += entries[-1].end - entries[0].offset
        for late, run in groupby(entries, lambda entry: entry.deliver_at >= self._limit):
            if not late:
                for entry in run:
                    self._keep(entry, (1 << entry.count) - 1)
                continue
            some = list(run)
            first = some[0].offset
            self._defer(min([entry.deliver_at for entry in some]), first, (1 << some[-1].end - first) - 1)
        self._arm()

    def _keep(self, entry: Entry, mask: int) -> None:
        if entry.deliver_at >= self._limit:
            self._defer(entry.deliver_at, entry.offset, mask)
            return
        if mask != (1 << entry.count) - 1:
            self._parts[entry.offset] = mask
        heapq.heappush(self._held, _packed(entry.deliver_at, entry.entry_id, entry.offset, entry.count))
        if len(self._held) > HELD_MAX:
            self._shrink_heap()

    def _shrink_heap(self) -> None:
        """Keep the three quarters due first in the heap, and the others as bits."""
        self._held.sort()
        kept = HELD_MAX * 3 // 4
        for packed in self._held[kept:]:
            due, part = self._unpacked(packed)
            self._defer(due, part.offset, part.mask)
        self._limit = self._held[kept] >> _DUE
        del self._held[kept:]

    def _defer(self, due: int, offset: int, mask: int) -> None:
        while mask:
            number, at = divmod(offset, CHUNK)
            self._deferred[number] = self._deferred.get(number, 0) | (mask << at) & _FULL
            self._earliest[number] = min(due, self._earliest.get(number, NEVER))
            mask >>= CHUNK - at
            offset += CHUNK - at

    def _unpacked(self, packed: int) -> tuple[int, Slice]:
        entry_id, offset, count = (packed >> _ENTRY) & _INT64, (packed >> _OFFSET) & _INT64, packed & _INT32
        mask = (1 << count) - 1
        return packed >> _DUE, Slice(entry_id, offset, count, self._parts.pop(offset, mask))

    def _arm(self) -> None:
        """Set the timer for the next due message; if one is due now, set `ready` instead."""
        next_at = self._held[0] >> _DUE if self._held else NEVER
        if self._needs_loading(0):
            next_at = 0
        if self._timer is not None and next_at == self._timer_at:
            return
        self._disarm()
        wait = next_at - self._topic.clock.now_ms()
        self.ready = wait <= 0
        if next_at < NEVER and wait > 0:
            self._timer_at = next_at
            self._timer = self._topic.clock.call_later(min(wait, TIMER_MAX_MS), self._timer_fired)

    def _needs_loading(self, held_min: int) -> bool:
        """Whether the heap needs entries from the log."""
        return (
            bool(self._deferred) and not self._loading and (self._incomplete or len(self._held) <= held_min)
        )

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = NEVER

    def _timer_fired(self) -> None:
        self._disarm()
        self._check_due()

    def _check_due(self) -> None:
        self._arm()
        if self.ready:
            self._due()

    # -- releasing

    def release(self, budget: Budget | None) -> list[Slice]:
        """Take entries that are due, the earliest first. Reading the log again counts in `budget`."""
        found: list[Slice] = []
        held, now = self._held, self._topic.clock.now_ms()
        while held and len(found) < RELEASE_MAX and held[0] >> _DUE <= now:
            part = self._unpacked(heapq.heappop(held))[1]
            self.messages -= part.mask.bit_count()
            part.mask &= ~self._cursor.mask(part.offset, part.count)
            if part.mask:
                found.append(part)
        if self._needs_loading(HELD_MAX // 4):
            self._loading = True
            self._tasks.spawn(self._load(self._epoch, budget), f"delayed messages of {self._topic.name}")
        self._arm()
        return found

    async def _load(self, epoch: int, budget: Budget | None) -> None:
        """Read chunks from the log, those due first, until the heap holds the entries due before all others."""
        reserved = self._topic.read_bytes_max
        if budget is not None and not budget.reserve(reserved):
            budget.call_when_room(lambda: self._loaded(epoch))
            return
        self._limit, self._incomplete = NEVER, True
        try:
            for number in sorted(self._deferred, key=lambda number: (self._earliest[number], number)):
                if number not in self._deferred:
                    continue
                if self._earliest[number] >= self._limit:
                    break
                await self._load_chunk(number, epoch)
                if epoch != self._epoch:
                    return
            self._incomplete = False
            self._failures.recovered()
        except PenstockError as error:
            if epoch == self._epoch:
                self._failures.failed(error)
                self._topic.clock.call_later(RETRY_MS, lambda: self._loaded(epoch))
            return
        finally:
            if budget is not None:
                budget.send(-reserved)
        self._loaded(epoch)

    def _loaded(self, epoch: int) -> None:
        """Loading ended; the next release starts it again if the heap needs entries."""
        if epoch == self._epoch:
            self._loading = False
            self._check_due()

    async def _load_chunk(self, number: int, epoch: int) -> None:
        at, end = number * CHUNK, (number + 1) * CHUNK
        was, self._earliest[number] = self._earliest[number], NEVER
        try:
            while at < end and (bits := self._deferred.get(number, 0) >> at % CHUNK):
                at += (bits & -bits).bit_length() - 1
                at = await self._load_some(at, epoch)
        except BaseException:
            if epoch == self._epoch and number in self._deferred:
                self._earliest[number] = min(was, self._earliest.get(number, NEVER))
            raise

    async def _load_some(self, at: int, epoch: int) -> int:
        """Read entries from the offset `at` on; returns the offset after them."""
        entries = await self._topic.read_at(at, READ_ENTRIES)
        self._topic.has_read(sum([len(entry.data) for entry in entries]))
        await asyncio.sleep(0)  # yield: entries in memory are read without waiting
        if epoch != self._epoch:
            return NEVER
        following = entries[0].offset if entries else self._topic.gap_end(at)
        if following > at:
            # Retention or compaction deleted them.
            self.messages -= self._take_bits(at, following - at).bit_count()
        elif not entries:
            raise PenstockError(ErrorKind.UNAVAILABLE, f"{self._topic.name} has no offset {at} now")
        for entry in entries:
            following = entry.end
            if waiting := self._take_bits(entry.offset, entry.count):
                mask = waiting & ~self._cursor.mask(entry.offset, entry.count)
                self.messages -= (waiting & ~mask).bit_count()
                if mask:
                    self._keep(entry, mask)
        self._check_due()
        return following

    def _take_bits(self, offset: int, count: int) -> int:
        """Clear the bits of `count` messages from `offset` on; returns the bits that were set."""
        found, done = 0, 0
        while done < count:
            number, at = divmod(offset + done, CHUNK)
            size = min(CHUNK - at, count - done)
            bits = self._deferred.get(number, 0)
            if taken := bits >> at & (1 << size) - 1:
                found |= taken << done
                self._set_bits(number, bits ^ taken << at)
            done += size
        return found

    def _set_bits(self, number: int, bits: int) -> None:
        if bits:
            self._deferred[number] = bits
        else:
            del self._deferred[number], self._earliest[number]

    # -- removing

    def drop_below(self, end: int) -> None:
        """Drop the messages below the offset `end`, which count as acknowledged."""
        if not self.messages:
            return
        held, self._held = self._held, []
        for packed in held:
            offset, count = packed >> _OFFSET & _INT64, packed & _INT32
            if offset + count <= end:
                self.messages -= self._unpacked(packed)[1].mask.bit_count()
            else:
                self._held.append(packed)
        heapq.heapify(self._held)
        for number in [number for number in self._deferred if number * CHUNK < end]:
            bits = self._deferred[number]
            kept = bits >> (end - number * CHUNK) << (end - number * CHUNK)
            self.messages -= (bits ^ kept).bit_count()
            self._set_bits(number, kept)
        self._arm()

    def clear(self) -> None:
        """Drop all messages."""
        self._failures.dropped()
        self._epoch += 1
        self._disarm()
        self._held.clear()
        self._parts.clear()
        self._deferred.clear()
        self._earliest.clear()
        self._limit = NEVER
        self._loading = self._incomplete = self.ready = False
        self.messages = 0


# A held entry as one number, so that a heap orders entries by time, then by position:
#
#     due: 63 bits | entry id: 64 | offset: 64 | count: 32
_OFFSET: Final = 32
_ENTRY: Final = 96
_DUE: Final = 160
_INT32: Final = (1 << 32) - 1
_INT64: Final = (1 << 64) - 1


def _packed(due: int, entry_id: int, offset: int, count: int) -> int:
    return due << _DUE | entry_id << _ENTRY | offset << _OFFSET | count
