"""The newest entries of every topic, in memory within one bound, so that followers do not touch the store."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.entry import AppendResult, Entry, NewEntry

ENTRY_BYTES: Final = 350  # what an entry takes beside its data, measured: small ones are mostly that


class Tail:
    """The newest entries of one log: contiguous ids, oldest first."""

    __slots__ = ("entries", "first")

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.first = 0

    def get(self, entry_id: int) -> Entry | None:
        at = entry_id - self.first
        return self.entries[at] if 0 <= at < len(self.entries) else None

    def slice(self, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        """Entries from `entry_id` on, at least one, within both bounds; empty when it is not held here."""
        at = entry_id - self.first
        found: list[Entry] = []
        if at < 0:
            return found
        size = 0
        for index in range(at, min(len(self.entries), at + entries_max)):
            entry = self.entries[index]
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found


class TailCache:
    """All tails of a broker share `bytes_max`; the oldest entry of all goes first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.bytes = 0
        self._order: deque[tuple[Tail, Entry]] = deque()

    def put(self, tail: Tail, entries: Sequence[Entry], size: int) -> None:
        """Keep entries with consecutive ids, whose data has `size` bytes together."""
        first = entries[0].entry_id
        if not tail.entries:
            tail.first = first
        elif tail.first + len(tail.entries) != first:
            tail.entries.clear()
            tail.first = first
        tail.entries.extend(entries)
        order = self._order
        order.extend([(tail, entry) for entry in entries])
        self.bytes += size + ENTRY_BYTES * len(entries)
        while self.bytes > self._bytes_max and len(order) > 1:
            oldest, gone = order.popleft()
            self.bytes -= len(gone.data) + ENTRY_BYTES
            if oldest.entries and oldest.entries[0] is gone:
                oldest.entries.popleft()
                oldest.first += 1


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
