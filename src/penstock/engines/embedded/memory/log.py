"""One log in memory: its entries, producers and cursors."""

from collections.abc import Sequence

from penstock.engines.embedded.ports import CursorChange, LogState
from penstock.model.entry import AppendResult, Entry, NewEntry


class MemoryLog:
    """One log; `entries[0]` has the id `first_entry`."""

    __slots__ = (
        "cursors",
        "entries",
        "first_entry",
        "ledger",
        "next_offset",
        "producers",
        "size_bytes",
        "topic",
    )

    def __init__(self, ledger: int, topic: str) -> None:
        self.ledger = ledger
        self.topic = topic
        self.entries: list[Entry] = []
        self.first_entry = 0
        self.next_offset = 0
        self.size_bytes = 0
        self.producers: dict[str, int] = {}
        self.cursors: dict[str, CursorChange] = {}

    @property
    def next_entry(self) -> int:
        return self.first_entry + len(self.entries)

    def state(self) -> LogState:
        first = self.entries[0].offset if self.entries else self.next_offset
        return LogState(
            ledger=self.ledger,
            first_entry=self.first_entry,
            next_entry=self.next_entry,
            first_offset=first,
            next_offset=self.next_offset,
            size_bytes=self.size_bytes,
            producers=dict(self.producers),
        )

    def append(self, entries: Sequence[NewEntry]) -> AppendResult:
        placed = AppendResult(self.next_entry, self.next_offset)
        for new in entries:
            self.entries.append(
                Entry(
                    self.ledger,
                    self.next_entry,
                    self.next_offset,
                    new.count,
                    new.publish_time,
                    new.deliver_at,
                    new.data,
                )
            )
            self.next_offset += new.count
            self.size_bytes += len(new.data)
            if new.producer and new.sequence_id > self.producers.get(new.producer, -1):
                self.producers[new.producer] = new.sequence_id
        return placed

    def read(self, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        start = max(0, entry_id - self.first_entry)
        found: list[Entry] = []
        size = 0
        for entry in self.entries[start : start + max(1, entries_max)]:
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def find_size(self, size_bytes: int) -> Entry | None:
        found = None
        for entry in reversed(self.entries):
            size_bytes -= len(entry.data)
            if size_bytes < 0:
                break
            found = entry
        return found

    def size_since(self, entry_id: int) -> int:
        return sum(len(entry.data) for entry in self.entries[max(0, entry_id - self.first_entry) :])

    def trim(self, before_entry: int) -> int:
        count = min(max(0, before_entry - self.first_entry), len(self.entries))
        freed = sum(len(entry.data) for entry in self.entries[:count])
        self.size_bytes -= freed
        del self.entries[:count]
        self.first_entry += count
        return freed

    def save_cursor(self, change: CursorChange) -> None:
        cursor = self.cursors.get(change.subscription)
        if cursor is None:
            cursor = CursorChange(self.ledger, change.subscription, change.mark, {})
            self.cursors[change.subscription] = cursor
        cursor.mark = change.mark
        for number, bits in change.chunks.items():
            if bits is None:
                cursor.chunks.pop(number, None)
            else:
                cursor.chunks[number] = bits
        if change.properties is not None:
            cursor.properties = change.properties
