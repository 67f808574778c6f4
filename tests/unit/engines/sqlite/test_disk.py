"""A disk that fails, as the writer meets it: what is refused, what goes on, and when it is over."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import until_async

from penstock.engines.core.ports import CursorChange
from penstock.engines.sqlite import SqliteStore, disk, tables
from penstock.engines.sqlite import folder as data_folder
from penstock.engines.sqlite.folder import RESERVE_NAME
from penstock.engines.sqlite.store import FILE_NAME
from penstock.engines.sqlite.tables import Tables
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

ENTRY = NewEntry(b"x", 1, 1)


def failure(code: int) -> sqlite3.OperationalError:
    made = sqlite3.OperationalError("so it goes")
    made.sqlite_errorcode = code
    return made


class Faults:
    """Makes commits and checkpoints fail with a code of SQLite, and counts what was tried."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = 0
        self.tried = 0
        for name in ("commit", "_checkpoint", "probe"):
            monkeypatch.setattr(Tables, name, self._failing(getattr(Tables, name), counts=name == "commit"))
        monkeypatch.setattr(disk, "PROBE_FIRST_S", 0.001)

    def _failing(self, real: Callable[..., Any], *, counts: bool) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.tried += counts
            if self.code:
                raise failure(self.code)
            return real(*arguments)

        return call


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    made = Faults(monkeypatch)
    yield made
    made.code = 0


async def started(folder: Path, **options: Any) -> tuple[SqliteStore, int]:
    store = SqliteStore(folder, **options)
    await store.start()
    return store, (await store.open("t")).ledger


async def well(store: SqliteStore) -> None:
    await until_async(lambda: store.health.problem is None)


async def kind_of(call: Any) -> ErrorKind | None:
    try:
        await call
    except PenstockError as error:
        return error.kind
    return None


async def test_it_is_logged_once_counted_and_over_by_itself(
    tmp_path: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    store, ledger = await started(tmp_path)
    with caplog.at_level(logging.INFO):
        faults.code = sqlite3.SQLITE_IOERR_FSYNC
        kinds = [await kind_of(store.append(ledger, [ENTRY])) for _ in range(5)]
        assert kinds == [ErrorKind.STORAGE_FAILED] * 5
        assert store.health.failing
        with pytest.raises(PenstockError, match="cannot be written"):
            store.health.check(TopicName.parse("t"))
        store.health.check(TopicName.parse("non-persistent://public/default/t"))
        assert store.health.refused == 5
        assert store.health.failed_commits == {"io": 1}  # the others were refused without a try
        faults.code = 0
        await well(store)
    assert [record.getMessage() for record in caplog.records] == ["storage fails", "storage recovered"]
    assert vars(caplog.records[1])["refused"] == 5
    assert (await store.append(ledger, [ENTRY])).entry_id == 0
    await store.close()


async def test_what_needs_no_room_is_tried_all_the_same(tmp_path: Path, faults: Faults) -> None:
    store, ledger = await started(tmp_path)
    faults.code = sqlite3.SQLITE_IOERR_WRITE
    assert await kind_of(store.append(ledger, [ENTRY])) is ErrorKind.STORAGE_FAILED
    before = faults.tried
    assert await kind_of(store.append(ledger, [ENTRY])) is ErrorKind.STORAGE_FAILED
    assert await kind_of(store.open("new")) is ErrorKind.STORAGE_FAILED
    assert faults.tried == before
    assert await kind_of(store.save_meta([("k", "v", b"")])) is ErrorKind.STORAGE_FAILED
    assert faults.tried == before + 1
    await store.close()


async def test_on_a_full_disk_there_are_logs_cursors_and_deletes(tmp_path: Path, faults: Faults) -> None:
    store, ledger = await started(tmp_path)
    await store.append(ledger, [ENTRY])
    real = Tables.commit
    full = True

    def commit(self: Tables, works: Any) -> None:
        if full and any(work.size_bytes for work in works):
            raise failure(sqlite3.SQLITE_FULL)
        real(self, works)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tables, "commit", commit)
        probe = Tables.probe

        def probed(self: Tables) -> None:
            if full:
                raise failure(sqlite3.SQLITE_FULL)
            probe(self)

        patch.setattr(Tables, "probe", probed)
        assert await kind_of(store.append(ledger, [ENTRY])) is ErrorKind.STORAGE_FULL
        assert store.health.readiness()["reason"] == "storage_full"
        assert (await store.open("t")).next_entry == 1
        assert await kind_of(store.open("new")) is ErrorKind.STORAGE_FULL
        await store.save_cursors([CursorChange(ledger, "s", 1, {})])
        await store.trim(ledger, 1)
        await store.delete(ledger)
        assert store.health.failing
        full = False
        await well(store)
    await store.close()


