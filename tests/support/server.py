"""A whole server in this process over memory: its broker, its clock, and clients with and without sockets.

`penstock.testing.server` starts a server from its configuration alone; this one is for tests that also need to reach
the broker, turn the clock or replace the store.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Self, TypeVar

import httpx
import uvloop

from penstock.broker.settings import BrokerSettings
from penstock.engines.core.broker import Broker
from penstock.engines.core.ports import Store
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.protocols.auth.authenticator import authenticator
from penstock.protocols.auth.settings import AuthSettings
from penstock.protocols.context import ServerContext
from penstock.protocols.limits import Limits
from penstock.runtime.clock import Clock, LoopClock
from penstock.server.app import build_for
from penstock.server.config import HttpSettings
from penstock.server.http import HttpServer
from penstock.server.listeners import Listener, bind
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

WITHIN_S = 60.0

T = TypeVar("T")


class RunningServer:
    """The application and its parts. `client` asks it without a socket; `port` is 0 unless it listens."""

    listens = False
    clock_type: type[Clock] = ManualClock
    clock: Any  # a ManualClock, unless the class or the test chose another

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        limits: Limits | None = None,
        auth: AuthSettings | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        fleet: ProcessFleet | None = None,
    ) -> None:
        self.clock = clock or self.clock_type()
        self.store: Any = store or MemoryStore()
        self.broker = Broker(self.store, MemoryStore(TRANSIENT_LEDGERS), wire, self.clock, settings)
        self.context = ServerContext(self.broker, limits, authenticator(auth or AuthSettings(), self.broker))
        self.fleet = fleet
        self.app = build_for(self.context, fleet=fleet)
        self.port = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: BrokerSettings | None = None, **options: Any) -> AsyncIterator[Self]:
        """Run in the loop of the caller; on a free port too where the class `listens`."""
        server = cls(settings, **options)
        await server.context.broker.start()
        http = await server._listen() if cls.listens else None
        transport = httpx.ASGITransport(server.app.asgi)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://penstock") as server.client:
                yield server
        finally:
            await server.disconnect()
            if http is not None:
                await http.drain(server.app.drain, asyncio.Event())
            await server.app.close()

    async def _listen(self) -> HttpServer:
        bound = bind("127.0.0.1:0")
        http = HttpServer(self.app.asgi, HttpSettings(), self.context.limits, self.context.load)
        await http.open([Listener(bound)])
        self.port = bound.getsockname()[1]
        return http

    async def disconnect(self) -> None:
        """Close the test's own connections, before the server is drained."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://127.0.0.1:{self.port}"


class ThreadedServer(RunningServer):
    """A server that listens in a thread of its own, for tests that block; time is the machine's."""

    listens = True
    clock_type = LoopClock
    loop: asyncio.AbstractEventLoop

    @classmethod
    @contextmanager
    def running(cls, **options: Any) -> Iterator[Self]:
        opened: Future[Self] = Future()
        stop = asyncio.Event()

        async def serve() -> None:
            async with cls.open(**options) as server:
                server.loop = asyncio.get_running_loop()
                opened.set_result(server)
                await stop.wait()

        def work() -> None:
            try:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(serve())
            except BaseException as error:
                if opened.done():
                    raise
                opened.set_exception(error)

        thread = threading.Thread(target=work, name="server", daemon=True)
        thread.start()
        server = opened.result(WITHIN_S)
        try:
            yield server
        finally:
            server.loop.call_soon_threadsafe(stop.set)
            thread.join(WITHIN_S)
        assert not thread.is_alive(), "the server did not stop"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WITHIN_S)
