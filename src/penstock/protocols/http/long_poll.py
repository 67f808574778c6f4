"""Waiting on behalf of a request: until there is news, the timeout, the client hangs up or the server drains.

Our own server calls when a client hangs up; of others a task has to wait for that.
"""

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.model.errors import PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.permission_watch import PermissionWatch
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .exchange import Exchange

T = TypeVar("T")


class LongPoll:
    """Watches one request's client; to be used as a context manager once the request's body was read.

    `lapsed` is why the client may have no more of it: its credentials expired, or a permission was revoked.
    """

    def __init__(self, waits: "LongPolls", exchange: Exchange) -> None:
        self.gone = False
        self.lapsed: PenstockError | None = None
        self._permission: PermissionWatch | None = None
        self._waits = waits
        self._exchange = exchange
        self._scope: asyncio.Timeout | None = None
        self._watcher: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        self._waits.running.add(self)
        if not self._exchange.call_when_gone(self._hang_up):
            self._watcher = self._waits.tasks.spawn(self._watch_client(), "watch client")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waits.running.discard(self)
        self._exchange.call_when_gone(None)
        if self._watcher is not None:
            self._watcher.cancel()
        if self._permission is not None:
            self._permission.close()

    def watch(self, caller: Caller, check: Callable[[], object]) -> None:
        """Wait no longer than the caller may; raises what `check` does now."""
        self._permission = caller.watch(check, self._lapse)

    def _lapse(self, error: PenstockError) -> None:
        self.lapsed = error
        self.stop()

    async def _watch_client(self) -> None:
        while (await self._exchange.receive())["type"] != "http.disconnect":
            pass
        self._hang_up()

    def _hang_up(self) -> None:
        self.gone = True
        self.stop()

    @property
    def over(self) -> bool:
        """Whether all waits must end."""
        return self.gone or self._waits.draining or self.lapsed is not None

    async def until(self, news: Coroutine[Any, Any, T], wait_ms: float | None) -> T | None:
        """Await `news`, for at most `wait_ms`; None when that was in vain."""
        if self.over or (wait_ms is not None and wait_ms <= 0):
            news.close()
            return None
        timer = None if wait_ms is None else self._waits.clock.call_later(wait_ms, self.stop)
        try:
            async with asyncio.timeout(None) as self._scope:
                return await news
        except TimeoutError:
            return None
        finally:
            self._scope = None
            if timer is not None:
                timer.cancel()

    def stop(self) -> None:
        """End the wait that is going on."""
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())
            self._scope = None

    async def client_took_it(self) -> bool:
        """After a part of an answer was sent: whether the client was still there, as far as can be known."""
        await asyncio.sleep(0)  # lets a hang-up that is known by now be heard of
        return not self.gone


class LongPolls:
    """All requests that may be waiting; `drain` ends their waits, and those of later ones at once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tasks = Tasks()
        self.running: set[LongPoll] = set()
        self.draining = False

    def drain(self) -> None:
        self.draining = True
        for poll in list(self.running):
            poll.stop()

    async def close(self) -> None:
        self.drain()
        await self.tasks.close()
