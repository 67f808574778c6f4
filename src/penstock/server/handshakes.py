"""The opening handshake of a WebSocket (RFC 6455 4.2), by the `websockets` library; and upgrades that are refused."""

import email.utils
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from websockets.datastructures import Headers
from websockets.extensions import Extension
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol

from penstock.protocols.http.answers import Header

# Windows of 4 KiB, as most messages are small and every connection has two of them.
_DEFLATE: Final = ServerPerMessageDeflateFactory(
    server_max_window_bits=12, client_max_window_bits=12, compress_settings={"memLevel": 5}
)


class Handshake(NamedTuple):
    """The answer to an upgrade: accepted if its status is 101, and then perhaps with compression."""

    response: Response
    deflate: Extension | None

    @property
    def accepted(self) -> bool:
        return self.response.status_code == 101

    def answer(self, headers: Iterable[Header]) -> bytes:
        """The bytes of it, with `headers` of the server's."""
        if self.accepted:
            del self.response.headers["Date"]  # the server's own is there already
            self.response.headers.update(_decoded(headers))
        return self.response.serialize()


def shake_hands(request: Request, *, compression: bool) -> Handshake:
    """Answer the head of an upgrade."""
    protocol = ServerProtocol(extensions=[_DEFLATE] if compression else [])
    response = protocol.accept(request)
    return Handshake(response, next(iter(protocol.extensions), None))


def refused(status: int, headers: Iterable[Header], body: bytes) -> bytes:
    """The bytes of an HTTP answer that ends the connection."""
    answer = Headers(_decoded(headers))
    answer.setdefault("Date", email.utils.formatdate(usegmt=True))
    answer.setdefault("Connection", "close")
    answer.setdefault("Content-Length", str(len(body)))
    answer.setdefault("Content-Type", "text/plain; charset=utf-8")
    return Response(status, HTTPStatus(status).phrase, answer, body).serialize()


def scope_of(request: Request, **more: Any) -> dict[str, Any]:
    """The ASGI scope of an upgrade."""
    path, _, query = request.path.partition("?")
    protocols = ",".join(request.headers.get_all("Sec-WebSocket-Protocol"))
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "root_path": "",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [
            (name.encode("ascii"), value.encode("latin-1")) for name, value in request.headers.raw_items()
        ],
        "subprotocols": [one.strip() for one in protocols.split(",") if one.strip()],
        "extensions": {"websocket.http.response": {}},
        **more,
    }


class Denial:
    """ASGI's `send` for an upgrade: all that an application can say so is that it refuses it."""

    def __init__(self, refuse: Callable[[int, Sequence[Header], bytes], None]) -> None:
        self._refuse = refuse
        self._status = 0
        self._headers: list[Header] = []
        self._body = b""

    async def __call__(self, event: MutableMapping[str, Any]) -> None:
        """Take an event; the last one of an answer refuses the upgrade."""
        match event["type"]:
            case "websocket.http.response.start":
                self._status, self._headers = event["status"], list(event.get("headers", ()))
            case "websocket.http.response.body":
                self._body += event.get("body", b"")
                if not event.get("more_body", False):
                    self._refuse(self._status, self._headers, self._body)
            case "websocket.close":
                self._refuse(403, [], b"")
            case other:
                raise RuntimeError(f"a WebSocket is used by its connection, not by {other!r}")


async def connect_event() -> MutableMapping[str, Any]:
    """ASGI's `receive` for an upgrade."""
    return {"type": "websocket.connect"}


def _decoded(headers: Iterable[Header]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
