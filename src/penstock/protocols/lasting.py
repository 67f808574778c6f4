"""Work that goes on when its request is answered before it is done (RFC 7240, `Prefer: respond-async`)."""

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

WAIT_S: Final = 10  # unless the request says otherwise
WAIT_MAX_S: Final = 30
RUNNING_MAX: Final = 1_000
KEPT_MAX: Final = 1_000  # unclaimed results
KEPT_MS: Final = 60_000

_Key = tuple[Hashable, Hashable]

_WAIT: Final = re.compile(r"\bwait\s*=\s*(\d{1,4})\b")


def asked_wait_s(prefer: str | None) -> int | None:
    """How long a request waits for its answer, by its header Prefer; None: until there is one."""
    if prefer is None or "respond-async" not in prefer.lower():
        return None
    found = _WAIT.search(prefer.lower())
    return WAIT_S if found is None else min(int(found[1]), WAIT_MAX_S)


class _Work:
    """One piece of work: when it began (ms), and its result or error."""

    def __init__(self, since: int) -> None:
        self.since = since
        self.done = asyncio.Event()
        self.until = 0
        self.result: Any = None
        self.error: Exception | None = None


class LastingWork:
    """The work of one process, by the identity of the request, so that repeats are recognized. A result waits for the request that asks
    for it, for a minute."""

    def __init__(self, clock: Clock) -> None:
        self.process = secrets.token_hex(4)  # shows clients behind a load balancer which process answered
        self._clock = clock
        self._tasks = Tasks()
        self._running: dict[_Key, _Work] = {}
        self._kept: OrderedDict[_Key, _Work] = OrderedDict()

    async def result(
        self,
        subject: Hashable,
        request: Hashable,
        work: Callable[[], Coroutine[Any, Any, Any]],
        wait_s: float,
    ) -> Any | None:
        """What `work` returns, or raises; None if it is not done after `wait_s`. It is started unless the same request about
        the subject runs, or has just ended. Raises TOO_MANY_REQUESTS."""
        self._expire()
        key = subject, request
        held = self._kept.get(key) or self._running.get(key)
        if held is None:
            if len(self._running) >= RUNNING_MAX:
                raise PenstockError(
                    ErrorKind.TOO_MANY_REQUESTS, f"{RUNNING_MAX} requests are being worked on"
                )
            held = self._running[key] = _Work(self._clock.now_ms())
            self._tasks.spawn(self._run(key, held, work()), "lasting-work")
        try:
            async with asyncio.timeout(wait_s):
                await held.done.wait()
        except TimeoutError:
            return None
        self._kept.pop(key, None)
        if held.error is not None:
            raise held.error
        return held.result

    def since(self, subject: Hashable) -> int | None:
        """When work on a subject began that runs, in ms since the epoch; None if none runs here."""
        return next((held.since for (about, _), held in self._running.items() if about == subject), None)

    async def close(self) -> None:
        """Cancel what runs."""
        await self._tasks.close()

    async def _run(self, key: _Key, held: _Work, work: Coroutine[Any, Any, Any]) -> None:
        try:
            held.result = await work
        except Exception as error:
            held.error = error
        finally:
            del self._running[key]
            held.until = self._clock.now_ms() + KEPT_MS
            self._kept[key] = held
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
            held.done.set()

    def _expire(self) -> None:
        now = self._clock.now_ms()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._kept.popitem(last=False)
