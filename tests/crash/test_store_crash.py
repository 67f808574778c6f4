"""What is left of a SQLite store whose process was killed, whose file was cut, or whose disk was full.

Run as a program, this file is the process that is killed.
"""

import asyncio
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.engines.core.ports import CursorChange
from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.store import FILE_NAME
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

TOPICS = ("a", "b", "trimmed")
PUBLISHERS = 8
LANES = 4  # folders, each with its own series of processes
ROUNDS = 25  # processes a folder
COUNTS = (2, 1, 1)  # of messages in an entry, by ledger: entries with one share rows, and trims cut such rows
KEPT = 50  # entries that trims leave
APPENDS_FEW = 8  # of each publisher, of about 10 kB each


# --- the process that is killed ----------------------------------------------------------------------


def tell(kind: str, *values: object) -> None:
    """Report to the parent, past every buffer that would die with the process."""
    os.write(1, json.dumps([kind, *values]).encode() + b"\n")


async def publish(
    store: SqliteStore, ledgers: list[int], life: int, publisher: int, appends: Iterable[int]
) -> None:
    dice = random.Random(f"{life}:{publisher}")
    number = 0
    for _ in appends:
        ledger = dice.choice(ledgers)
        entries = []
        for _ in range(dice.randint(1, 3)):
            data = f"{life}:{publisher}:{number}:".encode()
            data += b"." * dice.choice((0, 10, 1000, 20_000))
            entries.append(
                NewEntry(data, COUNTS[ledger], 1, producer=f"p{life}:{publisher}", sequence_id=number)
            )
            number += 1
        placed = await store.append(ledger, entries)
        for at, entry in enumerate(entries):
            tell("stored", ledger, placed.entry_id + at, entry.data[:60].decode())
        if publisher == 0:
            mark = placed.offset + 2
            await store.save_cursors([CursorChange(ledger, "s", mark, {mark: b"1", mark - 1: None})])
            tell("mark", ledger, mark)
        if ledger == ledgers[2]:
            await store.trim(ledger, placed.entry_id - KEPT)
            tell("trimmed", ledger, placed.entry_id - KEPT)


async def live(folder: Path, life: int) -> None:
    store = SqliteStore(folder)
    await store.start()
    ledgers = [(await store.open(topic)).ledger for topic in TOPICS]
    tell("ready")
    await asyncio.gather(
        *(publish(store, ledgers, life, number, itertools.count()) for number in range(PUBLISHERS))
    )


async def begin(folder: Path) -> None:
    """Publish less than what is written between two checkpoints, and wait to be killed."""
    store = SqliteStore(folder)
    await store.start()
    ledgers = [(await store.open(topic)).ledger for topic in TOPICS]
    appends = range(APPENDS_FEW)
    await asyncio.gather(*(publish(store, ledgers, 0, number, appends) for number in range(PUBLISHERS)))
    tell("published")
    await asyncio.Event().wait()


