"""The newest entries of every topic, in memory within one bound, so that followers do not touch the store."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, cast

from penstock.model.entry import AppendResult, Entry, NewEntry

ENTRY_BYTES: Final = 350  # what an entry takes beside its data, measured: small ones are mostly that


class Tail:
    """The newest entries of one log: contiguous ids, oldest first.

    A list, as a deque finds what is in its middle by counting. What left it at the front is None, until that is half of it.
    """

    __slots__ = ("_entries", "_gone", "first")

    def __init__(self) -> None:
        self.first = 0  # the id of the oldest
        self._entries: list[Entry | None] = []
        self._gone = 0  # places at the front of those that left

    def __len__(self) -> int:
        return len(self._entries) - self._gone

    def get(self, entry_id: int) -> Entry | None:
        at = entry_id - self.first
        return self._entries[self._gone + at] if 0 <= at < len(self) else None

    def slice(self, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from `entry_id` on, at least one, within both bounds; empty when it is not held here."""
        at = entry_id - self.first
        if at < 0:
            return []
        at += self._gone
        found = cast(list[Entry], self._entries[at : at + entries_max])
        size = 0
        for number, entry in enumerate(found):
            size += len(entry.data)
            if size > bytes_max and number:
                return found[:number]
        return found

    def find(self, offset: int) -> Entry | None:
        """The entry that holds `offset`; None when it is not held here."""
        entries = cast(list[Entry], self._entries)
        at = bisect_right(entries, offset, self._gone, key=lambda entry: entry.offset) - 1
        return entries[at] if at >= self._gone and offset < entries[at].end else None

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the newest entries, with consecutive ids; those that do not follow the others take their place."""
        first = entries[0].entry_id
        if self.first + len(self) != first:
            self.clear()
            self.first = first
        self._entries.extend(entries)

    def drop(self, entry: Entry) -> None:
        """Forget the oldest entry, if it is this one."""
        if self.get(self.first) is entry:
            self._entries[self._gone] = None
            self._gone += 1
            self.first += 1
            if 2 * self._gone > len(self._entries):
                del self._entries[: self._gone]
                self._gone = 0

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self._gone = 0


class TailCache:
    """All tails of a broker share `bytes_max`; the oldest entry of all goes first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._order: deque[tuple[Tail, Entry]] = deque()

    def put(self, tail: Tail, entries: Sequence[Entry], size: int) -> None:
        """Keep entries with consecutive ids, whose data has `size` bytes together."""
        tail.extend(entries)
        order = self._order
        order.extend([(tail, entry) for entry in entries])
        self.bytes += size + ENTRY_BYTES * len(entries)
        while self.bytes > self._bytes_max and len(order) > 1:
            oldest, gone = order.popleft()
            self.bytes -= len(gone.data) + ENTRY_BYTES
            oldest.drop(gone)


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
