"""The door: a listening socket, and every connection that came in by it."""

import asyncio
import socket
import ssl
from typing import Any, Final

from penstock.core.tasks import Tasks
from penstock.protocols.session import Gate

from .connection import Connection

BACKLOG: Final = 1024  # connections the system may hold before they are accepted
TLS_END_S: Final = 2.0  # for a client to answer that the connection is closed
BUSY: Final = "the server holds too much"  # Pulsar's brokers do the same: maxMessagePublishBufferSizeInMB


class BinaryDoor:
    """Pulsar's binary protocol, on a socket or several."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tasks = Tasks()
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._held = 0  # by all connections, when last counted

    async def open(self, bound: socket.socket, url: str, advertised: str = "") -> None:
        """Listen on a bound socket. Clients are told to connect to `url`, or to `advertised` (host:port)."""
        self._gate.pulsar_url = f"pulsar://{advertised}" if advertised else url
        self._gate.pulsar_advertised = bool(advertised)
        await self._listen(bound)

    async def open_tls(
        self,
        bound: socket.socket,
        url: str,
        advertised: str,
        context: ssl.SSLContext,
        handshake_s: float,
    ) -> None:
        """The same over TLS."""
        self._gate.pulsar_tls_url = f"pulsar+ssl://{advertised}" if advertised else url
        self._gate.pulsar_tls_advertised = bool(advertised)
        await self._listen(
            bound, ssl=context, ssl_handshake_timeout=handshake_s, ssl_shutdown_timeout=TLS_END_S
        )

    async def _listen(self, bound: socket.socket, **over_tls: Any) -> None:
        loop = asyncio.get_running_loop()
        self._servers.append(
            await loop.create_server(self._connected, sock=bound, backlog=BACKLOG, **over_tls)
        )

    def _connected(self) -> Connection:
        return Connection(self._gate, self._tasks, self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def look(self) -> None:
        """Count what the connections hold for all; while it is too much, read nothing more from them."""
        load = self._gate.load
        held = sum(connection.held() for connection in self._connections)
        load.unwritten += held - self._held
        self._held = held
        for connection in self._connections:
            if load.full:
                connection.hold(BUSY)
            else:
                connection.release(BUSY)

    async def drain(self) -> None:
        """Take no new connection, answer everything that was published, close."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.hold("the server is shutting down")
        for connection in list(self._connections):
            await connection.session.drain()
            connection.finish()

    async def close(self) -> None:
        """Cut what is left, and wait until everything of every connection is given up."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await next(iter(self._connections)).ended.wait()
        await self._tasks.close()
