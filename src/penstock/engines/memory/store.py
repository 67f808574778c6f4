"""All that the broker stores, in dictionaries."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import islice

from penstock.engines.core.ports import CursorChange, LogState, no_log
from penstock.model.entry import AppendResult, Entry, NewEntry

from .log import MemoryLog, at_once
from .stages import MemoryStages


class MemoryStore(MemoryStages):
    """A `Store` of dicts and lists. Every call has taken place when it returns; the awaitable is for form."""

    def __init__(self, first_ledger: int = 0) -> None:
        """`first_ledger` keeps its ledger numbers apart from those of another store beside it."""
        super().__init__()
        self._topics: dict[str, MemoryLog] = {}
        self._next_ledger = first_ledger
        self._meta: dict[str, dict[str, bytes]] = {}

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to finish; what is stored stays with the object."""

    @at_once
    def open(self, topic: str) -> LogState:
        log = self._topics.get(topic)
        if log is None:
            log = MemoryLog(self._next_ledger, topic)
            self._next_ledger += 1
            self._topics[topic] = self._logs[log.ledger] = log
        return LogState(
            ledger=log.ledger,
            first_entry=log.first_entry,
            next_entry=log.next_entry,
            first_offset=log.entries[0].offset if log.entries else log.next_offset,
            next_offset=log.next_offset,
            size_bytes=log.size_bytes,
            producers=dict(log.producers),
        )

    @at_once
    def append(self, ledger: int, entries: Sequence[NewEntry]) -> AppendResult:
        log = self._logs.get(ledger)
        if log is None:
            raise no_log(ledger)
        return log.append(entries)

    @at_once
    def read(self, ledger: int, entry_id: int, entries_max: int, bytes_max: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        for entry in islice(self._log(ledger).since(entry_id), max(1, entries_max)):
            size += len(entry.data)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    @at_once
    def trim(self, ledger: int, before_entry: int) -> int:
        return self._log(ledger).trim(before_entry)

    @at_once
    def forget_producers(self, ledger: int, names: Sequence[str]) -> None:
        for name in names:
            self._log(ledger).producers.pop(name, None)

    @at_once
    def delete(self, ledger: int) -> None:
        log = self._logs.pop(ledger, None)
        if log is not None:
            del self._topics[log.topic]

    @at_once
    def find_offset(self, ledger: int, offset: int) -> Entry | None:
        entries = self._log(ledger).entries
        at = bisect_right(entries, offset, key=lambda entry: entry.end)
        return entries[at] if at < len(entries) else None

    @at_once
    def find_time(self, ledger: int, publish_time: int) -> Entry | None:
        entries = self._log(ledger).entries
        at = bisect_left(entries, publish_time, key=lambda entry: entry.publish_time)
        return entries[at] if at < len(entries) else None

    @at_once
    def find_size(self, ledger: int, size_bytes: int) -> Entry | None:
        found = None
        for entry in reversed(self._log(ledger).entries):
            size_bytes -= len(entry.data)
            if size_bytes < 0:
                break
            found = entry
        return found

    @at_once
    def size_since(self, ledger: int, entry_id: int) -> int:
        return sum(len(entry.data) for entry in self._log(ledger).since(entry_id))

    @at_once
    def load_cursors(self, ledger: int) -> list[CursorChange]:
        cursors = self._log(ledger).cursors.values()
        return [CursorChange(c.ledger, c.subscription, c.mark, dict(c.chunks), c.properties) for c in cursors]

    @at_once
    def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        for change in changes:
            if change.ledger not in self._logs:
                raise no_log(change.ledger)
        for change in changes:
            name = change.subscription
            new = CursorChange(change.ledger, name, change.mark, {})
            cursor = self._logs[change.ledger].cursors.setdefault(name, new)
            cursor.mark = change.mark
            cursor.chunks |= change.chunks
            for number in [number for number, bits in change.chunks.items() if bits is None]:
                del cursor.chunks[number]
            if change.properties is not None:
                cursor.properties = change.properties

    @at_once
    def delete_cursor(self, ledger: int, subscription: str) -> None:
        self._log(ledger).cursors.pop(subscription, None)

    @at_once
    def load_meta(self, kind: str) -> dict[str, bytes]:
        return dict(self._meta.get(kind, {}))

    @at_once
    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        for kind, key, document in documents:
            if document is None:
                self._meta.get(kind, {}).pop(key, None)
            else:
                self._meta.setdefault(kind, {})[key] = document

    def _log(self, ledger: int) -> MemoryLog:
        """A log; an empty one that is not stored where there is none."""
        return self._logs.get(ledger) or MemoryLog(ledger, "")
