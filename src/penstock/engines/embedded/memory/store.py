"""Everything the broker keeps, in dictionaries."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from penstock.engines.embedded.ports import CursorChange, LogState
from penstock.model.entry import AppendResult, Entry, NewEntry

from .log import MemoryLog
from .outcomes import done, failed, no_log
from .stages import MemoryStages


class MemoryStore(MemoryStages):
    """A `Store` of dicts and lists. Every call has taken place when it returns; the awaitable is for form."""

    def __init__(self, first_ledger: int = 0) -> None:
        """`first_ledger` keeps its ledger numbers apart from those of another store beside it."""
        self._topics: dict[str, MemoryLog] = {}
        self._ledgers: dict[int, MemoryLog] = {}
        super().__init__(self._ledgers)
        self._next_ledger = first_ledger
        self._meta: dict[str, dict[str, bytes]] = {}

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to finish; what is stored stays with the object."""

    def open(self, topic: str) -> asyncio.Future[LogState]:
        log = self._topics.get(topic)
        if log is None:
            log = MemoryLog(self._next_ledger, topic)
            self._next_ledger += 1
            self._topics[topic] = self._ledgers[log.ledger] = log
        return done(log.state())

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> asyncio.Future[AppendResult]:
        log = self._ledgers.get(ledger)
        return failed(no_log(ledger)) if log is None else done(log.append(entries))

    def read(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> asyncio.Future[list[Entry]]:
        log = self._ledgers.get(ledger)
        return done([] if log is None else log.read(entry_id, entries_max, bytes_max))

    def find_offset(self, ledger: int, offset: int) -> asyncio.Future[Entry | None]:
        entries = self._entries(ledger)
        at = bisect_right(entries, offset, key=lambda entry: entry.end)
        return done(entries[at] if at < len(entries) else None)

    def find_time(self, ledger: int, publish_time: int) -> asyncio.Future[Entry | None]:
        entries = self._entries(ledger)
        at = bisect_left(entries, publish_time, key=lambda entry: entry.publish_time)
        return done(entries[at] if at < len(entries) else None)

    def find_size(self, ledger: int, size_bytes: int) -> asyncio.Future[Entry | None]:
        log = self._ledgers.get(ledger)
        return done(None if log is None else log.find_size(size_bytes))

    def size_since(self, ledger: int, entry_id: int) -> asyncio.Future[int]:
        log = self._ledgers.get(ledger)
        return done(0 if log is None else log.size_since(entry_id))

    def trim(self, ledger: int, before_entry: int) -> asyncio.Future[int]:
        log = self._ledgers.get(ledger)
        return done(0 if log is None else log.trim(before_entry))

    def forget_producers(self, ledger: int, names: Sequence[str]) -> asyncio.Future[None]:
        log = self._ledgers.get(ledger)
        if log is not None:
            for name in names:
                log.producers.pop(name, None)
        return done(None)

    def delete(self, ledger: int) -> asyncio.Future[None]:
        log = self._ledgers.pop(ledger, None)
        if log is not None:
            del self._topics[log.topic]
        return done(None)

    def load_cursors(self, ledger: int) -> asyncio.Future[list[CursorChange]]:
        log = self._ledgers.get(ledger)
        cursors = [] if log is None else list(log.cursors.values())
        return done(
            [CursorChange(c.ledger, c.subscription, c.mark, dict(c.chunks), c.properties) for c in cursors]
        )

    def save_cursors(self, changes: Sequence[CursorChange]) -> asyncio.Future[None]:
        for change in changes:
            if change.ledger not in self._ledgers:
                return failed(no_log(change.ledger))
        for change in changes:
            self._ledgers[change.ledger].save_cursor(change)
        return done(None)

    def delete_cursor(self, ledger: int, subscription: str) -> asyncio.Future[None]:
        log = self._ledgers.get(ledger)
        if log is not None:
            log.cursors.pop(subscription, None)
        return done(None)

    def load_meta(self, kind: str) -> asyncio.Future[dict[str, bytes]]:
        return done(dict(self._meta.get(kind, {})))

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> asyncio.Future[None]:
        for kind, key, document in documents:
            if document is None:
                self._meta.get(kind, {}).pop(key, None)
            else:
                self._meta.setdefault(kind, {})[key] = document
        return done(None)

    def _entries(self, ledger: int) -> list[Entry]:
        log = self._ledgers.get(ledger)
        return [] if log is None else log.entries
