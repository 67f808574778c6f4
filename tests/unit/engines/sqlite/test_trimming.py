"""The room of entries that were let go of."""

import sqlite3
from pathlib import Path

from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.logs import SLICE_BYTES, SLICE_ROWS, Sweeps, delete, trim
from penstock.engines.sqlite.store import FILE_NAME
from penstock.engines.sqlite.tables import Tables
from penstock.engines.sqlite.work import Append, Change, Open
from penstock.model.entry import NewEntry


def filled(file: Path, entries: int, entry_bytes: int) -> Tables:
    """Tables with one log, a row for each of its entries, without the thread that would sweep by itself."""
    tables = Tables(file, None)
    tables.commit([Open("t")])
    tables.commit([Append(0, [NewEntry(bytes(entry_bytes), 1, number) for number in range(entries)])])
    return tables


def stored(file: Path) -> list[int]:
    with sqlite3.connect(file) as connection:
        found = [row[0] for row in connection.execute("SELECT id FROM entries ORDER BY id")]
    connection.close()
    return found


async def test_a_sweep_deletes_a_slice_from_the_low_end(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    tables = filled(file, SLICE_ROWS * 2 + 10, 10)
    tables.commit([Change(trim, (0, SLICE_ROWS * 2 + 5))])
    assert len(stored(file)) == SLICE_ROWS * 2 + 10

    tables.sweep()
    assert stored(file)[0] == SLICE_ROWS
    assert list(tables.sweeps.waiting) == [(SLICE_ROWS, SLICE_ROWS * 2 + 5)]
    tables.sweep()
    tables.sweep()
    assert stored(file) == list(range(SLICE_ROWS * 2 + 5, SLICE_ROWS * 2 + 10))
    assert not tables.sweeps.waiting
    tables.close()


async def test_a_slice_of_large_entries_is_bound_by_their_bytes(tmp_path: Path) -> None:
    tables = filled(tmp_path / FILE_NAME, 5, SLICE_BYTES // 2)
    tables.commit([Change(trim, (0, 5))])
    left = []
    while tables.sweeps.waiting:
        tables.sweep()
        left.append(len(stored(tmp_path / FILE_NAME)))

    assert left == [2, 0]
    tables.close()


async def test_what_is_left_is_swept_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    tables = filled(file, SLICE_ROWS * 3, 10)
    tables.commit([Change(trim, (0, SLICE_ROWS))])
    tables.commit([Change(delete, (0,))])
    tables.sweep()
    tables.close()
    assert len(stored(file)) == SLICE_ROWS * 2

    connection = sqlite3.connect(file)
    assert list(Sweeps(connection).waiting) == [(SLICE_ROWS, SLICE_ROWS * 3)]
    connection.close()
    store = SqliteStore(tmp_path)
    await store.start()
    while stored(file):
        await store.save_meta([("k", "v", b"")])  # a sweep follows every commit
    await store.close()


async def test_an_entry_not_yet_swept_does_not_count_as_the_logs_end(tmp_path: Path) -> None:
    tables = filled(tmp_path / FILE_NAME, 10, 10)
    tables.commit([Change(trim, (0, 10))])
    tables.close()
    store = SqliteStore(tmp_path)
    await store.start()
    state = await store.open("t")

    assert (state.first_entry, state.next_entry, state.next_offset, state.size_bytes) == (10, 10, 10, 0)
    await store.close()
