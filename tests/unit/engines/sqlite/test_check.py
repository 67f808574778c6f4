"""A storage that is damaged in each way is told of, and one that is whole is not."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.storage import decode
from penstock.engines.core.broker import Broker
from penstock.engines.core.ports import CursorChange
from penstock.engines.memory import MemoryStore
from penstock.engines.sqlite.check import Report, check
from penstock.engines.sqlite.schema import STAGING, first_id
from penstock.engines.sqlite.store import FILE_NAME, SqliteStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.stage import Commit, StageKey, StageRun, Writer
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

A, B = "persistent://public/default/a", "persistent://public/default/b-partition-0"
DIVIDED = "its run cannot be divided into entries"
SECOND = "public/default/a\0" + "0" * 9 + "1"  # of the versions of a schema


def report_of(folder: Path) -> Report:
    return check(folder, decode)


async def fill(folder: Path) -> None:
    store = SqliteStore(folder)
    await store.start()
    await store.save_meta(
        [
            ("topic", A, b"{}"),
            ("topic", B.removesuffix("-partition-0"), b'{"partitions":1}'),
            ("schema", "public/default/a\0" + "0" * 10, b'{"type":1,"timestamp":1}'),
            ("schema", SECOND, b'{"type":1,"timestamp":1}'),
            ("epoch", A, b"3"),
            ("compaction", f"{A}\0horizon", b"10"),
            ("compaction", f"{A}\0" + "0", b"\xff\0"),
        ]
    )
    for topic in (A, B):
        log = await store.open(topic)
        for number in range(10):
            entry = wire.encode(
                [OutMessage(payload=b"x" * 100), OutMessage(payload=b"y")],
                producer="p",
                sequence_id=2 * number,
                publish_time=number,
                schema_version=None,
            )
            await store.append(log.ledger, [entry])
        bits = (1 << 18).to_bytes(512, "little")
        await store.save_cursors([CursorChange(log.ledger, "s", 5, {0: bits})])
    await store.trim(0, 3)
    await store.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    asyncio.run(fill(folder))
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    (tmp_path / FILE_NAME).write_bytes((whole / FILE_NAME).read_bytes())
    return tmp_path


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


def test_whole(folder: Path) -> None:
    report = report_of(folder)
    assert report.findings == []
    assert (report.topics, report.logs, report.entries, report.messages) == (2, 2, 17, 34)
    assert (report.cursors, report.schemas) == (2, 2)


async def fill_run(folder: Path) -> None:
    store = SqliteStore(folder)
    await store.start()
    await store.save_meta([("topic", A, b"{}")])
    log = await store.open(A)
    messages = [OutMessage(payload=b"%d" % number, sequence_id=number) for number in range(20)]
    await store.append(log.ledger, wire.encode_each(messages, producer="p", publish_time=1))
    await store.trim(log.ledger, 5)
    await store.close()


async def test_a_run_whose_first_entries_were_trimmed_is_whole(tmp_path: Path) -> None:
    await fill_run(tmp_path)
    report = report_of(tmp_path)
    assert report.findings == []
    assert (report.entries, report.messages) == (15, 15)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE entries SET sizes = x'01'", DIVIDED),
        ("UPDATE entries SET count = 19", DIVIDED),
        ("UPDATE entries SET data = substr(data, 2)", DIVIDED),
        ("UPDATE entries SET sizes = hex(sizes)", DIVIDED),
        ("UPDATE entries SET data = 7", DIVIDED),
        ("UPDATE entries SET data = zeroblob(length(data))", ""),
        ("UPDATE entries SET id = id + 1", "the one before ends at (5, 5, "),
        ("UPDATE logs SET first_offset = 4", "it begins at (5, 5, "),
    ],
)
async def test_a_damaged_run(tmp_path: Path, statement: str, message: str) -> None:
    await fill_run(tmp_path)
    change(tmp_path, statement)
    findings = report_of(tmp_path).findings
    assert findings
    assert any(finding.place.startswith(A) and message in finding.message for finding in findings)


def last_byte(folder: Path) -> None:
    """The last byte of an entry is another."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        data = connection.execute("SELECT data FROM entries WHERE id = ?", (first_id(1),)).fetchone()[0]
    change(folder, "UPDATE entries SET data = ? WHERE id = ?", data[:-1] + b"\xff", first_id(1))


