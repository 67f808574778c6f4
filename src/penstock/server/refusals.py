"""Answers of the server itself, given before or instead of an application's."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import Header, error_body

RETRY_AFTER_S: Final = 1


def _headers(kind: ErrorKind, body: bytes) -> list[Header]:
    codes = kind.codes
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    if codes.retriable and codes.status in (429, 503):
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    return headers


def raw_answer(kind: ErrorKind, message: str) -> bytes:
    """An error as the bytes of a whole answer."""
    body = error_body(kind, message)
    status = HTTPStatus(kind.codes.status)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    lines += [name + b": " + value for name, value in _headers(kind, body)]
    return b"\r\n".join([*lines, b"", body])


def refusing(kind: ErrorKind, message: str) -> ASGIApp:
    """An application that answers one request with an error."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        body = error_body(kind, message)
        headers = _headers(kind, body)
        await respond(scope, send, kind.codes.status, headers, body)

    return refuse


async def respond(scope: Scope, send: Send, status: int, headers: list[Header], body: bytes) -> None:
    """Answer an HTTP request, one of HEAD without the body."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def refuse(
    scope: Scope, send: Send, error: PenstockError, headers: Mapping[str, str] | None = None
) -> None:
    """Answer with an error, or give up where the answer has begun: the server then cuts the connection."""
    upgrade = scope["type"] == "websocket"
    kind = error.kind
    body = error_body(kind, error.message)
    sent = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    sent += [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()
    ]
    prefix = "websocket." if upgrade else ""
    status = kind.codes.ws_status if upgrade else kind.codes.status
    await send({"type": f"{prefix}http.response.start", "status": status, "headers": sent})
    await send({"type": f"{prefix}http.response.body", "body": body})


BAD_HEAD: Final = raw_answer(
    ErrorKind.HEAD_TOO_LARGE, "the head is larger than 64 KiB, or has too many lines"
)
BAD_PATH: Final = raw_answer(ErrorKind.BAD_PARAMETER, "the path of the request is not ASCII")
UPGRADE_WITH_BODY: Final = raw_answer(ErrorKind.BAD_PARAMETER, "a WebSocket upgrade must have no body")
