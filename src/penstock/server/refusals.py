"""Answers of the server itself, given before or instead of an application's."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import JSON_TYPE, Header, error_body
from penstock.protocols.http.exchange import Exchange, Send

RETRY_AFTER_S: Final = 1


def _headers(kind: ErrorKind) -> list[Header]:
    codes = kind.codes
    headers = [JSON_TYPE, (b"connection", b"close")]
    if codes.retriable and codes.status in (429, 503):
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_S))
    return headers


def raw_answer(kind: ErrorKind, message: str) -> bytes:
    """An error as the bytes of a whole answer."""
    body = error_body(kind, message)
    status = HTTPStatus(kind.codes.status)
    lines = [b"HTTP/1.1 %d %s" % (status, status.phrase.encode())]
    length = (b"content-length", b"%d" % len(body))
    lines += [name + b": " + value for name, value in (*_headers(kind), length)]
    return b"\r\n".join([*lines, b"", body])


async def refuse_unread(exchange: Exchange, kind: ErrorKind, message: str) -> None:
    """Answer with an error before anything looks at the request, and close the connection."""
    body = error_body(kind, message)
    await exchange.whole(kind.codes.status, _headers(kind), body)


async def refuse(exchange: Exchange, error: PenstockError, headers: Mapping[str, str] | None = None) -> None:
    """Answer with an error; if an answer has begun, give up: the server then cuts the connection."""
    if exchange.started:
        return
    body = error_body(error.kind, error.message)
    await exchange.whole(error.kind.codes.status, _with_type(headers), body)


async def refuse_upgrade(send: Send, error: PenstockError) -> None:
    """Answer to a WebSocket's handshake with an error."""
    body = error_body(error.kind, error.message)
    sent = [JSON_TYPE, (b"content-length", b"%d" % len(body))]
    status = error.kind.codes.ws_status
    await send({"type": "websocket.http.response.start", "status": status, "headers": sent})
    await send({"type": "websocket.http.response.body", "body": body})


def _with_type(headers: Mapping[str, str] | None) -> list[Header]:
    further = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()
    ]
    return [JSON_TYPE, *further]


BAD_HEAD: Final = raw_answer(
    ErrorKind.HEAD_TOO_LARGE, "the head is larger than 64 KiB, or has too many lines"
)
BAD_PATH: Final = raw_answer(ErrorKind.BAD_PARAMETER, "the path of the request is not ASCII")
UPGRADE_WITH_BODY: Final = raw_answer(ErrorKind.BAD_PARAMETER, "a WebSocket upgrade must have no body")
EARLY_UPGRADE: Final = raw_answer(
    ErrorKind.BAD_PARAMETER, "a WebSocket upgrade must wait for the answers to the requests before it"
)
