"""A writer that stages and commits, killed at any moment and started again: each batch is there once, in all logs.

Run as a program, this file is the process that is killed.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.backends.sqlite import SqliteStore
from penstock.backends.sqlite.store import FILE_NAME
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.stage import Commit, StageKey, StageRun

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

TOPICS = ("a", "b")
STAGES = ("first", "second")
ENTRIES = 3  # of each stage for each topic
LANES = 2
ROUNDS = 15  # processes a folder


def entries(batch: int, stage: str, size: int) -> list[NewEntry]:
    return [NewEntry(f"{batch}:{stage}:{n}:".encode() + b"." * size, 2, 1) for n in range(ENTRIES)]


async def live(folder: Path, life: int) -> None:
    """Do what a driver of Spark does: go on after the last commit, with what was staged by others lying about."""
    dice = random.Random(life)
    store = SqliteStore(folder)
    await store.start()
    ledgers = [(await store.open(topic)).ledger for topic in TOPICS]
    _, commits = await store.load_stages()
    # A driver may not have heard of its last commit: then it does the batch again.
    batch = commits[0].batch + dice.choice((0, 1)) if commits else 0
    while True:
        names = [f"{stage}-{life}" for stage in STAGES]
        for name in names:
            size = dice.choice((0, 1000, 50_000))
            runs = [
                StageRun(ledger, topic, entries(batch, name, size))
                for ledger, topic in zip(ledgers, TOPICS, strict=True)
            ]
            await store.stage(StageKey("w", batch, name), 0, 0, 1, runs)
        if dice.random() < 0.3:
            run = StageRun(ledgers[0], "a", entries(batch, "lost", 10_000))
            await store.stage(StageKey("w", batch, f"lost-{life}"), 0, 0, 1, [run])
        done = await store.commit_stages(Commit("w", batch, 9), names)
        os.write(1, json.dumps(done.batch).encode() + b"\n")
        if dice.random() < 0.2:
            await store.trim(ledgers[1], done.spans[1].entry_id - 20 if len(done.spans) > 1 else 0)
        batch = done.batch + 1


def kill_one(folder: Path, life: int, dice: random.Random) -> int:
    """Let a process live for a moment; the last batch that it told of, -1 for none."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder), str(life)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        told = [child.stdout.readline()] if dice.random() < 0.8 else []
        time.sleep(dice.uniform(0, 0.1))
        child.kill()
        told += child.stdout.readlines()
    whole = [int(line) for line in told if line.endswith(b"\n")]
    return max(whole, default=-1)


async def check(folder: Path, told: int) -> int:
    """Every batch up to the last is there once and whole; returns the last."""
    store = SqliteStore(folder)
    await store.start()
    states = [await store.open(topic) for topic in TOPICS]
    _, commits = await store.load_stages()
    last = commits[0].batch if commits else -1
    assert last >= told
    for state in states:
        found: list[Entry] = []
        while more := await store.read(state.ledger, state.first_entry + len(found), 1000, 1 << 24):
            found += more
        each = ENTRIES * len(STAGES)
        assert state.next_entry == each * (last + 1)
        assert [e.entry_id for e in found] == list(range(state.first_entry, state.next_entry))
        assert [e.offset for e in found] == [2 * e.entry_id for e in found]
        for e in found:
            batch, stage, number, _ = e.data.decode().split(":", 3)
            assert int(batch) == e.entry_id // each
            assert stage.split("-")[0] == STAGES[e.entry_id % each // ENTRIES]
            assert int(number) == e.entry_id % ENTRIES
    await store.close()
    return last


def kill_many(folder: Path, seed: int) -> int:
    dice = random.Random(seed)
    last = -1
    for life in range(ROUNDS):
        told = kill_one(folder, life, dice)
        last = asyncio.run(check(folder, max(told, last)))
    return last


def test_a_killed_writer_commits_every_batch_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        counts = list(lanes.map(kill_many, (tmp_path / str(lane) for lane in range(LANES)), range(LANES)))
    assert min(counts) > ROUNDS


async def test_a_full_store_refuses_stages_and_gets_its_room_back(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, size_max_bytes=1 << 20)
    await store.start()
    ledger = (await store.open("a")).ledger

    async def fill() -> int:
        for number in range(10_000):
            run = StageRun(ledger, "a", [NewEntry(bytes(10_000), 1, 1)])
            key = StageKey("w", 0, f"{number}")
            (result,) = await asyncio.gather(store.stage(key, 0, 0, 1, [run]), return_exceptions=True)
            if isinstance(result, PenstockError):
                assert result.kind is ErrorKind.STORAGE_FULL
                return number
        raise AssertionError("the store never fills")

    stored = await fill()
    assert stored > 50
    for _ in range(3):
        await store.drop_stages([StageKey("w", 0, f"{number}") for number in range(stored)])
        await store.save_meta([("k", "v", b"")])  # the sweep comes with the next commit at the latest
        again = await fill()
        assert again > stored * 0.8
        stored = again
    runs, _ = await store.load_stages()
    assert len(runs) == stored
    await store.close()
    assert (tmp_path / FILE_NAME).stat().st_size < 1.2 * (1 << 20)


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), int(sys.argv[2])))
