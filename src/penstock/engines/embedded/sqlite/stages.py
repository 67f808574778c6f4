"""Staged entries, and their commit. See `schema` for how they lie in the file."""

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Span, StagedRun, StageKey, Writer, too_many_commits

from .commits import commits_are_full, find_commit, save_commit, writer_of
from .extent import Extent
from .logs import ENTRIES, let_go
from .rows import RowStatement, Statement, listed
from .schema import ENTRY_MASK, STAGING, first_id
from .staged import Staged
from .work import CommitStages, DropStages, RepeatCommit, Stage

_STAGES: Final = RowStatement.insert("stages", 12)
_BASE: Final = first_id(STAGING)

# Of each entry: how many messages, how many bytes, and when to be delivered.
_NUMBERS: Final = 3

_END: Final = "SELECT id, first_byte + length(data) FROM entries WHERE id >= ? ORDER BY id DESC LIMIT 1"
_HELD: Final = """
    SELECT stage, start, ledger, topic, numbers FROM stages
    WHERE writer = ? AND batch = ? ORDER BY part, start
"""
_DROPPED: Final = "DELETE FROM stages WHERE start IN ({})"
_STAGING: Final = "SELECT * FROM writers WHERE name IN (SELECT writer FROM stages)"


def staging_extent(connection: sqlite3.Connection) -> Extent:
    """Where the ledger of staged entries ends: ids in use are not given again."""
    row = connection.execute(_END, (_BASE,)).fetchone()
    return Extent(STAGING) if row is None else Extent(STAGING).until((row[0] & ENTRY_MASK) + 1, 0, row[1])


def stage(works: Sequence[Stage], staged: Staged) -> Iterator[Statement]:
    """The statements that keep what is staged."""
    rows: list[Any] = []
    runs: list[Any] = []
    for work in works:
        missing = next((run.ledger for run in work.runs if staged.extent(run.ledger) is None), None)
        if missing is not None:
            staged.refuse(work, missing)
            continue
        extent = staged.extent(STAGING)
        assert extent is not None
        row, byte = _BASE + extent.next_entry, extent.next_byte
        key = work.key
        for run in work.runs:
            if not run.entries:
                continue
            start, first_byte, messages, numbers = row, byte, 0, array("q")
            for entry in run.entries:
                size = len(entry.data)
                rows += (row, 0, entry.count, entry.publish_time, entry.deliver_at, byte, entry.data)
                numbers.extend((entry.count, size, entry.deliver_at))
                messages += entry.count
                row += 1
                byte += size
            runs += (start, key.writer, key.batch, key.stage, work.part, work.checksum, work.at)
            runs += (run.ledger, run.topic, messages, byte - first_byte, numbers.tobytes())
        staged.changed[STAGING] = extent.until(row - _BASE, 0, byte)
        staged.outcomes.append((work, None))
    yield from ENTRIES.over(rows)
    yield from _STAGES.over(runs)


def commit_stages(connection: sqlite3.Connection, work: CommitStages, staged: Staged) -> None:
    """Append what was staged, or say what the writer committed before."""
    commit = work.commit
    last = find_commit(connection, commit.writer, commit.topics)
    if last is not None and last.batch >= commit.batch:
        staged.outcomes.append((work, last))
        return
    if commits_are_full(connection, commit, work.commits_max):
        staged.outcomes.append((work, too_many_commits(work.commits_max)))
        return
    held: dict[str, list[tuple[int, int, str, bytes]]] = {}
    for name, *run in connection.execute(_HELD, (commit.writer, commit.batch)):
        held.setdefault(name, []).append(tuple(run))
    for name in work.stages:
        if name not in held:
            error = PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {name}")
            staged.outcomes.append((work, error))
            return
    won = [run for name in work.stages for run in held[name]]
    for run in won:
        if staged.extent(run[1]) is None:
            staged.refuse(work, run[1])
            return
    spans = tuple(_append(connection, won, commit.at, staged))
    for statement in listed(_DROPPED, [run[0] for run in won]):
        connection.execute(*statement)
    _drop(connection, work.lost, staged)
    made = msgspec.structs.replace(commit, spans=spans)
    save_commit(connection, made)
    staged.outcomes.append((work, made))


def _append(
    connection: sqlite3.Connection,
    won: Sequence[tuple[int, int, str, bytes]],
    at: int,
    staged: Staged,
) -> Iterator[Span]:
    """Give the staged entries their places in the logs; the span of each log."""
    topics = {ledger: topic for _, ledger, topic, _ in won}
    before: dict[int, Extent] = {}
    rows: list[Any] = []
    for held, ledger, _, blob in won:
        extent = staged.extent(ledger)
        assert extent is not None
        before.setdefault(ledger, extent)
        row, offset, byte = first_id(ledger) + extent.next_entry, extent.next_offset, extent.next_byte
        numbers = array("q", blob)
        for each in range(0, len(numbers), _NUMBERS):
            count, size, deliver_at = numbers[each : each + _NUMBERS]
            rows += (row, offset, count, at, deliver_at, byte, held)
            row += 1
            held += 1
            offset += count
            byte += size
        staged.changed[ledger] = extent.until(row - first_id(ledger), offset, byte)
    for statement in ENTRIES.over(rows):
        connection.execute(*statement)
    for ledger, was in before.items():
        now = staged.changed[ledger]
        assert now is not None
        yield Span(
            topic=topics[ledger],
            ledger=ledger,
            entry_id=was.next_entry,
            entries=now.next_entry - was.next_entry,
            offset=was.next_offset,
            messages=now.next_offset - was.next_offset,
            size_bytes=now.next_byte - was.next_byte,
        )


def repeat_commit(connection: sqlite3.Connection, work: RepeatCommit, staged: Staged) -> None:
    """Keep which stages a repeat had, and let go of them."""
    save_commit(connection, work.commit)
    _drop(connection, work.keys, staged)
    staged.outcomes.append((work, None))


def drop_stages(connection: sqlite3.Connection, work: DropStages, staged: Staged) -> None:
    """Let go of stages; the sweeps free the room."""
    _drop(connection, work.keys, staged)
    staged.outcomes.append((work, None))


def _drop(connection: sqlite3.Connection, keys: Sequence[StageKey], staged: Staged) -> None:
    for key in keys:
        where = "WHERE writer = ? AND batch = ? AND stage = ?"
        names = (key.writer, key.batch, key.stage)
        query = f"SELECT start, length(numbers) FROM stages {where}"  # noqa: S608
        for start, numbers in connection.execute(query, names).fetchall():
            let_go(connection, start, start + _entries(numbers), staged)
        connection.execute(f"DELETE FROM stages {where}", names)  # noqa: S608


def load(connection: sqlite3.Connection) -> tuple[list[StagedRun], list[Writer]]:
    """What is staged, and the writers that staged it."""
    runs = [
        StagedRun(StageKey(writer, batch, name), *numbers)
        for writer, batch, name, *numbers in connection.execute(
            "SELECT writer, batch, stage, part, checksum, at, ledger, topic, messages, size_bytes FROM stages"
        )
    ]
    return runs, [writer_of(row) for row in connection.execute(_STAGING)]


def _entries(numbers_bytes: int) -> int:
    return numbers_bytes // (_NUMBERS * array("q").itemsize)
