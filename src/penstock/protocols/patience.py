"""Waiting for news on behalf of a request whose body was read: until they come, its time is over, its client
hangs up or the server drains."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from penstock.core.ports import Clock
from penstock.core.tasks import Tasks

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class Waits:
    """All requests that are waiting. A wait is a task of its own and a timer; it does nothing until woken."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tasks = Tasks()
        self._scopes: set[asyncio.Timeout] = set()
        self.draining = False

    async def until(self, news: Coroutine[Any, Any, bool], wait_ms: float, receive: Receive) -> bool:
        """Await `news`; False when that was in vain."""
        if self.draining or wait_ms <= 0:
            news.close()
            return False
        scope = asyncio.timeout(None)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._stop(scope)

        timer = self._clock.call_later(wait_ms, lambda: self._stop(scope))
        watching = self._tasks.spawn(watch(), "watch client")
        try:
            async with scope:
                self._scopes.add(scope)
                return await news
        except TimeoutError:
            return False
        finally:
            self._scopes.discard(scope)
            timer.cancel()
            watching.cancel()

    def _stop(self, scope: asyncio.Timeout) -> None:
        if scope in self._scopes:
            self._scopes.discard(scope)
            scope.reschedule(asyncio.get_running_loop().time())

    def drain(self) -> None:
        """End every wait, and those to come at once."""
        self.draining = True
        for scope in list(self._scopes):
            self._stop(scope)

    async def close(self) -> None:
        self.drain()
        await self._tasks.close()
