"""Where the endpoint hangs."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute

from penstock.protocols.context import ServerContext

from .endpoint import Endpoint
from .socket import Sockets


def routes(context: ServerContext, sockets: Sockets | None = None) -> list[BaseRoute]:
    """The routes of the WebSocket API. A server that drains awaits `sockets.drain()`."""
    endpoint = Endpoint(context, Sockets() if sockets is None else sockets)
    return [
        WebSocketRoute("/ws/{path:path}", endpoint, name="websocket"),
        Route("/ws/{path:path}", _plain, name="websocket-plain"),
    ]


async def _plain(_: Request) -> PlainTextResponse:
    """HTTP without an upgrade: a reader's mistake that deserves its own answer."""
    return PlainTextResponse(
        "this is a WebSocket endpoint",
        status_code=426,
        headers={"upgrade": "websocket", "connection": "upgrade"},
    )
