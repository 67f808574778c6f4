"""A client's background tasks, and connecting again: what producers and consumers do alike."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from penstock.client.errors import PulsarException

log = logging.getLogger("penstock.client")

FIRST_S: Final = 0.1  # the first wait before connecting again, and the longest; as in Pulsar's clients
MAX_S: Final = 30.0
STABLE_S: Final = 5.0  # a connection that lasted so long was a good one

# The system's: the state of the `random` module belongs to the application, and forked processes share theirs.
_RANDOM: Final = random.SystemRandom()


class Tasks:
    """A client's running tasks. A task's failure is logged; `close` cancels the rest."""

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

    def cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel every task but this one."""
        tasks = [task for task in self._running if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """Cancel every task but this one, and wait until all have ended."""
        await asyncio.gather(*self.cancel(), return_exceptions=True)


class Backoff:
    """Each wait is up to twice the one before; a random part keeps many clients from coming at once."""

    def __init__(self, first_s: float = FIRST_S, max_s: float = MAX_S) -> None:
        self._first_s = self._next_s = first_s
        self._max_s = max_s

    def next_s(self) -> float:
        """The next wait."""
        wait, self._next_s = self._next_s, min(self._max_s, 2 * self._next_s)
        return wait * _RANDOM.uniform(0.8, 1.0)

    def reset(self) -> None:
        """It went well."""
        self._next_s = self._first_s


async def within(connect: Callable[[], Awaitable[None]], timeout_s: float) -> None:
    """Connect for the first time, again and again while that can help. Raises what stood in the way."""
    backoff, loop = Backoff(), asyncio.get_running_loop()
    until = loop.time() + timeout_s
    while True:
        try:
            return await connect()
        except PulsarException as error:
            wait_s = backoff.next_s()
            if not error.can_retry or loop.time() + wait_s > until:
                raise
            log.debug("trying again in %.1f s: %s", wait_s, error)
            await asyncio.sleep(wait_s)


class Reconnecting:
    """Connects again whenever `lost` is called, until that cannot help."""

    def __init__(
        self, what: str, connect: Callable[[], Awaitable[None]], ended: Callable[[PulsarException], None]
    ) -> None:
        self._what = what
        self._connect = connect
        self._ended = ended
        self._lost = asyncio.Event()

    def lost(self) -> None:
        """The connection is gone."""
        self._lost.set()

    async def run(self) -> None:
        """To be run as a task."""
        backoff, loop = Backoff(), asyncio.get_running_loop()
        while True:
            since = loop.time()
            await self._lost.wait()
            if loop.time() - since >= STABLE_S:
                backoff.reset()
            else:  # lost as soon as made: not at once again
                await asyncio.sleep(backoff.next_s())
            while True:
                # An attempt may be lost before it fails: that is no reason to connect again after the next one,
                # which would lose messages that came over it and are not sent again.
                self._lost.clear()
                try:
                    await self._connect()
                    break
                except PulsarException as error:
                    if not (error.can_retry or error.passing):
                        log.warning("%s has ended: %s", self._what, error)
                        self._ended(error)
                        return
                    wait_s = backoff.next_s()
                    log.info("%s: trying again in %.1f s: %s", self._what, wait_s, error)
                    await asyncio.sleep(wait_s)
