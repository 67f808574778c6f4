"""The door: a listening socket, and every connection that came in by it."""

import asyncio
import socket
from typing import Final

from penstock.core.tasks import Tasks
from penstock.protocols.session import Gate

from .connection import Connection

BACKLOG: Final = 1024  # connections the system may hold before they are accepted


class BinaryDoor:
    """Pulsar's binary protocol on one socket."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._tasks = Tasks()
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self, bound: socket.socket, url: str, advertised: str = "") -> None:
        """Listen on a bound socket. Clients are told to connect to `url`, or to `advertised` (host:port)."""
        self._gate.pulsar_url = f"pulsar://{advertised}" if advertised else url
        self._gate.pulsar_advertised = bool(advertised)
        self._server = await asyncio.get_running_loop().create_server(
            self._connected, sock=bound, backlog=BACKLOG
        )

    def _connected(self) -> Connection:
        return Connection(self._gate, self._tasks, self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    async def drain(self) -> None:
        """Take no new connection, answer everything that was published, close."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.hold("the server is shutting down")
        for connection in list(self._connections):
            await connection.session.drain()
            connection.finish()

    async def close(self) -> None:
        """Cut what is left, and wait until everything of every connection is given up."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        while self._connections:
            await next(iter(self._connections)).ended.wait()
        await self._tasks.close()
