"""Work outlasts its request, and its result waits for the request that comes again."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols import lasting
from penstock.protocols.lasting import LastingWork, asked_wait_s
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def works(clock: ManualClock) -> AsyncIterator[LastingWork]:
    made = LastingWork(clock)
    yield made
    await made.close()


class Job:
    """Work that ends when it is told to."""

    def __init__(self) -> None:
        self.begun = 0
        self.end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __call__(self) -> str:
        self.begun += 1
        return await self.end


async def test_work_is_done_once_however_often_it_is_asked_for(
    works: LastingWork, clock: ManualClock
) -> None:
    job = Job()
    assert await works.result("batch", 1, job, 0) is None
    assert await works.result("batch", 1, job, 0) is None
    assert works.since("batch") == clock.now_ms()
    waiting = Tasks().spawn(works.result("batch", 1, job, 60), "waiting")
    await asyncio.sleep(0)
    waiting.cancel()  # a client that hangs up ends nothing
    await asyncio.gather(waiting, return_exceptions=True)
    job.end.set_result("done")
    assert await works.result("batch", 1, job, 60) == "done"
    assert (job.begun, works.since("batch")) == (1, None)
    assert await works.result("batch", 1, job, 60) == "done"
    assert job.begun == 2, "what was fetched is forgotten: the same request is asked again"


async def test_an_error_waits_too_but_not_for_ever(works: LastingWork, clock: ManualClock) -> None:
    for wait_ms, begun in ((0, 1), (lasting.KEPT_MS, 2)):
        job = Job()
        assert await works.result("batch", 1, job, 0) is None
        job.end.set_exception(PenstockError(ErrorKind.STAGE_NOT_FOUND, "none"))
        while works.since("batch") is not None:
            await asyncio.sleep(0)
        clock.turn(wait_ms)
        with pytest.raises(PenstockError, match="none"):
            await works.result("batch", 1, job, 60)
        assert job.begun == begun


async def test_requests_that_differ_are_not_answered_for_one_another(
    works: LastingWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lasting, "RUNNING_MAX", 2)
    jobs = [Job(), Job()]
    for number, job in enumerate(jobs):
        assert await works.result("batch", number, job, 0) is None
    with pytest.raises(PenstockError) as refused:
        await works.result("other", 0, Job(), 0)
    assert refused.value.kind is ErrorKind.TOO_MANY_REQUESTS
    jobs[1].end.set_result("second")
    jobs[0].end.set_result("first")
    assert [await works.result("batch", n, job, 60) for n, job in enumerate(jobs)] == ["first", "second"]


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        (None, None),
        ("return=minimal", None),
        ("wait=10", None),
        ("respond-async", 10),
        ("respond-async, wait=0", 0),
        ("wait=9999, respond-async", 30),
        ("Respond-Async; wait = 5", 5),
    ],
)
def test_the_header_prefer(prefer: str | None, wait_s: int | None) -> None:
    assert asked_wait_s(prefer) == wait_s
