"""Tasks that are kept, named and heard of: the one place that starts any."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


async def finished(future: "asyncio.Future[T]") -> T:
    """The result of what cannot be undone: a cancellation waits for its end, and comes at the next wait after.

    Whoever asked the store to append must learn what became of it, also when nobody waits for the answer.
    """
    withheld = 0
    task = asyncio.current_task()
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.cancelled() or task is None:
                raise
            task.uncancel()
            withheld += 1
        except Exception:  # noqa: S110 - raised below
            pass
    if task is not None:
        for _ in range(withheld):
            task.cancel()
    return future.result()


class Tasks:
    """A set of running tasks with one owner. A task's failure is logged; `close` cancels what is left."""

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
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        while self._running:
            tasks = list(self._running)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._running)
