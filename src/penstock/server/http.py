"""The HTTP and WebSocket server: its listening sockets and its connections, from the first to the last."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.paths import PREFIX_KEY
from penstock.protocols.limits import Limits
from penstock.protocols.load import Load
from penstock.protocols.transport import TlsServer

from .config import HttpSettings
from .connections import HttpConnection
from .deadlines import LINGER_S, cut
from .listeners import Listener
from .request import Serve
from .sockets import WebSocketConnection
from .state import Connection, State

log = logging.getLogger(__name__)

CANCEL_S = 2.0  # for what has been cancelled to say so
HEARD_S = 0.5  # for peers that are still sending to read the ends of their answers
HEARD_LOOKS = 50  # within it


class HttpServer:
    """The listening sockets and their connections."""

    servers: list[asyncio.Server]
    tls: list[TlsServer]

    def __init__(self, app: Any, settings: HttpSettings, limits: Limits, load: Load) -> None:
        self._backlog = settings.backlog
        self._drain_ms = settings.drain_ms
        self.state = State(app, settings, limits, load)
        self.servers = []
        self.tls = []

    async def open(self, listeners: Sequence[Listener]) -> None:
        """Listen on bound sockets."""
        self.state.set_date()
        loop = asyncio.get_running_loop()
        for listener in listeners:
            made = partial(self._connection, listener.prefix)
            if listener.context is None:
                server = await loop.create_server(made, sock=listener.bound, backlog=self._backlog)
                self.servers.append(server)
            else:
                self.tls.append(self._listen_tls(made, listener, listener.context))

    def _connection(self, prefix: str) -> HttpConnection:
        connection = HttpConnection(self.state)
        if prefix:
            connection.serve = partial(_serve_below, prefix, connection.serve)
        return connection

    def _listen_tls(
        self, made: Callable[[], HttpConnection], listener: Listener, context: ssl.SSLContext
    ) -> TlsServer:
        def counted(address: str) -> HttpConnection:
            connection = made()
            connection.counted = address
            return connection

        return TlsServer(
            counted,
            listener.bound,
            self.state.load,
            context,
            backlog=self._backlog,
            handshake_s=listener.handshake_s,
            end_s=LINGER_S,
        )

    async def run_until(self, stop: asyncio.Event, also: Callable[[], None]) -> None:
        """Serve until `stop` is set; now and then look for peers that are late, and do what there is `also`."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            self.state.set_date()
            self.look(loop.time())
            also()
            try:
                async with asyncio.timeout(self.state.deadlines.look_s):
                    await stop.wait()
            except TimeoutError:
                pass

    def apply_limits(self, limits: Limits) -> None:
        """Go by other limits from now on; the size of frames holds for WebSockets to come."""
        self.state.apply_limits(limits)

    def look(self, now: float) -> None:
        """Drop late peers, and count the memory held for all."""
        for connection in list(self.state.connections):
            connection.look(now)

    def stop_listening(self) -> None:
        """Take no new connections, and none again that is idle now."""
        for server in self.servers:
            server.close()
        for listener in self.tls:
            listener.close()
        for connection in list(self.state.connections):
            # A WebSocket's end is its endpoint's business.
            if not isinstance(connection, WebSocketConnection) and not connection.lingers:
                _shut_down(connection)

    async def drain(self, endpoints: Callable[[], Awaitable[None]], force: asyncio.Event) -> None:
        """Let the `endpoints` finish work in flight, for as long as the settings say or until `force`; cut the
        rest."""
        self.stop_listening()
        try:
            async with asyncio.timeout(self._drain_ms / 1000):
                await endpoints()
                await self._until_done(force)
        except TimeoutError:
            log.warning("cut off what did not end in time", extra={"requests": len(self.state.tasks)})
        left = list(self.state.tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)
        for listener in self.tls:
            await listener.wait_closed()
        await self._until_heard()
        for connection in list(self.state.connections):
            _shut_down(connection)
        for _ in range(10):  # transports close on the loop's next rounds
            await asyncio.sleep(0)

    async def _until_done(self, force: asyncio.Event) -> None:
        forced = asyncio.get_running_loop().create_task(force.wait())
        try:
            while self.state.tasks and not force.is_set():
                await asyncio.wait([*self.state.tasks, forced], return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()

    async def _until_heard(self) -> None:
        """Let peers that were still sending read the ends of their answers, for a moment."""
        for _ in range(HEARD_LOOKS):
            if not any(one.lingers for one in self.state.connections):
                return
            await asyncio.sleep(HEARD_S / HEARD_LOOKS)


def _serve_below(prefix: str, serve: Serve, exchange: Exchange) -> Awaitable[None]:
    """Serve a request as if its path began with a prefix."""
    scope = exchange.scope
    scope[PREFIX_KEY] = prefix
    scope["path"] = prefix + scope["path"]
    scope["raw_path"] = prefix.encode() + scope["raw_path"]
    return serve(exchange)


def _shut_down(connection: Connection) -> None:
    """Close a connection; one that fails at it is cut off, and holds up no other."""
    try:
        connection.shutdown()
    except Exception:
        log.exception("cut off a connection that could not be closed")
        cut(connection.transport)
