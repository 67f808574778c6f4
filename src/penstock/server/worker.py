"""The task of a connection: it answers one request after the other, and waits between them."""

import asyncio

from .request import Request, Serve


class Worker:
    """Begins with the first request; to be ended with the connection.

    `tasks` are those that answer a request now. A request that is started while the one before it, though answered,
    has not ended, gets its own task, and so does one after a task was cancelled.
    """

    __slots__ = ("_idle", "_loop", "_started", "_task", "_tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[None]]) -> None:
        self._loop = loop
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None  # what it waits for
        self._started: tuple[Request, Serve] | None = None

    def start(self, request: Request, serve: Serve) -> None:
        """Have a request answered."""
        self._started = request, serve
        if self._task is None or not self._wake():
            self._task = self._loop.create_task(self._run())
        self._tasks.add(self._task)

    def end(self) -> None:
        """No more requests come."""
        self._wake()
        self._task = None

    def _wake(self) -> bool:
        """Whether there was a task that waits."""
        idle, self._idle = self._idle, None
        if idle is None or idle.done():
            return False
        idle.set_result(None)
        return True

    async def _run(self) -> None:
        task = self._task
        assert task is not None
        while (started := self._started) is not None:
            self._started = None
            request, serve = started
            try:
                await request.run(serve)
            finally:
                self._tasks.discard(task)
            if self._task is not task or task.cancelling() or not request.keep_alive:
                return
            self._idle = self._loop.create_future()
            await self._idle
