"""One HTTP request and its answer, straight on ASGI: the hot routes pay for nothing they do not use."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.holding import Holding, holding_of
from penstock.protocols.trace import trace_of

from .answers import JSON_TYPE, Answer, Dialect, Header, error_body, error_headers

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)

_LENGTH_DIGITS: Final = 18  # a longer number is as good as this many of its digits: too large


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


class Exchange:
    """A request being answered. `started` tells that an answer's head is out and no other can follow."""

    __slots__ = (
        "_headers",
        "authorization",
        "encoding",
        "length",
        "method",
        "receive",
        "scope",
        "send",
        "started",
        "traceable",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.method: str = scope["method"]
        self.started = False
        self.authorization: bytes | None = None
        self.encoding: bytes | None = None
        self.length = -1
        self._headers: dict[str, str] | None = None
        self.traceable = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                self.length = int(value[:_LENGTH_DIGITS]) if value.isdigit() else -1
            elif name == b"authorization":
                self.authorization = value
            elif name == b"content-encoding":
                self.encoding = value
            elif name == b"traceparent":
                self.traceable = True

    def header(self, name: bytes) -> str | None:
        """A request header by its lower-case name."""
        for found, value in self.scope["headers"]:
            if found == name:
                return str(value.decode("latin-1"))
        return None

    @property
    def headers(self) -> dict[str, str]:
        """The request's headers by lower-case name; those given several times are one list."""
        if self._headers is not None:
            return self._headers
        headers: dict[str, str] = {}
        for name, value in self.scope["headers"]:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._headers = headers
        return headers

    def segments(self) -> list[str]:
        """The segments of the path, decoded one by one; raises INVALID_NAME."""
        raw = raw_path(self.scope)
        try:
            return [unquote_to_bytes(part).decode() for part in raw[1:].split(b"/")]
        except UnicodeDecodeError:
            raise PenstockError(ErrorKind.INVALID_NAME, "the path is no UTF-8") from None

    @property
    def holding(self) -> Holding | None:
        """What the server holds for the request's connection."""
        return holding_of(self.scope)

    def trace(self) -> dict[str, str] | None:
        """What carries on the request's trace in its messages (W3C Trace Context); None where nothing does."""
        return trace_of(self.scope["headers"]) if self.traceable else None

    async def body(self, bytes_max: int, *, encoded: bool = False) -> bytes:
        """The request's body; raises TOO_LARGE as soon as it is known to be, ClientGoneError, BAD_MEDIA_TYPE.

        With `encoded` its Content-Encoding is the caller's to see to; otherwise there must be none.
        """
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
        if self.encoding is not None and not encoded and self.encoding.lower() != b"identity":
            raise PenstockError(
                ErrorKind.BAD_MEDIA_TYPE,
                f"Content-Encoding {self.encoding.decode('latin-1')!r} is not understood",
            )
        return body

    async def json(self, decoder: msgspec.json.Decoder[T], bytes_max: int, *, empty: bytes = b"") -> T:
        """The request's body, or `empty` where there is none, as what the decoder is for; raises as `body`, BAD_JSON,
        BAD_PARAMETER."""
        body = await self.body(bytes_max)
        try:
            return decoder.decode(body or empty)
        except msgspec.ValidationError as error:
            raise PenstockError(ErrorKind.BAD_PARAMETER, reason(error)) from None
        except DECODE_ERRORS as error:
            raise PenstockError(ErrorKind.BAD_JSON, reason(error)) from None

    async def answer(self, body: bytes, status: int = 200, *headers: Header) -> None:
        """A whole answer in JSON."""
        await self.head(status, JSON_TYPE, (b"content-length", b"%d" % len(body)), *headers)
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})

    async def give(self, answer: Answer) -> None:
        """A whole answer; of HEAD the length of its body only."""
        body, headers = answer.content()
        if body is not None:
            headers.append((b"content-length", b"%d" % len(body)))
        await self.head(answer.status, *headers)
        sent = b"" if body is None or self.method == "HEAD" else body
        await self.send({"type": "http.response.body", "body": sent})

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

    async def fail(self, error: Exception, context: ServerContext, dialect: Dialect) -> None:
        """Answer with what went wrong, where a client is there and no answer has begun."""
        if isinstance(error, ClientGoneError):
            return
        if not isinstance(error, PenstockError):
            log.error(
                "request failed", extra={"method": self.method, "path": self.scope["path"]}, exc_info=error
            )
            error = PenstockError(ErrorKind.INTERNAL, "an error inside the server; its log says more")
        elif self.started:
            log.warning("an answer was cut short: %s", error.message, extra={"path": self.scope["path"]})
        if self.started:
            return
        body = error_body(error.kind, error.message, dialect)
        await self.answer(body, error.kind.codes.status, *error_headers(error, context.challenges))


def reason(error: Exception) -> str:
    """What is wrong with a JSON body (one of DECODE_ERRORS), in words."""
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error, UnicodeError):
        return "the body is no UTF-8"
    return str(error)


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent, still percent-encoded, without what the server is mounted under."""
    path: bytes = scope.get("raw_path") or scope["path"].encode()
    return path.partition(b"?")[0].removeprefix(scope.get("root_path", "").encode())


def _too_large(bytes_max: int) -> PenstockError:
    return PenstockError(ErrorKind.TOO_LARGE, f"the body is larger than {bytes_max} bytes")
