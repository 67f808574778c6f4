"""Statements over many rows, executed by SQLite."""

import sqlite3
from collections.abc import Iterator

import pytest

from penstock.engines.sqlite import work
from penstock.engines.sqlite.work import RowStatement, listed


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a INTEGER, b TEXT, c BLOB, PRIMARY KEY (a, b)) WITHOUT ROWID")
    yield connection
    connection.close()


def run(connection: sqlite3.Connection, statement: RowStatement, values: list[object]) -> int:
    """Execute it; returns how many statements it took."""
    count = 0
    for text, parameters in statement.over(values):
        connection.execute(text, parameters)
        count += 1
    return count


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, work.ROWS_MAX - 1, work.ROWS_MAX, work.ROWS_MAX * 2 + 3])
def test_every_row_is_inserted_once_and_deleted_once(connection: sqlite3.Connection, size: int) -> None:
    values = [value for n in range(size) for value in (n, str(n), None)]
    count = run(connection, RowStatement.insert("t", 3), list(values))

    assert connection.execute("SELECT * FROM t ORDER BY a").fetchall() == [
        (n, str(n), None) for n in range(size)
    ]
    assert count == -(-size // work.ROWS_MAX)
    keys = [value for n in range(0, size, 2) for value in (n, str(n))]
    run(connection, RowStatement.delete("t", ("a", "b")), list(keys))
    assert [row[0] for row in connection.execute("SELECT a FROM t ORDER BY a")] == list(range(1, size, 2))


def test_a_conflict_updates(connection: sqlite3.Connection) -> None:
    statement = RowStatement.insert("t", 3, "ON CONFLICT DO UPDATE SET c = excluded.c")
    run(connection, statement, [1, "x", b"old", 2, "x", b"stays"])
    run(connection, statement, [1, "x", b"new", 3, "x", b"", 4, "x", b""])

    found = connection.execute("SELECT a, c FROM t ORDER BY a").fetchall()
    assert found == [(1, b"new"), (2, b"stays"), (3, b""), (4, b"")]


def test_texts_are_few() -> None:
    statement = RowStatement.insert("t", 1)
    texts = {text for size in range(1, work.ROWS_MAX) for text, _ in statement.over([0] * size)}

    assert len(texts) == work.ROWS_MAX.bit_length()


@pytest.mark.parametrize("size", [0, 1, 3, work.ROWS_MAX + 1])
def test_listed(connection: sqlite3.Connection, size: int) -> None:
    run(connection, RowStatement.insert("t", 3), [value for n in range(size) for value in (n, "", b"")])
    query = "SELECT a FROM t WHERE a IN ({})"
    found = [
        row[0] for text, values in listed(query, range(size)) for row in connection.execute(text, values)
    ]

    assert sorted(found) == list(range(size))


def test_the_largest_statement_is_within_sqlites_default_bounds(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 32766)
    connection.execute("CREATE TABLE wide (a, b, c, d, e, f, g, h)")
    run(connection, RowStatement.insert("wide", 8), [1] * 8 * work.ROWS_MAX)

    assert connection.execute("SELECT count(*) FROM wide").fetchone() == (work.ROWS_MAX,)
