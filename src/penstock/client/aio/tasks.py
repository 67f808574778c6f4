"""Tasks that are kept, named and heard of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("penstock.client")


class Tasks:
    """A client's running tasks. A task's failure is logged; `close` cancels what is left."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start `work`; the set holds it until it ends."""
        # Remembered: the blocking driver may read from a connection in another thread.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel every task but this one, and wait until all have ended."""
        tasks = [task for task in self._running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
