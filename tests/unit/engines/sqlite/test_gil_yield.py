"""A busy loop and the threads that wait for Python's lock."""

import asyncio
import time
from pathlib import Path

import pytest

from penstock.engines.sqlite import SqliteStore, gil_yield
from penstock.engines.sqlite.gil_yield import GilYield
from penstock.model.entry import NewEntry


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr("penstock.engines.sqlite.gil_yield.time.sleep", found.append)
    return found


async def test_the_loop_pauses_only_while_answers_are_overdue(pauses: list[float]) -> None:
    counts = GilYield()

    async def look() -> None:
        """Wait until `counts` has looked."""
        done = asyncio.Event()
        asyncio.get_running_loop().call_later(gil_yield.AFTER_S * 1.5, done.set)
        await done.wait()

    counts.asked(2)
    while not pauses:
        await look()
    counts.answered(2)
    while counts._watching:
        await look()
    pauses.clear()
    await look()
    assert not pauses


async def test_appends_get_through_a_busy_loop(tmp_path: Path) -> None:
    """Without the pauses this takes seconds on two idle cores, and is quick where they are not idle."""
    store = SqliteStore(tmp_path)
    await store.start()
    ledger = (await store.open("t")).ledger
    busy = True

    def work() -> None:
        until = time.perf_counter() + 0.0001
        while time.perf_counter() < until:
            pass
        if busy:
            asyncio.get_running_loop().call_soon(work)

    work()
    for number in range(50):
        assert (await store.append(ledger, [NewEntry(b"", 1, 1)])).entry_id == number
    busy = False
    await store.close()
