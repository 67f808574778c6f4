"""What is staged, the writers, and their last commits, in dictionaries."""

from collections.abc import Sequence

import msgspec

from penstock.engines.core.ports import no_log
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

from .log import MemoryLog, at_once


class MemoryStages:
    """The stages, commits and writers of a memory store, over its logs."""

    def __init__(self) -> None:
        self._logs: dict[int, MemoryLog] = {}
        self._stages: dict[StageKey, list[tuple[StagedRun, StageRun]]] = {}
        self._writers: dict[str, Writer] = {}
        self._commits: dict[str, dict[Targets | None, Commit]] = {}

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
