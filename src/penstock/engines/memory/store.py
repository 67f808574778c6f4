"""All that the broker stores, in dictionaries."""

import asyncio
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from itertools import islice
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from penstock.engines.core.ports import CursorChange, LogState, no_log
from penstock.model.entry import AppendResult, Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import (
    FORGOTTEN,
    Commit,
    Span,
    StagedRun,
    StageKey,
    StageRun,
    Target,
    Targets,
    Writer,
    too_many_commits,
)

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def at_once(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], asyncio.Future[T]]:
    """Make a method that answers at once one of a port: what it returns or raises is in the future."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(method(self, *args, **kwargs))
        except PenstockError as error:
            future.set_exception(error)
        return future

    update_wrapper(call, method)
    return call


@dataclass(slots=True)
class MemoryLog:
    """One log; `entries[0]` has the id `first_entry`.

    A deque: a non-persistent topic at its bound lets one entry go for each that comes.
    """

    ledger: int
    topic: str
    entries: deque[Entry] = field(default_factory=deque)
    first_entry: int = 0
    next_offset: int = 0
    size_bytes: int = 0
    producers: dict[str, int] = field(default_factory=dict)
    cursors: dict[str, CursorChange] = field(default_factory=dict)

    @property
    def next_entry(self) -> int:
        return self.first_entry + len(self.entries)

    def append(self, entries: Sequence[NewEntry]) -> AppendResult:
        placed = AppendResult(self.next_entry, self.next_offset)
        for number, new in enumerate(entries, placed.entry_id):
            made = (new.count, new.publish_time, new.deliver_at, new.data)
            self.entries.append(Entry(self.ledger, number, self.next_offset, *made))
            self.next_offset += new.count
            self.size_bytes += len(new.data)
            if new.producer and new.sequence_id > self.producers.get(new.producer, -1):
                self.producers[new.producer] = new.sequence_id
        return placed

    def trim(self, before_entry: int) -> int:
        """Delete the entries before an id; returns their bytes."""
        freed = 0
        while self.entries and self.first_entry < before_entry:
            freed += len(self.entries.popleft().data)
            self.first_entry += 1
        self.size_bytes -= freed
        return freed

    def since(self, entry_id: int) -> Iterator[Entry]:
        """The entries from an id on."""
        for at in range(max(0, entry_id - self.first_entry), len(self.entries)):
            yield self.entries[at]


class MemoryStore:
    """A `Store` of dicts and lists. Every call has taken place when it returns; the awaitable is for form."""

    def __init__(self, first_ledger: int = 0) -> None:
        """`first_ledger` keeps its ledger numbers apart from those of a second store."""
        self._topics: dict[str, MemoryLog] = {}
        self._logs: dict[int, MemoryLog] = {}
        self._stages: dict[StageKey, list[tuple[StagedRun, StageRun]]] = {}
        self._writers: dict[str, Writer] = {}
        self._commits: dict[str, dict[Targets | None, Commit]] = {}
        self._next_ledger = first_ledger
        self._meta: dict[str, dict[str, bytes]] = {}

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to finish; the data stays with the object."""

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

    read_runs = read

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

    # -- stages, their commits and writers

    @at_once
    def stage(self, key: StageKey, part: int, checksum: int, at: int, runs: Sequence[StageRun]) -> None:
        for run in runs:
            if run.ledger not in self._logs:
                raise no_log(run.ledger)
        for run in runs:
            messages = sum(entry.count for entry in run.entries)
            size = sum(len(entry.data) for entry in run.entries)
            staged = StagedRun(key, part, checksum, at, run.ledger, run.topic, messages, size)
            self._stages.setdefault(key, []).append((staged, run))

    @at_once
    def load_stages(self) -> tuple[list[StagedRun], list[Writer]]:
        runs = [staged for held in self._stages.values() for staged, _ in held]
        names = {key.writer for key in self._stages}
        return runs, [writer for writer in self._writers.values() if writer.name in names]

    @at_once
    def commit_stages(
        self, commit: Commit, stages: Sequence[str], lost: Sequence[StageKey] = (), commits_max: int = 0
    ) -> Commit:
        last = self._last(commit.writer, commit.topics)
        if last is not None and last.batch >= commit.batch:
            return last
        if self._full(commit, commits_max):
            raise too_many_commits(commits_max)
        won: list[StageRun] = []
        for stage in stages:
            held = self._stages.get(StageKey(commit.writer, commit.batch, stage))
            if held is None:
                raise PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {stage}")
            won += [run for _, run in sorted(held, key=lambda pair: pair[0].part)]
        for run in won:
            if run.ledger not in self._logs:
                raise no_log(run.ledger)
        spans = tuple(self._append(won, commit.at))
        for key in (*(StageKey(commit.writer, commit.batch, stage) for stage in stages), *lost):
            self._stages.pop(key, None)
        made = msgspec.structs.replace(commit, spans=spans)
        self._commits.setdefault(commit.writer, {})[commit.topics] = made
        writer = self._writers.get(commit.writer)
        if writer is not None:
            keep = writer.keep or commit.keep
            at = max(writer.at, commit.at)
            self._writers[commit.writer] = msgspec.structs.replace(writer, at=at, keep=keep)
        return made

    def _full(self, commit: Commit, commits_max: int) -> bool:
        if not commits_max or commit.topics in self._commits.get(commit.writer, {}):
            return False
        origin = self._origin(commit.writer)
        kept = sum(len(by) for name, by in self._commits.items() if self._origin(name) == origin)
        return kept >= commits_max

    def _origin(self, writer: str) -> str:
        known = self._writers.get(writer)
        return "" if known is None else known.origin

    def _append(self, won: Sequence[StageRun], at: int) -> list[Span]:
        spans: dict[int, Span] = {}
        for run in won:
            entries = [msgspec.structs.replace(entry, publish_time=at, producer="") for entry in run.entries]
            log = self._logs[run.ledger]
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
        return list(spans.values())

    def _last(self, writer: str, topics: Targets | None) -> Commit | None:
        by = self._commits.get(writer, {})
        return by.get(topics) or by.get(None)

    @at_once
    def repeat_commit(self, commit: Commit, keys: Sequence[StageKey]) -> None:
        self._commits.setdefault(commit.writer, {})[commit.topics] = commit
        for key in keys:
            self._stages.pop(key, None)

    @at_once
    def drop_stages(self, keys: Sequence[StageKey]) -> None:
        for key in keys:
            self._stages.pop(key, None)

    @at_once
    def find_commit(self, writer: str, topics: Targets) -> Commit | None:
        return self._last(writer, topics)

    @at_once
    def save_writer(self, writer: Writer, writers_max: int = 0) -> bool:
        known = self._writers.get(writer.name)
        count = sum(each.origin == writer.origin for each in self._writers.values())
        if known is None and writers_max and count >= writers_max:
            return False
        keep = writer.keep or (known is not None and known.keep)
        self._writers[writer.name] = msgspec.structs.replace(writer, keep=keep)
        return True

    @at_once
    def find_writer(self, name: str) -> Writer | None:
        return self._writers.get(name)

    @at_once
    def list_targets(self, writer: str) -> list[Target]:
        by = self._commits.get(writer, {})
        found = sorted(
            by.values(), key=lambda each: b"" if each.topics is None else msgspec.json.encode(each.topics)
        )
        return [commit.target for commit in found if commit.batch != FORGOTTEN]

    @at_once
    def list_writers(self, after: str, owner: str | None, writers_max: int) -> list[Writer]:
        found = [each for each in self._writers.values() if each.name > after]
        if owner is not None:
            found = [each for each in found if each.owner == owner]
        return sorted(found, key=lambda each: each.name.encode())[:writers_max]

    @at_once
    def idle_writers(self, keep: bool, before: int, writers_max: int) -> list[Writer]:
        staged = {key.writer for key in self._stages}
        found = [each for each in self._writers.values() if each.keep == keep and each.at <= before]
        found = [each for each in found if each.name not in staged]
        return sorted(found, key=lambda each: (each.at, each.name))[:writers_max]

    @at_once
    def forget_writers(self, names: Sequence[str]) -> None:
        for name in names:
            self._writers.pop(name, None)
            self._commits.pop(name, None)

    @at_once
    def forget_commit(self, writer: str, topics: Targets) -> bool:
        last = self._last(writer, topics)
        if last is None or last.batch == FORGOTTEN:
            return False
        by = self._commits[writer]
        by.pop(topics, None)
        if None in by:
            by[topics] = Commit(writer, FORGOTTEN, last.at, topics)
        return True

    def _log(self, ledger: int) -> MemoryLog:
        """A log; if there is none, an empty one that is not stored."""
        return self._logs.get(ledger) or MemoryLog(ledger, "")
