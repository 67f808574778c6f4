"""The endpoint: a listening socket, and every connection that came in by it."""

import asyncio
import socket
import ssl
from typing import Final

from penstock.protocols.context import ServerContext
from penstock.protocols.transport import TlsServer
from penstock.runtime.tasks import Tasks

from .connection import Connection

BACKLOG: Final = 1024  # connections the system may hold before they are accepted
TLS_END_S: Final = 2.0  # for a client to answer that the connection is closed


class BinaryEndpoint:
    """Pulsar's binary protocol, on a socket or several."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._tasks = Tasks()
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._tls: list[TlsServer] = []

    async def open(self, bound: socket.socket, url: str, advertised: str = "") -> None:
        """Listen on a bound socket. Lookups send clients to `url`, or to `advertised` (host:port)."""
        self._context.pulsar_url = f"pulsar://{advertised}" if advertised else url
        self._context.pulsar_advertised = bool(advertised)
        await self.listen(bound)

    async def open_tls(
        self,
        bound: socket.socket,
        url: str,
        advertised: str,
        context: ssl.SSLContext,
        handshake_s: float,
    ) -> None:
        """The same over TLS."""
        self._context.pulsar_tls_url = f"pulsar+ssl://{advertised}" if advertised else url
        self._context.pulsar_tls_advertised = bool(advertised)
        await self.listen(bound, context, handshake_s)

    async def open_for_workers(self, bound: socket.socket) -> None:
        """Listen for workers of this server alone: their connections count for no address."""

        def connected() -> Connection:
            return Connection(self._context, self._tasks, self._connections, of_worker=True)

        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_server(connected, sock=bound, backlog=BACKLOG))

    async def listen(
        self,
        bound: socket.socket,
        context: ssl.SSLContext | None = None,
        handshake_s: float = 10.0,
        *,
        for_processes: bool = False,
    ) -> None:
        """Listen on a bound socket that lookups do not name; `for_processes`: only other processes of this service may connect."""

        def connected(entered: str = "") -> Connection:
            return Connection(
                self._context, self._tasks, self._connections, entered, for_processes=for_processes
            )

        if context is None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(connected, sock=bound, backlog=BACKLOG))
            return
        self._tls.append(
            TlsServer(
                connected,
                bound,
                self._context.load,
                context,
                backlog=BACKLOG,
                handshake_s=handshake_s,
                end_s=TLS_END_S,
            )
        )

    def __len__(self) -> int:
        return len(self._connections)

    def look(self) -> None:
        """Called now and then: count what the connections hold, and cut those whose frames do not come."""
        for connection in list(self._connections):
            connection.look()

    async def drain(self) -> None:
        """Take no new connection, answer everything that was published, close."""
        for server in self._servers:
            server.close()
        for listener in self._tls:
            listener.close()
        for connection in list(self._connections):
            connection.hold("the server is shutting down")
        for connection in list(self._connections):
            await connection.session.drain()
            connection.finish()

    async def close(self) -> None:
        """Cut remaining connections, and wait until everything of them is released."""
        for server in self._servers:
            server.close()
        for listener in self._tls:
            listener.close()
        for listener in self._tls:
            await listener.wait_closed()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await next(iter(self._connections)).ended.wait()
        await self._tasks.close()
