"""The floor of Penstock's own server stack: `HttpServer` answers what the echo floors answer, over HTTP and WebSocket.

`python -m benchmarks.stack_echo PORT`; prints `ready` when it accepts. The shapes are those of the echo floors.
"""

import asyncio
import gc
import sys
from typing import Any, Final

import uvloop

from penstock.protocols.limits import Limits
from penstock.protocols.load import Load
from penstock.server.config import HttpSettings
from penstock.server.http import HttpServer
from penstock.server.listeners import Listener, bind

from . import echo, websocket_echo

BODY_BYTES_MAX: Final = 1 << 20
CONNECTION_KEY: Final = "penstock.websocket"  # in the state of an ASGI scope


class Echo:
    """The application: `serve` has one request, the call one upgrade. What the server gives depends on its version:
    where HTTP or WebSockets are ASGI's, events are answered."""

    async def serve(self, exchange: Any) -> None:
        await exchange.answer(echo.answer(await exchange.body(BODY_BYTES_MAX)))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self.serve(exchange_of(scope, receive, send))
        elif (connection := scope.get("state", {}).get(CONNECTION_KEY)) is not None:
            await self._answer_frames(connection)
        else:
            await websocket_echo.Echo()(scope, receive, send)

    async def _answer_frames(self, connection: Any) -> None:
        """All messages of a read at once, as the WebSocket endpoint does."""
        connection.accept()
        while texts := await connection.receive():
            connection.send([websocket_echo.answer(text) for text in texts])
            await connection.writable.wait()


def exchange_of(scope: Any, receive: Any, send: Any) -> Any:
    """An exchange over ASGI."""
    from penstock.server.dispatch import AsgiExchange

    return AsgiExchange(scope, receive, send)


async def serve(port: int) -> None:
    server = HttpServer(Echo(), HttpSettings(), Limits(), Load(1000, 1000, 1 << 30))
    await server.open([Listener(bind(f"127.0.0.1:{port}"))])
    # As `penstock serve` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)
    sys.setswitchinterval(0.0005)
    print("ready", flush=True)
    await server.run_until(asyncio.Event(), lambda: None)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
