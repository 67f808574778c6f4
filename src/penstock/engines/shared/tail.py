"""The newest entries of logs in memory, within one bound for all logs; and the followers of a log."""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import msgspec

from penstock.model.entry import AppendResult, Entry, NewEntry, NewRun

ENTRY_BYTES: Final = 350  # measured overhead of an entry; most of a small one


class Followers(set[Callable[[], None]]):
    """The callbacks for a log that grew; `first` is called when one is added."""

    def __init__(self, first: Callable[[], None]) -> None:
        super().__init__()
        self._first = first

    def add(self, follower: Callable[[], None]) -> None:
        super().add(follower)
        self._first()


async def follow_until(
    followers: set[Callable[[], None]], done: Callable[[], bool], timeout_ms: float
) -> None:
    """Follow a log until `done`, or until the timeout."""
    if done():
        return
    changed = asyncio.Event()
    followers.add(changed.set)
    try:
        async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
            while not done():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass
    finally:
        followers.discard(changed.set)


class _Run(msgspec.Struct, frozen=True, gc=False):
    """Appended entries that were not read yet: each has the run in its place."""

    ledger: int
    entry_id: int
    offset: int
    entries: NewRun

    def made(self) -> list[Entry]:
        return stored(self.ledger, AppendResult(self.entry_id, self.offset), self.entries)


class Tail:
    """The newest entries of one log: contiguous ids, oldest first.

    A list, as a deque finds its middle by counting. Entries that left at the front are None, until half of the list is.
    """

    __slots__ = ("_entries", "_gone", "first")

    def __init__(self) -> None:
        self.first = 0  # the id of the oldest
        self._entries: list[Entry | _Run | None] = []
        self._gone = 0  # places at the front of those that left

    def __len__(self) -> int:
        return len(self._entries) - self._gone

    def get(self, entry_id: int) -> Entry | None:
        at = entry_id - self.first
        return self._made(self._gone + at) if 0 <= at < len(self) else None

    def slice(self, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from `entry_id` on, at least one, within both bounds; empty when it is not held here."""
        at = entry_id - self.first
        if at < 0:
            return []
        at += self._gone
        held = self._entries[at : at + entries_max]
        if _Run in map(type, held):
            for place in range(at, at + len(held)):
                self._made(place)
            held = self._entries[at : at + entries_max]
        found = cast(list[Entry], held)
        size = 0
        for number, entry in enumerate(found):
            size += len(entry.data)
            if size > bytes_max and number:
                return found[:number]
        return found

    def find(self, offset: int) -> Entry | None:
        """The entry that holds `offset`; None when it is not held here."""
        entries = cast(list[Entry | _Run], self._entries)
        at = bisect_right(entries, offset, self._gone, key=_offset) - 1
        if at < self._gone:
            return None
        one = entries[at]
        if type(one) is _Run:  # `at` is the place of its last entry
            at = min(at, at - len(one.entries) + 1 + offset - one.offset)
        entry = self._made(at)
        return entry if offset < entry.end else None

    def _made(self, place: int) -> Entry:
        """The entry in a place; a run gives its places to its entries."""
        one = self._entries[place]
        if type(one) is _Run:
            start = place - (self.first + place - self._gone - one.entry_id)
            made = one.made()
            self._entries[start : start + len(made)] = made
            return made[place - start]
        return cast(Entry, one)

    def extend(self, first: int, entries: Sequence[Entry | _Run]) -> None:
        """Add the newest entries, with ids from `first` on; those that do not follow the others take their place."""
        if self.first + len(self) != first:
            self.clear()
            self.first = first
        self._entries.extend(entries)

    def drop(self, first: int, count: int) -> None:
        """Forget the oldest entries, if they are the `count` from `first` on."""
        if self.first != first or len(self) < count:
            return
        gone = self._gone + count
        self._entries[self._gone : gone] = [None] * count
        self._gone = gone
        self.first += count
        if 2 * gone > len(self._entries):
            del self._entries[:gone]
            self._gone = 0

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._gone = 0


# entries that came and go together: the first, how many, the size of their data
_Put = tuple[Tail, int, int, int]


class TailCache:
    """All tails of a broker share `bytes_max`; the run appended first of all is evicted first, as a whole."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._order: deque[_Put] = deque()

    def append(
        self, tail: Tail, ledger: int, placed: AppendResult, entries: Sequence[NewEntry]
    ) -> tuple[int, int]:
        """Keep the entries appended to a log, with their number of messages and bytes of data."""
        if type(entries) is NewRun:
            self.put_run(tail, ledger, placed, entries)
            return len(entries), entries.size_bytes
        size = sum([len(entry.data) for entry in entries])
        self.put(tail, stored(ledger, placed, entries), size)
        return sum([entry.count for entry in entries]), size

    def put(self, tail: Tail, entries: Sequence[Entry], size: int) -> None:
        """Keep entries with consecutive ids, whose data has `size` bytes together."""
        if entries:
            tail.extend(entries[0].entry_id, entries)
            self._keep((tail, entries[0].entry_id, len(entries), size))

    def put_run(self, tail: Tail, ledger: int, placed: AppendResult, entries: NewRun) -> None:
        """Keep an appended run: entries are made for their readers."""
        run = _Run(ledger, placed.entry_id, placed.offset, entries)
        tail.extend(placed.entry_id, [run] * len(entries))
        self._keep((tail, placed.entry_id, len(entries), entries.size_bytes))

    def _keep(self, put: _Put) -> None:
        order = self._order
        order.append(put)
        self.bytes += put[3] + ENTRY_BYTES * put[2]
        while self.bytes > self._bytes_max and len(order) > 1:
            tail, first, count, size = order.popleft()
            self.bytes -= size + ENTRY_BYTES * count
            tail.drop(first, count)


def _offset(one: Entry | _Run) -> int:
    return one.offset


def stored(ledger: int, placed: AppendResult, entries: Iterable[NewEntry]) -> list[Entry]:
    """Entries as they lie in the log that they were appended to."""
    found: list[Entry] = []
    entry_id, offset = placed.entry_id, placed.offset
    for new in entries:
        count = new.count
        found.append(Entry(ledger, entry_id, offset, count, new.publish_time, new.deliver_at, new.data))
        entry_id += 1
        offset += count
    return found