async def fill(folder: Path) -> None:
    """Meet a disk that takes no more: writing beyond a file size fails as on a full disk."""
    store = SqliteStore(folder)
    await store.start()
    ledger = (await store.open(TOPICS[0])).ledger
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
    stored = 0
    error: PenstockError | None = None
    while error is None:
        try:
            await store.append(ledger, [NewEntry(os.urandom(10_000), 1, 1)])
            stored += 1
        except PenstockError as caught:
            error = caught
    tell("full", error.kind.name, stored)
    tell("read", len(await read_all(store, ledger)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await well(store)
    placed = await store.append(ledger, [NewEntry(b"after", 1, 1)])
    tell("resumed", placed.entry_id)
    await store.close()


async def well(store: SqliteStore) -> None:
    """Wait until the store has noticed that its disk takes writes again."""
    async with asyncio.timeout(60):
        while store.health.problem is not None:
            await asyncio.sleep(0.01)  # this file is a program too: it imports no helper of the tests


# --- the tests ---------------------------------------------------------------------------------------


async def read_all(store: SqliteStore, ledger: int, start: int = 0) -> list[Entry]:
    found: list[Entry] = []
    while more := await store.read(ledger, start, 1000, 1 << 24):
        found += more
        start = more[-1].entry_id + 1
    return found


def child(*args: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, __file__, *map(str, args)], stdout=subprocess.PIPE)


def reports(process: "subprocess.Popen[bytes]") -> Iterator[list[Any]]:
    """What the process reported until its end; a line cut short by the end was not reported."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(b"\n"):
            yield json.loads(line)


def kill_one(folder: Path, life: int, dice: random.Random) -> list[list[Any]]:
    """Let a process live for a moment; returns what it reported."""
    reported: list[list[Any]] = []
    with child("live", folder, life) as process:
        if dice.random() < 0.8:
            reported.append(next(reports(process)))
            time.sleep(dice.uniform(0, 0.15))  # killed anywhere: not at a condition
        else:
            time.sleep(dice.uniform(0, 0.3))  # perhaps before it is ready
        process.kill()
        reported += reports(process)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    return reported


async def check(folder: Path, reported: list[list[Any]], seen: dict[int, list[bytes]]) -> None:
    """Everything reported is there, once and in order; `seen` is what was there before."""
    store = SqliteStore(folder)
    await store.start()
    for topic in TOPICS:
        state = await store.open(topic)
        ledger = state.ledger
        before = seen.setdefault(ledger, [])
        first = max(len(before), state.first_entry)
        new = await read_all(store, ledger, first)
        assert [entry.entry_id for entry in new] == list(range(first, state.next_entry))
        assert [entry.offset for entry in new] == [COUNTS[ledger] * entry.entry_id for entry in new]
        before += [b"?"] * (first - len(before)) + [entry.data for entry in new]
        trims = [report[2] for report in reported if report[:2] == ["trimmed", ledger]]
        assert state.first_entry >= max(trims, default=0)
        for _, _, entry_id, data in (report for report in reported if report[:2] == ["stored", ledger]):
            if entry_id >= state.first_entry:
                assert before[entry_id].decode()[:60] == data
        marks = [report[2] for report in reported if report[:2] == ["mark", ledger]]
        if marks:
            (cursor,) = await store.load_cursors(ledger)
            assert cursor.mark >= marks[-1]
            assert cursor.mark in cursor.chunks
    await store.close()


def check_all(seen: dict[int, list[bytes]]) -> int:
    """Nothing is there twice, and each publisher's entries are in its order. Returns how many there are."""
    last: dict[tuple[int, str], int] = {}
    count = 0
    for ledger, entries in seen.items():
        for data in entries:
            if data != b"?":
                life, publisher, number, _ = data.decode().split(":", 3)
                key = (ledger, f"{life}:{publisher}")
                assert int(number) > last.get(key, -1)
                last[key] = int(number)
                count += 1
    return count


def kill_many(folder: Path, seed: int) -> int:
    dice = random.Random(seed)
    seen: dict[int, list[bytes]] = {}
    for life in range(ROUNDS):
        reported = kill_one(folder, life, dice)
        asyncio.run(check(folder, reported, seen))
    return check_all(seen)


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        counts = list(lanes.map(kill_many, (tmp_path / str(lane) for lane in range(LANES)), range(LANES)))

    assert min(counts) > ROUNDS


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a killed process, with a write-ahead log not yet in the main file."""
    folder = tmp_path_factory.mktemp("killed")
    with child("begin", folder) as process:
        assert ["published"] in reports(process)
        process.kill()
    assert (folder / f"{FILE_NAME}-wal").stat().st_size > 100_000
    return folder


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_write_ahead_log_leaves_a_beginning(killed: Path, tmp_path: Path, damage: str) -> None:
    """As after a power cut on a disk that did not keep its word: less is there, but what is there is whole."""
    dice = random.Random(damage)
    size = (killed / f"{FILE_NAME}-wal").stat().st_size
    counts = set()
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(killed / f"{FILE_NAME}{suffix}", folder / f"{FILE_NAME}{suffix}")
        with (folder / f"{FILE_NAME}-wal").open("r+b") as wal:
            at = dice.randrange(size // 4, size)
            if damage == "cut":
                wal.truncate(at)
            else:
                wal.seek(at)
                wal.write(bytes(byte ^ 0xFF for byte in os.pread(wal.fileno(), 8, at)))
        seen: dict[int, list[bytes]] = {}
        asyncio.run(check(folder, [], seen))
        counts.add(check_all(seen))

    assert len(counts) > 5


def test_a_full_disk_refuses_appends_until_there_is_room(tmp_path: Path) -> None:
    with child("fill", tmp_path) as process:
        reported = {kind: values for kind, *values in reports(process)}

    assert process.returncode == 0
    kind, stored = reported["full"]
    assert kind == "STORAGE_FULL"
    assert stored > 50
    assert reported["read"] == [stored]
    assert reported["resumed"] == [stored]


async def fill_up(store: SqliteStore, ledger: int) -> int:
    """Append until the store is full; returns how many it took."""
    for number in range(10_000):
        results = await asyncio.gather(
            store.append(ledger, [NewEntry(bytes(10_000), 1, 1)]), return_exceptions=True
        )
        if isinstance(results[0], PenstockError):
            assert results[0].kind is ErrorKind.STORAGE_FULL
            return number
    raise AssertionError("the store never fills")


async def test_a_store_at_its_bound_goes_on_with_all_but_appends(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, size_max_bytes=1 << 20)
    await store.start()
    ledger = (await store.open(TOPICS[0])).ledger
    stored = await fill_up(store, ledger)
    assert 50 < stored < 110
    results = await asyncio.gather(
        store.append(ledger, [NewEntry(bytes(10_000), 1, 1)]),
        store.save_cursors([CursorChange(ledger, "s", 1, {n: bytes(512) for n in range(100)})]),
        store.append(ledger, [NewEntry(bytes(100_000), 1, 1)]),
        store.save_meta([("k", "v", bytes(10_000))]),
        return_exceptions=True,
    )

    kinds = [result.kind if isinstance(result, PenstockError) else result for result in results]
    assert kinds == [ErrorKind.STORAGE_FULL, None, ErrorKind.STORAGE_FULL, None]
    assert len(await read_all(store, ledger)) == stored
    assert len((await store.load_cursors(ledger))[0].chunks) == 100

    await store.limit_size(2 << 20)
    assert (await store.append(ledger, [NewEntry(b"room", 1, 1)])).entry_id == stored
    more = await fill_up(store, ledger)
    assert more > 20
    await store.close()

    store = SqliteStore(tmp_path, size_max_bytes=1 << 20)
    await store.start()
    state = await store.open(TOPICS[0])
    assert state.next_entry == stored + 1 + more
    assert (await fill_up(store, ledger)) < 10
    await store.close()


async def test_room_comes_back_when_entries_are_let_go_of(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, size_max_bytes=1 << 20)
    await store.start()
    ledger = (await store.open(TOPICS[0])).ledger
    stored = await fill_up(store, ledger)
    for _ in range(5):
        await store.trim(ledger, (await store.open(TOPICS[0])).next_entry)
        await store.save_meta([("k", "v", b"")])  # the sweep comes with the next commit at the latest
        again = await fill_up(store, ledger)
        assert again > stored * 0.8
    await store.close()
    assert (tmp_path / FILE_NAME).stat().st_size < 1.2 * (1 << 20)


if __name__ == "__main__":
    if sys.argv[1] == "live":
        asyncio.run(live(Path(sys.argv[2]), int(sys.argv[3])))
    else:
        asyncio.run({"begin": begin, "fill": fill}[sys.argv[1]](Path(sys.argv[2])))
