"""What cannot be undone is waited for, whoever no longer waits."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest

from penstock.runtime import tasks
from penstock.runtime.tasks import Tasks, Uncancellable, chosen, finished

Make = Callable[[], "asyncio.Future[int]"]


def common() -> "asyncio.Future[int]":
    return asyncio.get_running_loop().create_future()


def uncancellable() -> "asyncio.Future[int]":
    return Uncancellable(loop=asyncio.get_running_loop())


both = pytest.mark.parametrize("make", [common, uncancellable])


async def turn() -> None:
    """Let every task run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


@both
async def test_the_result_and_the_error_of_a_future(make: Make) -> None:
    loop = asyncio.get_running_loop()
    future = make()
    loop.call_soon(future.set_result, 7)
    assert await finished(future) == 7
    assert await finished(future) == 7  # done already
    failing = make()
    loop.call_soon(failing.set_exception, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await finished(failing)


@both
async def test_a_cancellation_waits_for_the_end_and_comes_at_the_next_wait(make: Make) -> None:
    future = make()
    steps: list[object] = []

    async def run() -> None:
        found = await finished(future)
        steps.append(found)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    task = asyncio.get_running_loop().create_task(run())
    await turn()
    task.cancel()
    await turn()
    task.cancel()
    await turn()
    assert not future.done()
    assert not task.done()
    assert steps == []
    future.set_result(7)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == [7, "cancelled"]
    assert task.cancelling() == 2


@both
async def test_a_timeout_comes_after_the_end(make: Make) -> None:
    future = make()
    found: list[int] = []

    async def run() -> None:
        async with asyncio.timeout(0):
            found.append(await finished(future))
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(run())
    await turn()
    future.set_result(7)
    with pytest.raises(TimeoutError):
        await task
    assert found == [7]


async def test_an_error_that_comes_with_a_cancellation() -> None:
    future = uncancellable()
    found: list[str] = []

    async def run() -> None:
        try:
            await finished(future)
        except ValueError as error:
            found.append(str(error))
        await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(run())
    await turn()
    task.cancel()
    await turn()
    assert not task.done()
    future.set_exception(ValueError("no"))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert found == ["no"]
    assert task.cancelling() == 1


async def test_a_future_that_is_cancelled_itself() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.get_running_loop().create_task(finished(future))
    await turn()
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 0


class Held:
    """Something large in a frame."""


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("without_collector")
async def test_a_cancelled_task_does_not_hold_what_it_had() -> None:
    class Owner:
        def __init__(self) -> None:
            self.held: weakref.ref[Held] | None = None
            self.task = tasks.spawn(self.run(), "run")

        async def run(self) -> None:
            held = Held()
            self.held = weakref.ref(held)
            await asyncio.Event().wait()

    tasks = Tasks()
    owner = Owner()
    await turn()
    assert owner.held is not None
    assert owner.held() is not None
    owner.task.cancel()
    await turn()
    assert owner.task.cancelled()
    assert owner.held() is None
    gone = weakref.ref(owner)
    del owner
    assert gone() is None


async def test_the_loop_goes_on_while_one_chooses_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SLICE_S", 0.0)  # each step uses it up
    loop, turns = asyncio.get_running_loop(), list[int]()

    def even(number: int) -> bool:
        loop.call_soon(turns.append, number)
        return number % 2 == 0

    assert await chosen(range(100), even) == list(range(0, 100, 2))
    assert len(turns) >= 99
