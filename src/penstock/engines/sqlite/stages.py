"""Staged entries, their writers, and the last commit of each writer to a set of topics. `schema` has the tables.

A set of topics is a JSON array of their names; the empty text is a commit from before commits
named their topics (version 2 of the tables).
"""

import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from penstock.engines.core.ports import no_log
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import (
    FORGOTTEN,
    Commit,
    Span,
    StagedRun,
    StageKey,
    Target,
    Targets,
    Writer,
    too_many_commits,
)

from .logs import ENTRIES
from .schema import ENTRY_MASK, STAGING, first_id, number
from .work import Extent, RowStatement, Stage, Statement, Transaction, listed

_UNNAMED: Final = ""  # sorts before every array
_FIND_COMMIT: Final = """
    SELECT writer, topics, batch, at, keep, stages, spans FROM commits
    WHERE writer = ? AND topics IN (?, '') ORDER BY topics DESC LIMIT 1
"""
_SAVE_COMMIT: Final = """
    INSERT OR REPLACE INTO commits
    SELECT ?, ?, ?, ?, coalesce((SELECT origin FROM writers WHERE name = ?1), ''), ?, ?, ?, ?
"""
_COMMITTED: Final = "UPDATE writers SET at = max(at, ?), keep = max(keep, ?) WHERE name = ?"
_COMMITS: Final = """
    SELECT NOT EXISTS (SELECT 1 FROM commits WHERE writer = ?1 AND topics = ?2) AND (
        SELECT count(*) FROM commits
        WHERE origin = coalesce((SELECT origin FROM writers WHERE name = ?1), '')
    ) >= ?3
"""
_SAVE_WRITER: Final = """
    INSERT INTO writers VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        owner = excluded.owner, origin = excluded.origin, at = excluded.at, keep = max(keep, excluded.keep)
"""
_IDLE: Final = """
    SELECT * FROM writers WHERE keep = ? AND at <= ? AND name NOT IN (SELECT writer FROM stages)
    ORDER BY at, name LIMIT ?
"""
_spans: Final = msgspec.json.Decoder(tuple[Span, ...])
_names: Final = msgspec.json.Decoder(Targets)
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


def commits_are_full(connection: sqlite3.Connection, commit: Commit, commits_max: int) -> bool:
    """Whether a commit would be one more than the writer's origin may have."""
    if not commits_max:
        return False
    key = (commit.writer, _text(commit.topics), commits_max)
    return bool(number(connection, _COMMITS, *key))


def find_commit(connection: sqlite3.Connection, writer: str, topics: Targets | None) -> Commit | None:
    """The last commit to these topics, or one that counts for all."""
    row = connection.execute(_FIND_COMMIT, (writer, _text(topics))).fetchone()
    if row is None:
        return None
    name, text, batch, at, keep, stages, spans = row
    return Commit(name, batch, at, _topics(text), bool(keep), stages, _spans.decode(spans))


def save_commit(connection: sqlite3.Connection, commit: Commit) -> None:
    """Store a commit in place of the one before it, and note that its writer is in use."""
    spans = msgspec.json.encode(commit.spans)
    row = (commit.writer, _text(commit.topics), commit.batch, commit.at)
    connection.execute(_SAVE_COMMIT, (*row, commit.keep, commit.messages, commit.stages, spans))
    connection.execute(_COMMITTED, (commit.at, commit.keep, commit.writer))


def save_writer(transaction: Transaction, writer: Writer, writers_max: int = 0) -> bool:
    """Store a writer, unless it is one too many."""
    connection = transaction.connection
    if writers_max:
        known = connection.execute("SELECT 1 FROM writers WHERE name = ?", (writer.name,)).fetchone()
        query = "SELECT count(*) FROM writers WHERE origin = ?"
        if known is None and number(connection, query, writer.origin) >= writers_max:
            return False
    connection.execute(_SAVE_WRITER, msgspec.structs.astuple(writer))
    return True


def forget_writers(transaction: Transaction, names: Sequence[str]) -> None:
    """Delete writers with their commits."""
    for table, column in (("writers", "name"), ("commits", "writer")):
        transaction.execute(listed(f"DELETE FROM {table} WHERE {column} IN ({{}})", names))  # noqa: S608


def forget_commit(transaction: Transaction, writer: str, topics: Targets) -> bool:
    """Delete the commit to one set of topics. One that counts for all sets no longer counts for this."""
    connection = transaction.connection
    last = find_commit(connection, writer, topics)
    if last is None or last.batch == FORGOTTEN:
        return False
    query = "DELETE FROM commits WHERE writer = ? AND topics = ?"
    connection.execute(query, (writer, _text(topics)))
    if connection.execute(query.replace("DELETE", "SELECT 1"), (writer, _UNNAMED)).fetchone():
        save_commit(connection, Commit(writer, FORGOTTEN, last.at, topics))
    return True


def find_writer(connection: sqlite3.Connection, name: str) -> Writer | None:
    """A writer by its name."""
    row = connection.execute("SELECT * FROM writers WHERE name = ?", (name,)).fetchone()
    return None if row is None else writer_of(row)


def list_targets(connection: sqlite3.Connection, writer: str) -> list[Target]:
    """The last commits of a writer."""
    query = "SELECT topics, batch, at, messages, keep FROM commits WHERE writer = ? AND batch >= 0 ORDER BY topics"
    return [
        Target(_topics(topics), batch, at, messages, bool(keep))
        for topics, batch, at, messages, keep in connection.execute(query, (writer,))
    ]


def list_writers(
    connection: sqlite3.Connection, after: str, owner: str | None, writers_max: int
) -> list[Writer]:
    """Writers in the order of their names."""
    where, values = ("", ()) if owner is None else ("AND owner = ?", (owner,))
    query = f"SELECT * FROM writers WHERE name > ? {where} ORDER BY name LIMIT ?"  # noqa: S608
    return [writer_of(row) for row in connection.execute(query, (after, *values, writers_max))]


def idle_writers(connection: sqlite3.Connection, keep: bool, before: int, writers_max: int) -> list[Writer]:
    """Writers without stages that were last in use at `before` or earlier."""
    return [writer_of(row) for row in connection.execute(_IDLE, (keep, before, writers_max))]


def writer_of(row: tuple[Any, ...]) -> Writer:
    """A writer of its row."""
    name, owner, origin, at, keep = row
    return Writer(name, owner, origin, at, bool(keep))


def _text(topics: Targets | None) -> str:
    return _UNNAMED if topics is None else msgspec.json.encode(topics).decode()


def _topics(text: str) -> Targets | None:
    return None if text == _UNNAMED else _names.decode(text)


def staging_extent(connection: sqlite3.Connection) -> Extent:
    """The end of the ledger of staged entries: ids in use are not assigned again."""
    row = connection.execute(_END, (_BASE,)).fetchone()
    return Extent(STAGING) if row is None else Extent(STAGING).until((row[0] & ENTRY_MASK) + 1, 0, row[1])


def stage(works: Sequence[Stage], transaction: Transaction) -> Iterator[Statement]:
    """The statements that store staged entries."""
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
    """Append the staged entries, or return the writer's earlier commit."""
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
    """Stages and their writers."""
    runs = [
        StagedRun(StageKey(writer, batch, name), *numbers)
        for writer, batch, name, *numbers in connection.execute(
            "SELECT writer, batch, stage, part, checksum, at, ledger, topic, messages, size_bytes FROM stages"
        )
    ]
    return runs, [writer_of(row) for row in connection.execute(_STAGING)]
