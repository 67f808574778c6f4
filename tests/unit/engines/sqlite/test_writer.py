"""Groups, and who fails when one of a group does."""

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.core.ports import CursorChange
from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.schema import PAGE_BYTES
from penstock.engines.sqlite.store import FILE_NAME
from penstock.engines.sqlite.tables import MEASURE_BYTES, Tables
from penstock.engines.sqlite.work import Change, Work
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What was committed together."""
    found: list[list[str]] = []
    commit = Tables.commit

    def spied(self: Tables, works: list[Work]) -> None:
        found.append(
            [
                work.kind.__name__.capitalize() if isinstance(work, Change) else type(work).__name__
                for work in works
            ]
        )
        commit(self, works)

    monkeypatch.setattr(Tables, "commit", spied)
    return found


async def started(folder: Path) -> tuple[SqliteStore, int]:
    store = SqliteStore(folder)
    await store.start()
    return store, (await store.open("t")).ledger


async def test_what_is_asked_for_in_one_turn_is_one_commit(tmp_path: Path, groups: list[list[str]]) -> None:
    store, ledger = await started(tmp_path)
    groups.clear()
    await asyncio.gather(
        store.append(ledger, [NewEntry(b"", 1, 1)]),
        store.save_cursors([CursorChange(ledger, "s", 1, {})]),
        store.open("u"),
        store.save_meta([("k", "v", b"")]),
        store.append(ledger, [NewEntry(b"", 1, 1)]),
    )

    assert groups == [["Append", "SaveCursors", "Open", "SaveMeta", "Append"]]
    await store.close()


async def test_where_order_matters_groups_are_cut(tmp_path: Path, groups: list[list[str]]) -> None:
    store, ledger = await started(tmp_path)
    groups.clear()
    results = await asyncio.gather(
        store.append(ledger, [NewEntry(b"", 1, 1)]),
        store.trim(ledger, 1),
        store.trim(ledger, 1),
        store.delete(ledger),
        store.open("t"),
    )

    assert groups == [["Append"], ["Trim", "Trim"], ["Delete"], ["Open"]]
    assert results[-1].ledger == ledger + 1
    await store.close()


async def test_a_large_group_is_cut(tmp_path: Path, groups: list[list[str]]) -> None:
    store, ledger = await started(tmp_path)
    groups.clear()
    small = [store.append(ledger, [NewEntry(b"", 1, 1)] * 100) for _ in range(25)]
    large = [store.append(ledger, [NewEntry(bytes(3 << 20), 1, 1)]) for _ in range(4)]
    await asyncio.gather(*small, *large)

    assert [len(group) for group in groups] == [11, 11, 5, 2]
    await store.close()


async def test_only_the_one_at_fault_fails(tmp_path: Path) -> None:
    store, ledger = await started(tmp_path)
    bad: Any = "no bytes"
    results = await asyncio.gather(
        store.append(ledger, [NewEntry(b"1", 1, 1)]),
        store.append(ledger, [NewEntry(b"2", 1, 1 << 64)]),
        store.save_meta([("k", "bad", 1j)]),  # type: ignore[list-item]
        store.save_meta([("k", "good", b"")]),
        store.append(ledger, [NewEntry(b"3", 1, 1)]),
        store.append(ledger + 1, [NewEntry(b"4", 1, 1)]),
        return_exceptions=True,
    )

    kinds = [result.kind.name if isinstance(result, PenstockError) else "" for result in results]
    assert kinds == ["", "INTERNAL", "INTERNAL", "", "", "TOPIC_NOT_FOUND"]
    assert [entry.data for entry in await store.read(ledger, 0, 10, 100)] == [b"1", b"3"]
    assert await store.load_meta("k") == {"good": b""}
    with pytest.raises(TypeError):
        store.append(ledger, [NewEntry(None, 1, 1), bad])  # type: ignore[arg-type]
    await store.close()


async def test_a_lock_of_somebody_else_is_no_fault_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.sqlite.connection.BUSY_TIMEOUT_S", 0.01)
    store, ledger = await started(tmp_path)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    calls = [store.append(ledger, [NewEntry(b"", 1, 1)]) for _ in range(3)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    other.execute("ROLLBACK")
    other.close()

    assert [getattr(result, "kind", None) for result in results] == [ErrorKind.UNAVAILABLE] * 3
    assert (await store.append(ledger, [NewEntry(b"", 1, 1)])).entry_id == 0
    await store.close()


async def test_a_connection_beyond_repair_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ledger = await started(tmp_path)
    execute = Tables._mixed
    failures = iter([True])

    def failing(self: Tables, works: list[Work], staged: Any) -> None:
        if next(failures, False):
            self._connection.close()  # whatever is done with it from here on fails, the rollback included
            raise sqlite3.OperationalError("the disk is gone")
        execute(self, works, staged)

    monkeypatch.setattr(Tables, "_mixed", failing)
    with pytest.raises(PenstockError):
        await store.append(ledger, [NewEntry(b"lost", 1, 1)])

    assert (await store.append(ledger, [NewEntry(b"kept", 1, 1)])).entry_id == 0
    assert [entry.data for entry in await store.read(ledger, 0, 10, 100)] == [b"kept"]
    await store.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store, ledger = await started(tmp_path)
    await store.close()
    for call in (
        lambda: store.append(ledger, []),
        lambda: store.read(ledger, 0, 1, 1),
        lambda: store.load_meta("k"),
        lambda: store.open("t"),
    ):
        with pytest.raises(PenstockError) as caught:
            await call()
        assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_a_start_that_is_cancelled_leaves_no_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.start(), 0)
    await store.close()
    again = SqliteStore(tmp_path)
    await again.start()
    await again.close()


async def test_the_write_ahead_log_is_cut_back_after_a_long_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = 1 << 20
    monkeypatch.setattr("penstock.engines.sqlite.connection.WAL_BYTES_MAX", bound)
    monkeypatch.setattr("penstock.engines.sqlite.tables.WAL_BYTES_MAX", bound)
    monkeypatch.setattr("penstock.engines.sqlite.tables.READERS_WAIT_S", 0.001)
    wal = tmp_path / f"{FILE_NAME}-wal"
    store, ledger = await started(tmp_path)
    reader = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entries").fetchone()
    for _ in range(20):
        await store.append(ledger, [NewEntry(bytes(200_000), 1, 1)])
    assert wal.stat().st_size > 3 * bound

    reader.execute("COMMIT")
    reader.close()
    while wal.stat().st_size > bound:
        await store.append(ledger, [NewEntry(bytes(200_000), 1, 1)])
    await store.close()


async def test_a_commit_is_answered_before_the_checkpoint_that_it_makes_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ledger = await started(tmp_path)
    begun, may_end = threading.Event(), threading.Event()
    checkpoint = Tables._checkpoint

    def held_up(self: Tables, mode: str) -> tuple[int, int, int]:
        begun.set()
        assert may_end.wait(30)
        return checkpoint(self, mode)

    monkeypatch.setattr(Tables, "_checkpoint", held_up)
    try:
        placed = await store.append(ledger, [NewEntry(bytes(MEASURE_BYTES), 1, 1)])
        assert placed.entry_id == 0
        assert await asyncio.to_thread(begun.wait, 30)
    finally:
        may_end.set()
    assert (await store.append(ledger, [NewEntry(b"", 1, 1)])).entry_id == 1
    await store.close()


@pytest.mark.parametrize(("size", "entries"), [(200_000, 1), (200, 1), (200, 500)])
async def test_checkpoints_come_before_sqlite_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, entries: int
) -> None:
    """The estimate of what was written is no less than what was; nor far more, as each checkpoint costs two syncs."""
    monkeypatch.setattr("penstock.engines.sqlite.tables.MEASURE_BYTES", 1 << 20)
    store, ledger = await started(tmp_path)
    pages: list[int] = []
    checkpoint = Tables._checkpoint

    def spied(self: Tables, mode: str) -> tuple[int, int, int]:
        found = checkpoint(self, mode)
        pages.append(found[1])
        return found

    monkeypatch.setattr(Tables, "_checkpoint", spied)
    async with asyncio.timeout(60):
        while len(pages) < 3:
            await asyncio.gather(
                *(store.append(ledger, [NewEntry(bytes(size), 1, 1)]) for _ in range(entries))
            )
    assert all(0.4 < number * PAGE_BYTES / (1 << 20) < 1.5 for number in pages), pages
    await store.close()


async def test_appends_to_several_logs_in_one_commit_keep_their_order(
    tmp_path: Path, groups: list[list[str]]
) -> None:
    store, ledger = await started(tmp_path)
    other = (await store.open("u")).ledger
    groups.clear()
    placed = await asyncio.gather(
        store.append(ledger, [NewEntry(b"0", 2, 1), NewEntry(b"1", 1, 1)]),
        store.append(other, [NewEntry(b"a", 3, 1)]),
        store.append(ledger, [NewEntry(b"2", 1, 1)]),
        store.append(other, [NewEntry(b"b", 1, 1)]),
        store.append(99, [NewEntry(b"lost", 1, 1)]),
        return_exceptions=True,
    )
    assert groups == [["Append"] * 5]
    assert placed[:4] == [AppendResult(0, 0), AppendResult(0, 0), AppendResult(2, 3), AppendResult(1, 3)]
    assert isinstance(placed[4], PenstockError)
    assert [entry.data for entry in await store.read(ledger, 0, 9, 99)] == [b"0", b"1", b"2"]
    assert [entry.offset for entry in await store.read(other, 0, 9, 99)] == [0, 3]
    await store.close()
