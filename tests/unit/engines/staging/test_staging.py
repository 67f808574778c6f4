"""Staged publishing over any engine: what happens if another process, or a failure, comes between. The ports are those of the
embedded broker, with faults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench
from tests.unit.engines.core.brokers import bench as bench_of

from penstock.broker.staging import Caller, Expected
from penstock.engines.staging import staging as module
from penstock.engines.staging.ports import Interrupted
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.stage import StageKey
from penstock.testing.clock import settle
from penstock.wire import entry as wire

pytestmark = pytest.mark.anyio
ANYBODY = Caller()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0)


async def stage(bench: Bench, name: str, batch: int = 0) -> Expected:
    log = await bench.broker.topics.get(TOPIC)
    message = OutMessage(payload=name.encode())
    entry = wire.encode([message], producer="p", sequence_id=0, publish_time=1, schema_version=None)
    await bench.broker.staging.stage(StageKey("w", batch, name), 0, 1, [(log, [entry])], ANYBODY)
    return Expected(name, 1, 1, len(entry.data))


class Faults:
    """Sessions of which the first so many end with an error, before what they do or after it."""

    def __init__(self, bench: Bench, count: int, *, after: bool) -> None:
        self.opened = 0
        self._open = bench.broker.staging._writers.open
        self._count = count
        self._after = after
        bench.broker.staging._writers.open = self.open  # type: ignore[method-assign]

    @asynccontextmanager
    async def open(self, name: str, size_bytes: int) -> AsyncIterator[Any]:
        self.opened += 1
        lost = Interrupted(ErrorKind.UNAVAILABLE, "another process took the writer")
        failing = self.opened <= self._count
        if failing and not self._after:
            raise lost
        async with self._open(name, size_bytes) as session:
            yield session
        if failing:
            raise lost


async def test_a_commit_whose_answer_was_lost_is_found_and_is_new() -> None:
    async with bench_of() as bench:
        held = await stage(bench, "s")
        faults = Faults(bench, 1, after=True)
        made, new = await bench.broker.staging.commit("w", 0, [held], ANYBODY)
        assert (made.messages, new, faults.opened) == (1, True, 2)
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1
        assert await bench.broker.staging.commit("w", 0, [held], ANYBODY) == (made, False)


async def test_a_writer_that_another_process_takes_is_opened_a_few_times() -> None:
    async with bench_of() as bench:
        held = await stage(bench, "s")
        faults = Faults(bench, module.ATTEMPTS, after=False)
        with pytest.raises(PenstockError, match="another process") as caught:
            await bench.broker.staging.commit("w", 0, [held], ANYBODY)
        assert (caught.value.kind, faults.opened) == (ErrorKind.UNAVAILABLE, module.ATTEMPTS)
        assert (await bench.broker.staging.commit("w", 0, [held], ANYBODY))[1]
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1


async def test_a_commit_goes_on_when_its_caller_leaves() -> None:
    async with bench_of() as bench:
        held = await stage(bench, "s")
        staging = bench.broker.staging
        batch, go_on = staging._parts.batch, asyncio.Event()

        async def wait(writer: str, number: int) -> Any:
            await go_on.wait()
            return await batch(writer, number)

        staging._parts.batch = wait  # type: ignore[method-assign]
        task = asyncio.get_running_loop().create_task(staging.commit("w", 0, [held], ANYBODY))
        await settle()
        task.cancel()
        go_on.set()
        await asyncio.wait([task])
        assert (await bench.broker.topics.get(TOPIC)).next_offset == 1


async def test_a_commit_is_answered_though_other_stages_cannot_be_dropped() -> None:
    async with bench_of() as bench:
        held = await stage(bench, "s")
        staging = bench.broker.staging

        async def drop(*given: object) -> None:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")

        whole, staging._parts.drop = staging._parts.drop, drop  # type: ignore[method-assign]
        assert (await staging.commit("w", 0, [held], ANYBODY))[1]
        await stage(bench, "t", 1)
        with pytest.raises(PenstockError, match="away"):
            await staging.abort("w", 1, ANYBODY)
        staging._parts.drop = whole  # type: ignore[method-assign]
        assert await staging.abort("w", 1, ANYBODY) == 1


async def test_a_cluster_that_is_away_at_the_first_use_is_asked_again() -> None:
    async with bench_of() as bench:
        staging = bench.broker.staging
        staging._started = False
        start = staging._writers.start
        starts: list[bool] = []

        async def fail() -> None:
            starts.append(True)
            if len(starts) == 1:
                raise PenstockError(ErrorKind.UNAVAILABLE, "away")
            await start()

        staging._writers.start = fail  # type: ignore[method-assign]
        with pytest.raises(PenstockError, match="away"):
            await staging.writers(ANYBODY, "", 1)
        assert await staging.writers(ANYBODY, "", 1) == ([], False)
        await staging.writers(ANYBODY, "", 1)
        assert len(starts) == 2


async def test_stages_of_earlier_batches_go_with_a_commit() -> None:
    async with bench_of() as bench:
        await stage(bench, "lost", 0)
        later = await stage(bench, "later", 2)
        held = await stage(bench, "s", 1)
        await bench.broker.staging.commit("w", 1, [held], ANYBODY)
        state = await bench.broker.staging.writer("w", ANYBODY)
        assert state is not None
        assert {number: list(batch.stages) for number, batch in state.batches.items()} == {2: [later]}
