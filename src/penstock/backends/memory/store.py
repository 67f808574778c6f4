"""Everything the broker keeps, in dictionaries."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from penstock.core.ports import CursorChange, LogState
from penstock.model.entry import Entry, NewEntry, Placed
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, Span, StagedRun, StageKey, StageRun

from .log import MemoryLog

T = TypeVar("T")


class MemoryStore:
    """A `Store` of dicts and lists. Every call has taken place when it returns; the awaitable is for form."""

    def __init__(self, first_ledger: int = 0) -> None:
        """`first_ledger` keeps its ledger numbers apart from those of another store beside it."""
        self._topics: dict[str, MemoryLog] = {}
        self._ledgers: dict[int, MemoryLog] = {}
        self._next_ledger = first_ledger
        self._meta: dict[str, dict[str, bytes]] = {}
        self._stages: dict[StageKey, list[tuple[StagedRun, StageRun]]] = {}
        self._commits: dict[str, Commit] = {}

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
        return _done(log.state())

    def append(self, ledger: int, entries: Sequence[NewEntry]) -> asyncio.Future[Placed]:
        log = self._ledgers.get(ledger)
        return _failed(_no_log(ledger)) if log is None else _done(log.append(entries))

    def read(
        self, ledger: int, entry_id: int, entries_max: int, bytes_max: int
    ) -> asyncio.Future[list[Entry]]:
        log = self._ledgers.get(ledger)
        return _done([] if log is None else log.read(entry_id, entries_max, bytes_max))

    def find_offset(self, ledger: int, offset: int) -> asyncio.Future[Entry | None]:
        entries = self._entries(ledger)
        at = bisect_right(entries, offset, key=lambda entry: entry.end)
        return _done(entries[at] if at < len(entries) else None)

    def find_time(self, ledger: int, publish_time: int) -> asyncio.Future[Entry | None]:
        entries = self._entries(ledger)
        at = bisect_left(entries, publish_time, key=lambda entry: entry.publish_time)
        return _done(entries[at] if at < len(entries) else None)

    def find_size(self, ledger: int, size_bytes: int) -> asyncio.Future[Entry | None]:
        log = self._ledgers.get(ledger)
        return _done(None if log is None else log.find_size(size_bytes))

    def size_since(self, ledger: int, entry_id: int) -> asyncio.Future[int]:
        log = self._ledgers.get(ledger)
        return _done(0 if log is None else log.size_since(entry_id))

    def trim(self, ledger: int, before_entry: int) -> asyncio.Future[int]:
        log = self._ledgers.get(ledger)
        return _done(0 if log is None else log.trim(before_entry))

    def forget_producers(self, ledger: int, names: Sequence[str]) -> asyncio.Future[None]:
        log = self._ledgers.get(ledger)
        if log is not None:
            for name in names:
                log.producers.pop(name, None)
        return _done(None)

    def delete(self, ledger: int) -> asyncio.Future[None]:
        log = self._ledgers.pop(ledger, None)
        if log is not None:
            del self._topics[log.topic]
        return _done(None)

    def load_cursors(self, ledger: int) -> asyncio.Future[list[CursorChange]]:
        log = self._ledgers.get(ledger)
        cursors = [] if log is None else list(log.cursors.values())
        return _done(
            [CursorChange(c.ledger, c.subscription, c.mark, dict(c.chunks), c.properties) for c in cursors]
        )

    def save_cursors(self, changes: Sequence[CursorChange]) -> asyncio.Future[None]:
        for change in changes:
            if change.ledger not in self._ledgers:
                return _failed(_no_log(change.ledger))
        for change in changes:
            self._ledgers[change.ledger].save_cursor(change)
        return _done(None)

    def delete_cursor(self, ledger: int, subscription: str) -> asyncio.Future[None]:
        log = self._ledgers.get(ledger)
        if log is not None:
            log.cursors.pop(subscription, None)
        return _done(None)

    def load_meta(self, kind: str) -> asyncio.Future[dict[str, bytes]]:
        return _done(dict(self._meta.get(kind, {})))

    def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> asyncio.Future[None]:
        for kind, key, document in documents:
            if document is None:
                self._meta.get(kind, {}).pop(key, None)
            else:
                self._meta.setdefault(kind, {})[key] = document
        return _done(None)

    def stage(
        self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]
    ) -> asyncio.Future[None]:
        for run in runs:
            if run.ledger not in self._ledgers:
                return _failed(_no_log(run.ledger))
        for run in runs:
            messages = sum(entry.count for entry in run.entries)
            size = sum(len(entry.data) for entry in run.entries)
            told = StagedRun(key, part, checksum, at, run.ledger, run.topic, messages, size)
            self._stages.setdefault(key, []).append((told, run))
        return _done(None)

    def load_stages(self) -> asyncio.Future[tuple[list[StagedRun], list[Commit]]]:
        runs = [told for held in self._stages.values() for told, _ in held]
        return _done((runs, list(self._commits.values())))

    def commit_stages(self, commit: Commit, stages: Sequence[str]) -> asyncio.Future[Commit]:
        writer, batch = commit.writer, commit.batch
        last = self._commits.get(writer)
        if last is not None and last.batch >= batch:
            return _done(last)
        won: list[StageRun] = []
        for stage in stages:
            held = self._stages.get(StageKey(writer, batch, stage))
            if held is None:
                return _failed(_no_stage(stage))
            won += [run for _, run in sorted(held, key=lambda pair: pair[0].part)]
        for run in won:
            if run.ledger not in self._ledgers:
                return _failed(_no_log(run.ledger))
        spans: dict[int, Span] = {}
        for run in won:
            entries = [msgspec.structs.replace(entry, publish_time=commit.at) for entry in run.entries]
            log = self._ledgers[run.ledger]
            placed, size = log.append(entries), sum(len(entry.data) for entry in entries)
            span = spans.get(run.ledger) or Span(
                run.topic, run.ledger, placed.entry_id, 0, placed.offset, 0, 0
            )
            spans[run.ledger] = msgspec.structs.replace(
                span,
                entries=span.entries + len(entries),
                messages=log.next_offset - span.offset,
                size_bytes=span.size_bytes + size,
            )
        for key in [k for k in self._stages if k.writer == writer and k.batch <= batch]:
            del self._stages[key]
        done = self._commits[writer] = msgspec.structs.replace(commit, spans=tuple(spans.values()))
        return _done(done)

    def drop_stages(self, keys: Sequence[StageKey]) -> asyncio.Future[None]:
        for key in keys:
            self._stages.pop(key, None)
        return _done(None)

    def forget_commits(self, writers: Sequence[str]) -> asyncio.Future[None]:
        for writer in writers:
            self._commits.pop(writer, None)
        return _done(None)

    def _entries(self, ledger: int) -> list[Entry]:
        log = self._ledgers.get(ledger)
        return [] if log is None else log.entries


def _no_log(ledger: int) -> PenstockError:
    return PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"there is no log with ledger {ledger}")


def _no_stage(stage: str) -> PenstockError:
    return PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {stage}")


def _done(value: T) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def _failed(error: PenstockError) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