DAMAGE: dict[str, tuple[Callable[[Path], None] | tuple[object, ...], str, str]] = {
    "checksum": (last_byte, B, "checksum is wrong"),
    "cut short": (
        ("UPDATE entries SET data = x'0e01' WHERE id = ?", first_id(1) + 9),
        B,
        "ends within its checksum",
    ),
    "a gap": (
        ("DELETE FROM entries WHERE id = ?", first_id(1) + 4),
        B,
        "it begins at (5, 10, ",
    ),
    "the last after a trim": (
        ("DELETE FROM entries WHERE id >= 5 AND id < 100",),
        A,
        "its last entries are missing: it ends at 5, and was at 10",
    ),
    "offsets": (
        ("UPDATE entries SET first_offset = first_offset + 1 WHERE id = ?", first_id(1) + 4),
        B,
        "it begins at (4, 9, ",
    ),
    "bytes": (
        ("UPDATE entries SET first_byte = first_byte + 1 WHERE id = ?", first_id(1) + 4),
        B,
        "it begins at (4, 8, ",
    ),
    "count": (("UPDATE entries SET count = 3 WHERE id = ?", first_id(1) + 9), B, "stored with 3"),
    "no log": (("DELETE FROM logs WHERE ledger = 1",), "ledger 1", "no log"),
    "no topic": (("DELETE FROM meta WHERE key = ?", A), A, "a log of no topic"),
    "topic's document": (
        ("UPDATE meta SET document = x'00' WHERE key = ?", A),
        f"topic {A!r}",
        "cannot be read",
    ),
    "mark": (("UPDATE cursors SET mark = 21 WHERE ledger = 1",), f"{B}, subscription 's'", "mark is 21"),
    "cursor's log": (("UPDATE cursors SET ledger = 7 WHERE ledger = 1",), "subscription 's'", "ledger 7"),
    "version": (("PRAGMA user_version = 99",), "the file", "version 99"),
    "another program's": (("PRAGMA application_id = 1",), "the file", "not written by Penstock"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage(folder: Path, name: str) -> None:
    damage, place, said = DAMAGE[name]
    if callable(damage):
        damage(folder)
    elif str(damage[0]).startswith("PRAGMA"):
        with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
            connection.execute(str(damage[0]))
    else:
        change(folder, str(damage[0]), *damage[1:])
    report = report_of(folder)
    assert not report.sound
    assert any(found.place.startswith(place) and said in found.message for found in report.findings), (
        report.findings
    )


def test_a_page_that_is_overwritten(folder: Path) -> None:
    file = folder / FILE_NAME
    content = bytearray(file.read_bytes())
    content[8192 * 2 : 8192 * 4] = b"\xff" * 16384
    file.write_bytes(content)
    assert not report_of(folder).sound


def test_no_storage(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        report_of(tmp_path)
    assert caught.value.kind is ErrorKind.NOT_FOUND


def test_while_the_store_is_open(folder: Path) -> None:
    async def run() -> Report:
        store = SqliteStore(folder)
        await store.start()
        try:
            await store.open(A)
            return await asyncio.to_thread(report_of, folder)
        finally:
            await store.close()

    assert asyncio.run(run()).findings == []


async def test_an_entry_whose_staged_data_are_missing(folder: Path) -> None:
    store = SqliteStore(folder)
    await store.start()
    log = await store.open(A)
    entry = wire.encode_plain([b"x"], producer="w", sequence_id=1, publish_time=1, schema_version=None)
    await store.stage(StageKey("w", 1, "s"), 0, 0, 1, [StageRun(log.ledger, A, [entry])])
    await store.save_writer(Writer("w", "", "", 9))
    await store.commit_stages(Commit("w", 1, 9, (A,)), ["s"])
    await store.close()
    report = report_of(folder)
    assert report.findings == []
    assert (report.entries, report.messages) == (18, 35)
    change(folder, "DELETE FROM entries WHERE id >= ?", first_id(STAGING))
    [found] = report_of(folder).findings
    assert found.place == f"{A}, entry 10"
    assert "its data is missing" in found.message


@pytest.mark.parametrize(
    ("kind", "key", "document"),
    [
        ("topic-policies", A, "{"),
        ("topic-policies", "a/b", "{}"),
        ("namespace", "public/default", '{"permissions": 1}'),
        ("namespace", "public", "{}"),
        ("tenant", "acme", "[]"),
        ("tenant", "a/b", "{}"),
    ],
)
def test_documents_that_no_server_can_read(
    whole: Path, tmp_path: Path, kind: str, key: str, document: str
) -> None:
    put(whole, tmp_path, kind, key, document)
    (finding,) = report_of(tmp_path).findings
    assert finding.place == f"{kind} {key!r}"
    assert "cannot be read" in finding.message


def put(whole: Path, folder: Path, kind: str, key: str, document: str) -> None:
    (folder / FILE_NAME).write_bytes((whole / FILE_NAME).read_bytes())
    row = kind, key, document.encode()
    change(folder, "INSERT OR REPLACE INTO meta (kind, key, document) VALUES (?, ?, ?)", *row)


@pytest.mark.parametrize(
    ("kind", "key", "document"),
    [
        ("schema", SECOND, '{"type": not json'),
        ("schema", SECOND, '{"type": 99, "timestamp": 1}'),
        ("schema", SECOND, '{"type": 1, "timestamp": 1, "data": "a"}'),
        ("schema", "public/default/a\0first", '{"type": 1, "timestamp": 1}'),
        ("epoch", A, "first"),
        ("compaction", f"{A}\0horizon", "end"),
        ("compaction", f"{A}\0block", ""),
    ],
)
async def test_documents_that_a_server_reports_when_it_starts(
    whole: Path, tmp_path: Path, kind: str, key: str, document: str
) -> None:
    put(whole, tmp_path, kind, key, document)
    (finding,) = report_of(tmp_path).findings
    assert finding.place == f"{kind} {key!r}"
    broker = Broker(SqliteStore(tmp_path), MemoryStore(), wire, ManualClock())
    await broker.start()
    subjects = [failure.subject for failure in broker.failures.ongoing]
    await broker.close()
    assert subjects == [f"{kind} {key}".replace("\0", " ")]
