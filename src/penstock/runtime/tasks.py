"""Tasks with an owner and a name, and how they share the event loop: the one place that starts tasks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, TypeVar

log = logging.getLogger(__name__)

A = TypeVar("A")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SLICE_S: Final = 0.002  # far below what a client notices, far above what a switch costs


async def each(work: Callable[[A], Awaitable[T]], items: Sequence[A], at_once: int) -> list[T]:
    """The results of `work` for each item, in their order, `at_once` at a time; raises the first error."""
    if at_once == 1:
        return [await work(item) for item in items]
    results: list[T] = []
    for start in range(0, len(items), at_once):
        results += await asyncio.gather(*map(work, items[start : start + at_once]))
    return results


class Uncancellable(asyncio.Future[T]):
    """The future of what cannot be undone: a task that is cancelled while it waits for it waits on."""

    __slots__ = ()

    def cancel(self, msg: Any | None = None) -> bool:
        """Not possible."""
        return False


async def finished(future: "asyncio.Future[T]") -> T:
    """The result of what cannot be undone: a cancellation waits for its end, and comes at the next wait after.

    The caller of an append must learn what became of it, also when its own caller no longer waits. This is
    `asyncio.shield` at half of its cost; an `Uncancellable` costs little more than to await it.
    """
    waits_on = isinstance(future, Uncancellable)
    if waits_on:
        try:
            return await future
        except asyncio.CancelledError:  # the task's: it is raised at the end of the wait
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
                task.cancel()  # again, for the next wait; counted once
            return future.result()
    withheld = 0
    task = asyncio.current_task()
    while not future.done():
        ended = future.get_loop().create_future()
        future.add_done_callback(partial(_end, ended))
        try:
            await ended
        except asyncio.CancelledError:
            if task is None:
                raise
            task.uncancel()
            withheld += 1
    if task is not None:
        for _ in range(withheld):
            task.cancel()
    return future.result()


def _end(ended: "asyncio.Future[None]", future: "asyncio.Future[Any]") -> None:
    if not ended.done():  # cancelled with the task that waited
        ended.set_result(None)


class Tasks:
    """A set of running tasks with one owner. A task's failure is logged; `close` cancels the rest."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work`; the set holds it until it ends."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        try:
            error = task.exception()
        except asyncio.CancelledError:
            # Asking takes the exception out of the task. It has the frames, and all they hold; the owner mostly has the
            # task, and a frame the owner: the collector might be long in coming.
            return
        if error is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel every task."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self, again_s: float | None = None) -> None:
        """Cancel every task and wait until all have ended. Those that wait for something as they end are cancelled again
        after `again_s`."""
        while self._running:
            await asyncio.wait(self.cancel(), timeout=again_s)

    def __len__(self) -> int:
        return len(self._running)


async def outcome(tasks: Tasks, work: Coroutine[Any, Any, T], name: str) -> T:
    """The result, or the error, of what cannot be undone: it goes on when its caller leaves."""
    results: list[T] = []

    async def ended() -> Exception | None:
        try:
            results.append(await work)
        except Exception as error:
            return error
        return None

    error = await finished(tasks.spawn(ended(), name))
    if error is not None:
        raise error
    return results[0]


class Slices:
    """Long work on the event loop. Asked after every step of a long piece of work: lets the loop go on once the slice of time is used up."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = monotonic() + SLICE_S

    async def step(self) -> None:
        """Go on, or let the loop serve others first."""
        if monotonic() >= self._until:
            await asyncio.sleep(0)
            self._until = monotonic() + SLICE_S


async def chosen(items: Iterable[A], keeps: Callable[[A], object]) -> list[A]:
    """Those of many items that `keeps` keeps, in slices of time."""
    slices = Slices()
    found = []
    for item in items:
        await slices.step()
        if keeps(item):
            found.append(item)
    return found


class _Held:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


class Locks(Generic[K]):
    """One lock a key. A lock exists while a task holds it or waits for it: clients choose the keys."""

    def __init__(self) -> None:
        self._held: dict[K, _Held] = {}

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the lock of `key`; it is not reentrant."""
        held = self._held.setdefault(key, _Held())
        held.users += 1
        try:
            async with held.lock:
                yield
        finally:
            held.users -= 1
            if not held.users:
                del self._held[key]

    def __len__(self) -> int:
        return len(self._held)
