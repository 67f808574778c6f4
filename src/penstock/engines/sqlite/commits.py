"""The writers of staged batches, and the last commit of each to a set of topics.

A set of topics is a JSON array of their names; the empty text stands for a commit that was made before commits
named their topics (version 2 of the tables).
"""

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from penstock.model.stage import FORGOTTEN, Commit, Span, Target, Targets, Writer

from .rows import listed
from .schema import number
from .work import Transaction

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


def commits_are_full(connection: sqlite3.Connection, commit: Commit, commits_max: int) -> bool:
    """Whether a commit would be one more than the writer's origin may have."""
    if not commits_max:
        return False
    key = (commit.writer, _text(commit.topics), commits_max)
    return bool(number(connection, _COMMITS, *key))


def find_commit(connection: sqlite3.Connection, writer: str, topics: Targets | None) -> Commit | None:
    """The last commit to these topics, or one that stands for all."""
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
    """Delete the commit to one set of topics. One that stands for all sets no longer stands for this."""
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
