"""The floor of Penstock's own server stack: `HttpServer` answers what the echo floors answer, over HTTP and WebSocket.

`python -m benchmarks.stack_echo PORT`; prints `ready` when it accepts. The shapes are those of the echo floors.
"""

import asyncio
import gc
import sys
from typing import Any

import uvloop

from penstock.protocols.limits import Limits
from penstock.protocols.load import Load
from penstock.server.config import HttpSettings
from penstock.server.http import HttpServer
from penstock.server.listeners import Listener, bind

from . import echo, websocket_echo


async def answer_http(receive: Any, send: Any) -> None:
    parts, more = [], True
    while more:
        event = await receive()
        parts.append(event.get("body", b""))
        more = event.get("more_body", False)
    body = echo.answer(b"".join(parts))
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """The ASGI application."""
    if scope["type"] == "websocket":
        await websocket_echo.Echo()(scope, receive, send)
    else:
        await answer_http(receive, send)


async def serve(port: int) -> None:
    server = HttpServer(answer, HttpSettings(), Limits(), Load(1000, 1000, 1 << 30))
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
