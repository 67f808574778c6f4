"""A writer that stages and commits, killed at any moment and started again: each batch is there once, in all logs.

Run as a program, this file is the process that is killed.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.broker.staging import Caller, Expected
from penstock.engines.core.broker import Broker
from penstock.engines.core.topic import Topic
from penstock.engines.memory import MemoryStore
from penstock.engines.sqlite import SqliteStore
from penstock.engines.sqlite.store import FILE_NAME
from penstock.model.entry import Entry, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Commit, StageKey, StageRun
from penstock.runtime.clock import LoopClock
from penstock.wire import entry as wire

pytestmark = [pytest.mark.crash, pytest.mark.timeout(180)]

NAMES = [TopicName.parse("a"), TopicName.parse("b")]
TOPICS = tuple(map(str, NAMES))
CALLER = Caller()
STAGES = ("first", "second")
ENTRIES = 3  # of each stage for each topic
LANES = 2
ROUNDS = 15  # processes a folder


def entries(batch: int, stage: str, size: int) -> list[NewEntry]:
    return [NewEntry(f"{batch}:{stage}:{n}:".encode() + b"." * size, 2, 1) for n in range(ENTRIES)]


async def live(folder: Path, life: int) -> None:
    """Do what a driver of Spark does: go on after the last commit, with what was staged by others lying about.

    Now and then it repeats its last batch, as it may not have heard of the commit, and tries what is no repeat.
    """
    dice = random.Random(life)
    store = SqliteStore(folder)
    broker = Broker(store, MemoryStore(1 << 20), wire, LoopClock())
    await broker.start()
    topics = [await broker.topics.get(name) for name in NAMES]

    async def stage(batch: int, name: str, size: int, topics: list[Topic]) -> Expected:
        new = [(topic, entries(batch, name, size)) for topic in topics]
        await broker.staging.stage(StageKey("w", batch, name), 0, 0, new, CALLER)
        held = [entry for _, run in new for entry in run]
        return Expected(name, 1, sum(e.count for e in held), sum(len(e.data) for e in held))

    async def commit(batch: int, stages: list[Expected]) -> tuple[Commit, bool]:
        return await broker.staging.commit("w", batch, stages, CALLER, topics=NAMES)

    async def refused(batch: int, stages: list[Expected]) -> ErrorKind | None:
        try:
            await commit(batch, stages)
        except PenstockError as error:
            return error.kind
        return None

    last = await store.find_commit("w", TOPICS)
    batch = last.batch + dice.choice((0, 1)) if last is not None else 0
    while True:
        stages = [
            await stage(batch, f"{name}-{life}", dice.choice((0, 1000, 50_000)), topics) for name in STAGES
        ]
        if dice.random() < 0.3:
            await stage(batch, f"lost-{life}", 10_000, topics[:1])
        done, new = await commit(batch, stages)
        assert new == (last is None or batch > last.batch), "a repeat is one, and nothing else is"
        last = done
        os.write(1, json.dumps(done.batch).encode() + b"\n")
        if dice.random() < 0.3:
            assert await commit(batch, stages) == (done, False), "the answer was lost"
        if dice.random() < 0.3:
            for number, wrong in ((batch, stages[:1]), (max(0, batch - 1), stages)):
                kind = await refused(number, wrong)
                assert kind in (ErrorKind.BATCH_CONFLICT, ErrorKind.STAGE_NOT_FOUND) or number == batch == 0
        if dice.random() < 0.2:
            await store.trim(topics[1].ledger, done.spans[1].entry_id - 20)
        batch = done.batch + dice.choice((0, 1, 1))


def kill_one(folder: Path, life: int, dice: random.Random) -> int:
    """Let a process live for a moment; the last batch that it reported, -1 for none."""
    with subprocess.Popen(
        [sys.executable, __file__, str(folder), str(life)], stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        reported = [child.stdout.readline() for _ in range(dice.choice((0, 1, 3, 6)))]
        time.sleep(dice.uniform(0, 0.1))  # killed anywhere: not at a condition
        child.kill()
        reported += child.stdout.readlines()
    assert child.returncode == -signal.SIGKILL, "it never ends by itself"
    whole = [int(line) for line in reported if line.endswith(b"\n")]
    return max(whole, default=-1)


async def check(folder: Path, reported: int) -> int:
    """Every batch up to the last is there once and whole; returns the last."""
    store = SqliteStore(folder)
    await store.start()
    states = [await store.open(topic) for topic in TOPICS]
    commit = await store.find_commit("w", TOPICS)
    last = -1 if commit is None else commit.batch
    assert last >= reported
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
        reported = kill_one(folder, life, dice)
        last = asyncio.run(check(folder, max(reported, last)))
    return last


def test_a_killed_writer_commits_every_batch_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        counts = list(lanes.map(kill_many, (tmp_path / str(lane) for lane in range(LANES)), range(LANES)))
    assert min(counts) > ROUNDS, "they went on from where the one before was killed"


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
