"""A storage that is damaged in each way is told of, and one that is whole is not."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cli.storage import decode
from penstock.engines.core.ports import CursorChange
from penstock.engines.sqlite.check import Report, check
from penstock.engines.sqlite.schema import STAGING, first_id
from penstock.engines.sqlite.store import FILE_NAME, SqliteStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.stage import Commit, StageKey, StageRun, Writer
from penstock.wire import entry as wire

A, B = "persistent://public/default/a", "persistent://public/default/b-partition-0"
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
            ("schema", "public/default/a\0" + "0" * 10, b'{"type":1}'),
            ("schema", SECOND, b'{"type":1}'),
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
        ("UPDATE entries SET sizes = x'01'", "its 20 entries cannot be told apart: it has 0 sizes"),
        ("UPDATE entries SET count = 19", "has 20 sizes"),
        ("UPDATE entries SET data = substr(data, 2)", "has 20 sizes"),
        ("UPDATE entries SET sizes = hex(sizes)", "it has 0 sizes"),
        ("UPDATE entries SET data = 7", "it has 0 sizes"),
        ("UPDATE entries SET data = zeroblob(length(data))", ""),
        ("UPDATE entries SET id = id + 1", "it begins at offset 4"),
        ("UPDATE logs SET first_offset = 4", "it begins at offset 5"),
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
        "entries 4 to 4 before it are missing",
    ),
    "the last after a trim": (
        ("DELETE FROM entries WHERE id >= 5 AND id < 100",),
        A,
        "its last entries are missing: it ends at 5, and was at 10",
    ),
    "offsets": (
        ("UPDATE entries SET first_offset = first_offset + 1 WHERE id = ?", first_id(1) + 4),
        B,
        "begins at offset 9",
    ),
    "bytes": (
        ("UPDATE entries SET first_byte = first_byte + 1 WHERE id = ?", first_id(1) + 4),
        B,
        "begins at offset 8 and byte",
    ),
    "count": (("UPDATE entries SET count = 3 WHERE id = ?", first_id(1) + 9), B, "stored with 3"),
    "no log": (("DELETE FROM logs WHERE ledger = 1",), "ledger 1", "no log"),
    "ledger": (("UPDATE next_ledger SET ledger = 1",), B, "would be given to another topic"),
    "no topic": (("DELETE FROM meta WHERE key = ?", A), A, "a log of no topic"),
    "no partition": (
        ("UPDATE logs SET topic = ? WHERE ledger = 1", B[:-1] + "7"),
        B[:-1] + "7",
        "the topic has 1 partitions",
    ),
    "topic's document": (
        ("UPDATE meta SET document = x'00' WHERE key = ?", A),
        f"topic {A!r}",
        "cannot be read",
    ),
    "mark": (("UPDATE cursors SET mark = 21 WHERE ledger = 1",), f"{B}, subscription 's'", "mark is 21"),
    "cursor": (("DELETE FROM cursors WHERE ledger = 1",), f"{B}, subscription 's', chunk 0", "no cursor"),
    "cursor's log": (("UPDATE cursors SET ledger = 7 WHERE ledger = 1",), "subscription 's'", "ledger 7"),
    "chunk below": (
        ("UPDATE cursor_chunks SET chunk = 3 WHERE ledger = 1",),
        f"{B}, subscription 's', chunk 3",
        "acknowledged, and the log ends at 20",
    ),
    "empty chunk": (
        ("UPDATE cursor_chunks SET bits = zeroblob(512) WHERE ledger = 1",),
        f"{B}, subscription 's', chunk 0",
        "none of them set",
    ),
    "producer": (("UPDATE producers SET ledger = 9 WHERE ledger = 1",), "producer 'p'", "ledger 9"),
    "schema": (
        ("UPDATE meta SET key = ? WHERE key = ?", SECOND[:-1] + "3", SECOND),
        "schema of public/default/a",
        "version 1 is missing",
    ),
    "schema's document": (
        ("UPDATE meta SET document = x'00' WHERE key = ?", SECOND),
        "schema of public/default/a",
        "cannot be read",
    ),
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


async def stage(folder: Path) -> None:
    """Commit a batch that was staged, and stage another that is not committed."""
    store = SqliteStore(folder)
    await store.start()
    log = await store.open(A)
    for batch in (1, 2):
        entry = wire.encode_plain(
            [b"staged"], producer="w", sequence_id=batch, publish_time=1, schema_version=None
        )
        await store.stage(StageKey("w", batch, "s"), 0, 0, 1, [StageRun(log.ledger, A, [entry])])
    await store.save_writer(Writer("w", "", "", 9))
    await store.commit_stages(Commit("w", 1, 9, (A,)), ["s"])
    await store.commit_stages(Commit("w", 0, 9, None), [])
    await store.forget_commit("w", ())
    await store.close()


def test_what_was_staged(folder: Path) -> None:
    asyncio.run(stage(folder))
    report = report_of(folder)
    assert report.findings == []
    assert (report.entries, report.messages) == (18, 35)
    change(folder, "DELETE FROM entries WHERE id >= ?", first_id(STAGING))
    found = report_of(folder).findings
    assert [(one.place, one.message) for one in found] == [
        (f"{A}, entry 10", "its data, which was staged, is missing"),
        (
            "writer 'w', batch 2, stage 's', part 0",
            "of its 1 entries with 23 bytes, 0 with 0 bytes are there",
        ),
    ]


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("DELETE FROM writers", "there is no such writer"),
        ("UPDATE commits SET batch = -2", "its batch is -2"),
        ("UPDATE commits SET messages = 7 WHERE messages", "it says that it has 7 messages"),
        ("UPDATE commits SET spans = '{'", "it cannot be read"),
        ("UPDATE commits SET topics = '[\"t\"]' WHERE topics <> ''", "no ordered set of full names"),
        ("UPDATE stages SET messages = 9", "it says that it has 9 messages"),
        ("UPDATE stages SET numbers = x'00'", "its entries differ"),
    ],
)
def test_stages_and_commits_that_are_wrong(folder: Path, statement: str, text: str) -> None:
    asyncio.run(stage(folder))
    if "topics =" in statement:
        change(folder, "DELETE FROM commits WHERE batch < 1")
    change(folder, statement)
    findings = report_of(folder).findings
    assert findings
    assert all(text in finding.message for finding in findings), findings


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
    (tmp_path / FILE_NAME).write_bytes((whole / FILE_NAME).read_bytes())
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.execute(
            "INSERT OR REPLACE INTO meta (kind, key, document) VALUES (?, ?, ?)", (kind, key, document)
        )
        connection.commit()
    (finding,) = report_of(tmp_path).findings
    assert finding.place == f"{kind} {key!r}"
    assert "cannot be read" in finding.message
