"""Versions of the file: made, migrated, refused."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.check import check
from penstock.engines.sqlite.connection import open_writer
from penstock.engines.sqlite.schema import APPLICATION_ID, MIGRATIONS, VERSION, first_id, prepare
from penstock.engines.sqlite.store import FILE_NAME
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, Span, Target, Writer


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(tmp_path / FILE_NAME)
    yield connection
    connection.close()


def number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def tables(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def add_a_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE later (id INTEGER)")


def fail_half_way(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE half (id INTEGER)")
    raise sqlite3.OperationalError("no more")


def test_an_empty_file_gets_the_newest_version(connection: sqlite3.Connection) -> None:
    prepare(connection)

    assert number(connection, "user_version") == VERSION == len(MIGRATIONS)
    assert number(connection, "application_id") == APPLICATION_ID
    assert number(connection, "synchronous") == 2
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert "entries" in tables(connection)


def test_preparing_again_changes_nothing(connection: sqlite3.Connection) -> None:
    prepare(connection)
    connection.execute("INSERT INTO meta VALUES ('k', 'v', x'00')")
    prepare(connection)

    assert connection.execute("SELECT count(*) FROM meta").fetchone() == (1,)


def test_an_older_version_is_migrated_and_keeps_what_it_has(connection: sqlite3.Connection) -> None:
    prepare(connection)
    connection.execute("INSERT INTO meta VALUES ('k', 'v', x'00')")
    prepare(connection, (*MIGRATIONS, add_a_table))

    assert number(connection, "user_version") == VERSION + 1
    assert "later" in tables(connection)
    assert connection.execute("SELECT count(*) FROM meta").fetchone() == (1,)


def test_a_migration_that_fails_leaves_the_version_before(connection: sqlite3.Connection) -> None:
    prepare(connection)
    with pytest.raises(sqlite3.OperationalError):
        prepare(connection, (*MIGRATIONS, add_a_table, fail_half_way))

    assert number(connection, "user_version") == VERSION + 1
    assert "later" in tables(connection)
    assert "half" not in tables(connection)


def version_2(folder: Path) -> None:
    """A folder as a server left it before commits named their topics."""
    connection = open_writer(folder / FILE_NAME)
    prepare(connection, MIGRATIONS[:2])
    span = Span("persistent://public/default/a", 3, 0, 1, 0, 4, 8)
    rows = [("job", 7, 1000, "alice", 1, [span, span]), ("once-1", 0, 2000, "", 0, [])]
    for *values, spans in rows:
        row = (*values, msgspec.json.encode(spans))
        connection.execute("INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?)", row)
    for start, writer in enumerate(("job", "new")):
        row = (start, writer, 8, "s", 0, 0, 3000, 3, "persistent://public/default/a", 1, 1, b"")
        connection.execute(f"INSERT INTO stages VALUES ({', '.join('?' * 12)})", row)
    connection.close()


async def test_commits_of_version_2_count_for_all_topics(tmp_path: Path) -> None:
    version_2(tmp_path)
    store = SqliteStore(tmp_path)
    await store.start()
    try:
        writers = await store.list_writers("", None, 10)
        assert writers == [
            Writer("job", "alice", "alice", 1000, keep=True),
            Writer("new", "", "", 3000),
            Writer("once-1", "", "", 2000),
        ]
        runs, staging = await store.load_stages()
        assert ([run.key.writer for run in runs], staging) == (["job", "new"], writers[:2])
        for topics in ((), ("persistent://public/default/b",)):
            last = await store.find_commit("job", topics)
            assert last is not None
            assert (last.topics, last.batch, last.messages, last.stages) == (None, 7, 8, "")
            assert await store.commit_stages(Commit("job", 7, 9, topics), []) == last
        assert await store.list_targets("job") == [Target(None, 7, 1000, 8)]
        assert await store.list_targets("once-1") == [Target(None, 0, 2000, 0, keep=False)]
        made = await store.commit_stages(Commit("job", 8, 4000, ("a",)), [])
        assert await store.find_commit("job", ("a",)) == made
        assert await store.find_commit("job", ("b",)) == last
    finally:
        await store.close()


def version_3(folder: Path, entries: list[NewEntry]) -> None:
    """A folder as a server left it before entries shared rows."""
    connection = open_writer(folder / FILE_NAME)
    prepare(connection, MIGRATIONS[:3])
    connection.execute("INSERT INTO logs VALUES (0, 'persistent://public/default/a', 0, 0, 0, 0, 0, 0)")
    connection.execute("INSERT INTO meta VALUES ('topic', 'persistent://public/default/a', x'7b7d')")
    connection.execute("UPDATE next_ledger SET ledger = 1")
    for number, one in enumerate(entries):
        row = (number, number, 1, one.publish_time, 0, number * len(one.data), one.data)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.close()


async def test_entries_of_version_3_are_read_and_followed_by_runs(tmp_path: Path) -> None:
    sent = [NewEntry(b"%02d" % number, 1, 1) for number in range(20)]
    version_3(tmp_path, sent[:10])
    report = check(tmp_path, lambda _: None)
    assert (report.findings, report.version, report.entries) == ([], 3, 10)
    store = SqliteStore(tmp_path)
    await store.start()
    try:
        state = await store.open("persistent://public/default/a")
        assert (state.next_entry, state.next_offset, state.size_bytes) == (10, 10, 20)
        assert await store.append(0, sent[10:]) == AppendResult(10, 10)
        found = await store.read(0, 0, 100, 1000)
        assert [entry.data for entry in found] == [entry.data for entry in sent]
        assert [(entry.entry_id, entry.offset) for entry in found] == [(n, n) for n in range(20)]
    finally:
        await store.close()
    report = check(tmp_path, lambda _: None)
    assert (report.findings, report.version, report.entries) == ([], VERSION, 20)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (
            11,
        )  # the new ones share a row


def test_the_order_of_ids_is_the_order_of_ledgers_and_entries() -> None:
    assert first_id(0) == 0
    assert first_id(1) == 1 << 40
    assert first_id((1 << 23) - 1) < 1 << 63


async def refusal(folder: Path) -> str:
    store = SqliteStore(folder)
    with pytest.raises(PenstockError) as caught:
        await store.start()
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    return caught.value.message


async def test_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
        connection.execute("CREATE TABLE of_the_future (id INTEGER)")
    connection.close()

    assert f"version {VERSION + 1}, written by a newer Penstock" in await refusal(tmp_path)
    connection = sqlite3.connect(file)
    assert tables(connection) == {"of_the_future"}
    connection.close()


@pytest.mark.parametrize("owner", [0, 0x1234])
async def test_the_file_of_another_program_is_refused(tmp_path: Path, owner: int) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"PRAGMA application_id = {owner}")
        connection.execute("CREATE TABLE bookmarks (id INTEGER)")
    connection.close()

    assert "not written by Penstock" in await refusal(tmp_path)


async def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"a letter to the editor " * 1000)

    assert "not a database" in await refusal(tmp_path)
