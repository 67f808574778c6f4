"""Copies of a store at work."""

import asyncio
import shutil
from pathlib import Path

import pytest

from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.store import FILE_NAME
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError


async def test_a_copy_taken_while_publishing_is_a_store_as_of_one_moment(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    await store.start()
    ledger = (await store.open("t")).ledger
    stored = 0

    async def publish() -> None:
        nonlocal stored
        while True:
            await store.append(ledger, [NewEntry(b"%d" % stored + bytes(5000), 1, 1)])
            stored += 1

    await store.append(ledger, [NewEntry(bytes(5000), 1, 1)] * 2000)
    async with asyncio.TaskGroup() as group:
        publisher = group.create_task(publish())
        before = stored
        await store.backup(tmp_path / "copy.db")
        after = stored
        publisher.cancel()
    await store.close()

    (tmp_path / "restored").mkdir()
    shutil.copy(tmp_path / "copy.db", tmp_path / "restored" / FILE_NAME)
    restored = SqliteStore(tmp_path / "restored")
    await restored.start()
    state = await restored.open("t")
    assert 2000 + before <= state.next_entry <= 2000 + after + 1
    found = await restored.read(state.ledger, 2000, 1 << 20, 1 << 30)
    assert [entry.data[:-5000] for entry in found] == [b"%d" % n for n in range(state.next_entry - 2000)]
    assert (await restored.append(state.ledger, [NewEntry(b"", 1, 1)])).entry_id == state.next_entry
    await restored.close()


async def test_nothing_is_overwritten_and_nothing_half_done_is_left(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    await store.start()
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(PenstockError) as caught:
        await store.backup(target)
    assert caught.value.kind is ErrorKind.ALREADY_EXISTS
    assert target.read_text() == "precious"

    with pytest.raises(PenstockError) as caught:
        await store.backup(tmp_path / "missing" / "copy.db")
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    await store.close()
    with pytest.raises(PenstockError):
        await store.backup(tmp_path / "late.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.db", "data"]
