"""uvicorn as the HTTP and WebSocket server, started and stopped by us rather than by signals and itself."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import uvicorn
from starlette.types import ASGIApp

from penstock.protocols.session import Limits

from .config import HttpSettings
from .connections import HttpConnection, WebSocketConnection

log = logging.getLogger(__name__)

CANCEL_S = 2.0  # for what has been cancelled to say so


class HttpServer(uvicorn.Server):
    """One listening socket and its connections."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, limits: Limits) -> None:
        ping = settings.websocket_ping_s or None
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",  # it runs on ours
                http=HttpConnection,
                ws=WebSocketConnection,
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=settings.backlog,
                timeout_keep_alive=settings.keep_alive_s,
                ws_max_size=limits.max_frame_bytes,
                ws_ping_interval=ping,
                # A peer whose frames we are slow to take cannot be seen to answer: no pong is no news yet.
                ws_ping_timeout=None if ping is None else 2 * ping,
                ws_per_message_deflate=settings.websocket_compression,
            )
        )
        self._drain_ms = settings.drain_ms

    async def open(self, bound: socket.socket) -> None:
        """Listen on a bound socket."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.on_tick(0)
        await self.startup(sockets=[bound])

    async def run_until(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set."""
        while not stop.is_set():
            await self.on_tick(0)  # the Date header of every answer
            try:
                async with asyncio.timeout(1):
                    await stop.wait()
            except TimeoutError:
                pass

    def stop_listening(self) -> None:
        """Take no new connections, and none again that is idle now."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            if not hasattr(connection, "handshake_complete"):  # a WebSocket's end is its door's business
                connection.shutdown()

    async def drain(self, doors: Callable[[], Awaitable[None]], force: asyncio.Event) -> None:
        """Let the `doors` finish what is in flight, for as long as the settings say or until `force`; cut the
        rest."""
        self.stop_listening()
        try:
            async with asyncio.timeout(self._drain_ms / 1000):
                await doors()
                await self._until_done(force)
        except TimeoutError:
            log.warning("cut off what did not end in time", extra={"requests": len(self.server_state.tasks)})
        left = list(self.server_state.tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(10):  # transports close on the loop's next rounds
            await asyncio.sleep(0)

    async def _until_done(self, force: asyncio.Event) -> None:
        forced = asyncio.get_running_loop().create_task(force.wait())
        try:
            while self.server_state.tasks and not force.is_set():
                await asyncio.wait([*self.server_state.tasks, forced], return_when=asyncio.FIRST_COMPLETED)
        finally:
            forced.cancel()
