"""One HTTP request and its answer, straight on ASGI: the hot routes pay for nothing they do not use."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.load import Holding, holding_of
from penstock.protocols.trace import trace_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON_TYPE: Final = (b"content-type", b"application/json")


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


class Exchange:
    """A request being answered. `started` tells that an answer's head is out and no other can follow."""

    __slots__ = ("authorization", "length", "receive", "scope", "send", "started", "traceable")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.started = False
        self.authorization: bytes | None = None
        self.length = -1
        self.traceable = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.length = int(value) if value.isdigit() else -1
            elif name == b"authorization":
                self.authorization = value
            elif name == b"traceparent":
                self.traceable = True

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name."""
        for found, value in self.scope["headers"]:
            if found == name:
                return str(value.decode("latin-1"))
        return None

    @property
    def holding(self) -> Holding | None:
        """What the server holds for the request's connection."""
        return holding_of(self.scope)

    def trace(self) -> dict[str, str] | None:
        """What carries on the request's trace in its messages (W3C Trace Context); None where nothing does."""
        return trace_of(self.scope["headers"]) if self.traceable else None

    async def body(self, bytes_max: int) -> bytes:
        """The request's body; raises TOO_LARGE as soon as it is known to be, ClientGoneError, BAD_MEDIA_TYPE."""
        if self.length > bytes_max:
            raise _too_large(bytes_max)
        message = await self.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts, size = [body], len(body)
            while message.get("more_body"):
                if size > bytes_max:
                    raise _too_large(bytes_max)
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part: bytes = message.get("body", b"")
                parts.append(part)
                size += len(part)
            body = b"".join(parts)
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
        encoding = self.header(b"content-encoding")
        if encoding is not None and encoding.lower() != "identity":
            raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, f"Content-Encoding {encoding!r} is not understood")
        return body

    async def answer(self, body: bytes, status: int = 200, *headers: Header) -> None:
        """A whole answer in JSON."""
        await self.head(status, JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers)
        await self.send({"type": "http.response.body", "body": body})

    async def empty(self, status: int = 204) -> None:
        """An answer without a body."""
        await self.head(status)
        await self.send({"type": "http.response.body", "body": b""})

    async def head(self, status: int, *headers: Header) -> None:
        """Begin an answer."""
        self.started = True
        await self.send({"type": "http.response.start", "status": status, "headers": list(headers)})

    async def part(self, body: bytes) -> None:
        """More of an answer that was begun; waits while the client is slow."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self) -> None:
        """The end of an answer given in parts."""
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: PenstockError, *headers: Header, shipped: bool = False) -> None:
        """An error as the answer; the shipped dialect also names it as Pulsar does."""
        face = error.kind.codes
        told: dict[str, Any] = {"error_code": face.code, "message": error.message}
        if shipped:
            told["reason"] = error.message
        if face.status in (429, 503) and face.retriable:
            headers = (*headers, (b"retry-after", b"%d" % error.retry_after_s))
        await self.answer(to_json(told), face.status, *headers)


def to_json(value: Any) -> bytes:
    """JSON, with text that is no Unicode made harmless."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_harmless(value))


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_harmless(k): _harmless(v) for k, v in value.items()}
    return value


def _too_large(bytes_max: int) -> PenstockError:
    return PenstockError(ErrorKind.TOO_LARGE, f"the body is larger than {bytes_max} bytes")
