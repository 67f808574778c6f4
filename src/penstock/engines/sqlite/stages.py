"""Staged entries, and their commit. See `schema` for how they lie in the file."""

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.engines.core.ports import no_log
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, Span, StagedRun, StageKey, Writer, too_many_commits

from .commits import commits_are_full, find_commit, save_commit, writer_of
from .logs import ENTRIES
from .rows import RowStatement, Statement, listed
from .schema import ENTRY_MASK, STAGING, first_id
from .work import Extent, Stage, Transaction

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


def stage(works: Sequence[Stage], transaction: Transaction) -> Iterator[Statement]:
    """The statements that store what is staged."""
    rows: list[Any] = []
    runs: list[Any] = []
    for work in works:
        missing = next((run.ledger for run in work.runs if transaction.extent(run.ledger) is None), None)
        if missing is not None:
            transaction.outcomes.append((work, no_log(missing)))
            continue
        extent = transaction.extent(STAGING)
        assert extent is not None
        row, byte = _BASE + extent.next_entry, extent.next_byte
        key = work.key
        for run in work.runs:
            if not run.entries:
                continue
            start, first_byte, messages, numbers = row, byte, 0, array("q")
            for entry in run.entries:
                size = len(entry.data)
                rows += (row, 0, entry.count, entry.publish_time, entry.deliver_at, byte, entry.data, None)
                numbers.extend((entry.count, size, entry.deliver_at))
                messages += entry.count
                row += 1
                byte += size
            runs += (start, key.writer, key.batch, key.stage, work.part, work.checksum, work.at)
            runs += (run.ledger, run.topic, messages, byte - first_byte, numbers.tobytes())
        transaction.changed[STAGING] = extent.until(row - _BASE, 0, byte)
        transaction.outcomes.append((work, None))
    yield from ENTRIES.over(rows)
    yield from _STAGES.over(runs)


def commit_stages(
    transaction: Transaction,
    commit: Commit,
    stages: Sequence[str],
    lost: Sequence[StageKey] = (),
    commits_max: int = 0,
) -> Commit:
    """Append what was staged, or say what the writer committed before."""
    connection = transaction.connection
    last = find_commit(connection, commit.writer, commit.topics)
    if last is not None and last.batch >= commit.batch:
        return last
    if commits_are_full(connection, commit, commits_max):
        raise too_many_commits(commits_max)
    held: dict[str, list[tuple[int, int, str, bytes]]] = {}
    for name, *run in connection.execute(_HELD, (commit.writer, commit.batch)):
        held.setdefault(name, []).append(tuple(run))
    for name in stages:
        if name not in held:
            raise PenstockError(ErrorKind.STAGE_NOT_FOUND, f"nothing is staged as {name}")
    won = [run for name in stages for run in held[name]]
    for _, ledger, _, _ in won:
        if transaction.extent(ledger) is None:
            raise no_log(ledger)
    made = msgspec.structs.replace(commit, spans=tuple(_append(transaction, won, commit.at)))
    transaction.execute(listed(_DROPPED, [run[0] for run in won]))
    drop_stages(transaction, lost)
    save_commit(connection, made)
    return made


def _append(transaction: Transaction, won: Sequence[tuple[int, int, str, bytes]], at: int) -> Iterator[Span]:
    """Give the staged entries their places in the logs; the span of each log."""
    topics = {ledger: topic for _, ledger, topic, _ in won}
    before: dict[int, Extent] = {}
    rows: list[Any] = []
    for held, ledger, _, blob in won:
        extent = transaction.extent(ledger)
        assert extent is not None
        before.setdefault(ledger, extent)
        row, offset, byte = first_id(ledger) + extent.next_entry, extent.next_offset, extent.next_byte
        numbers = array("q", blob)
        for each in range(0, len(numbers), _NUMBERS):
            count, size, deliver_at = numbers[each : each + _NUMBERS]
            rows += (row, offset, count, at, deliver_at, byte, held, None)
            row += 1
            held += 1
            offset += count
            byte += size
        transaction.changed[ledger] = extent.until(row - first_id(ledger), offset, byte)
    transaction.execute(ENTRIES.over(rows))
    for ledger, was in before.items():
        now = transaction.changed[ledger]
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


def repeat_commit(transaction: Transaction, commit: Commit, keys: Sequence[StageKey]) -> None:
    """Note which stages a repeat had, and drop them."""
    save_commit(transaction.connection, commit)
    drop_stages(transaction, keys)


def drop_stages(transaction: Transaction, keys: Sequence[StageKey]) -> None:
    """Delete stages; the sweeps free the room of their entries."""
    where = "WHERE writer = ? AND batch = ? AND stage = ?"
    query = f"SELECT start, length(numbers) FROM stages {where}"  # noqa: S608
    for key in keys:
        names = msgspec.structs.astuple(key)
        for start, numbers_bytes in transaction.connection.execute(query, names).fetchall():
            entries = numbers_bytes // (_NUMBERS * array("q").itemsize)
            transaction.free(start, start + entries)
        transaction.connection.execute(f"DELETE FROM stages {where}", names)  # noqa: S608


def load_stages(connection: sqlite3.Connection) -> tuple[list[StagedRun], list[Writer]]:
    """What is staged, and the writers that staged it."""
    runs = [
        StagedRun(StageKey(writer, batch, name), *numbers)
        for writer, batch, name, *numbers in connection.execute(
            "SELECT writer, batch, stage, part, checksum, at, ledger, topic, messages, size_bytes FROM stages"
        )
    ]
    return runs, [writer_of(row) for row in connection.execute(_STAGING)]
