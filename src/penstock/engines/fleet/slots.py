"""How many requests are under way to one process: of all clients, of one client, and of those that may last."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from penstock.broker.fleet import ForwardedRequest

CONNECTIONS_MAX: Final = 1000  # to one process; each long poll has one
LASTING_MAX: Final = 900  # of them, for requests that last as long as their clients want
CLIENT_MAX: Final = 500  # of them, for one client
READY_MAX: Final = 10  # in addition, for probes of readiness
READY: Final = b"/health/ready"


class Slots:
    """A request holds a slot until its answer was taken."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(CONNECTIONS_MAX)
        self._lasting = asyncio.Semaphore(LASTING_MAX)
        self._ready = asyncio.Semaphore(READY_MAX)
        self._clients: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def hold(self, request: ForwardedRequest, free_s: float) -> AsyncIterator[None]:
        """Hold a slot for a request; raises TimeoutError if none is free within `free_s` seconds."""
        needed = self._needed(request)
        async with AsyncExitStack() as held:
            async with asyncio.timeout(free_s if any(each.locked() for each in needed) else None):
                for each in needed:
                    await held.enter_async_context(each)
            yield

    def _needed(self, request: ForwardedRequest) -> list[asyncio.Semaphore]:
        if request.target == READY and request.body == b"":
            return [self._ready]
        client = self._clients.get(request.client)
        if client is None:
            client = self._clients[request.client] = asyncio.Semaphore(CLIENT_MAX)
        return [client, self._lasting, self._all] if request.lasts else [client, self._all]