async def test_checkpoints_that_fail_are_no_secret(
    tmp_path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were they hidden, as those that SQLite makes by itself, the write-ahead log would take the whole disk."""
    monkeypatch.setattr(tables, "WAL_BYTES_MAX", 1 << 20)
    store, ledger = await started(tmp_path)
    reader = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)  # keeps the write-ahead log
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()

    def failing(self: Tables, mode: str) -> None:
        raise failure(sqlite3.SQLITE_IOERR_FSYNC)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tables, "_checkpoint", failing)
        async with asyncio.timeout(30):
            while store.health.problem is None:
                await kind_of(store.append(ledger, [NewEntry(bytes(100_000), 1, 1)]))
        assert store.health.problem.cause == "io"
    reader.close()
    await well(store)
    await store.append(ledger, [ENTRY])
    await store.close()


async def test_a_commit_that_failed_and_is_there_after_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that has to be replaced may find in the write-ahead log what had failed."""
    monkeypatch.setattr(disk, "PROBE_FIRST_S", 0.001)
    store, ledger = await started(tmp_path)
    await store.append(ledger, [ENTRY])
    mixed = Tables._mixed
    failures = iter([True])

    def failing(self: Tables, works: Any, staged: Any) -> None:
        mixed(self, works, staged)
        if next(failures, False):
            self._connection.close()
            raise failure(sqlite3.SQLITE_IOERR_FSYNC)

    monkeypatch.setattr(Tables, "_mixed", failing)
    assert await kind_of(store.append(ledger, [ENTRY])) is ErrorKind.STORAGE_FAILED
    await well(store)
    assert (await store.append(ledger, [ENTRY])).entry_id == 2
    assert [entry.entry_id for entry in await store.read(ledger, 0, 9, 99)] == [0, 1, 2]
    await store.close()


async def test_damage_is_counted_and_is_no_reason_to_refuse_all(tmp_path: Path, faults: Faults) -> None:
    store, ledger = await started(tmp_path)
    faults.code = sqlite3.SQLITE_CORRUPT
    assert await kind_of(store.append(ledger, [ENTRY])) is ErrorKind.UNAVAILABLE
    assert sum(store.health.failed_commits.values()) == 1
    assert store.health.problem is None
    faults.code = 0
    assert (await store.append(ledger, [ENTRY])).entry_id == 0
    await store.close()


async def test_all_files_together_stay_within_their_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log grows under a long read; that counts, too."""
    monkeypatch.setattr(tables, "MEASURE_BYTES", 1 << 16)
    monkeypatch.setattr(disk, "PROBE_FIRST_S", 0.001)
    bound = 2 << 20
    store, ledger = await started(tmp_path, size_max_bytes=1 << 20, files_max_bytes=bound)
    await store.append(ledger, [NewEntry(bytes(100_000), 1, 1)])
    reader = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    async with asyncio.timeout(30):
        while store.health.problem is None:
            await kind_of(store.append(ledger, [NewEntry(bytes(20_000), 1, 1)]))
            state = await store.open("t")
            await store.trim(ledger, state.next_entry)  # the main file has room
    assert store.health.problem.cause == "limit"
    assert not store.health.failing
    assert store.health.readiness()["reason"] == "size_limit"
    assert store.health.files is not None
    assert bound < store.health.files().size < bound + (1 << 20)
    reader.close()
    await store.close()


async def test_a_disk_that_fails_at_the_bound_is_told_apart(
    tmp_path: Path, faults: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    store, ledger = await started(tmp_path, size_max_bytes=1 << 20)
    while await kind_of(store.append(ledger, [NewEntry(bytes(20_000), 1, 1)])) is None:
        pass
    assert not store.health.failing
    faults.code = sqlite3.SQLITE_IOERR_WRITE
    assert await kind_of(store.save_meta([("k", "v", b"")])) is ErrorKind.STORAGE_FAILED
    assert store.health.failing
    faults.code = 0
    await well(store)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert said == ["storage takes no publishes", "storage fails", "storage recovered"]
    await store.close()


def test_the_reserve_is_made_released_and_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 1 << 20
    monkeypatch.setattr(data_folder, "disk_free", lambda folder: free)
    file = tmp_path / RESERVE_NAME
    made = data_folder.Reserve(tmp_path, 1 << 16)
    made.make()
    assert file.stat().st_size == 1 << 16
    assert file.stat().st_blocks * 512 >= 1 << 16
    assert made.release()
    assert not made.release()
    free = 3 << 14
    made.make(keep=1 << 14)
    assert file.stat().st_size == 2 << 14
    made.release()
    with pytest.raises(OSError, match="No space left"):
        made.make(keep=3 << 14)
    assert not file.exists()


async def test_a_server_that_starts_on_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_folder, "disk_free", lambda folder: 0)
    monkeypatch.setattr(disk, "disk_free", lambda folder: 0)
    monkeypatch.setattr(disk, "PROBE_FIRST_S", 0.001)
    store = SqliteStore(tmp_path, reserve_bytes=1 << 16)
    await store.start()
    assert await kind_of(store.open("t")) is ErrorKind.STORAGE_FULL
    assert store.health.failing
    monkeypatch.undo()
    await well(store)
    ledger = (await store.open("t")).ledger
    await store.append(ledger, [ENTRY])
    await store.close()
