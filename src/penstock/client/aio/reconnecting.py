"""Keeping a producer or consumer connected: what both do alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.client.errors import (
    BrokerMetadataError,
    ConsumerBusy,
    ProducerBusy,
    PulsarException,
    UnknownError,
)
from penstock.client.session.backoff import Backoff

from .tasks import log

# Of a connection that was there before: the broker may not have noticed yet that the old one is gone, or is
# just starting.
STABLE_S: Final = 5.0  # a connection that lasted so long was a good one

_PASSING: Final = (BrokerMetadataError, ConsumerBusy, ProducerBusy, UnknownError)


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
                # which would forget what came over it and will not come again.
                self._lost.clear()
                try:
                    await self._connect()
                    break
                except PulsarException as error:
                    if not (error.can_retry or isinstance(error, _PASSING)):
                        log.warning("%s has ended: %s", self._what, error)
                        self._ended(error)
                        return
                    wait_s = backoff.next_s()
                    log.info("%s: trying again in %.1f s: %s", self._what, wait_s, error)
                    await asyncio.sleep(wait_s)
