"""One request to the endpoint, and what is answered."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.long_poll import Receive

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[str, str]


class ClientGoneError(Exception):
    """The client hung up before its request was whole."""


class Answer(msgspec.Struct, frozen=True):
    """An answer, whole; to HEAD its body is not sent, but its length is told."""

    status: int
    headers: Headers
    body: bytes = b""


class RefusedError(Exception):
    """An error that is told with headers of its own."""

    def __init__(self, kind: ErrorKind, message: str, headers: Headers) -> None:
        super().__init__(message)
        self.answer = refusal(PenstockError(kind, message), headers)


class Exchange:
    """A request. Its headers are by lower-case name; those given several times are one list."""

    __slots__ = ("headers", "method", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.receive = receive
        self.send = send
        self.headers: Headers = {}
        for name, value in scope["headers"]:
            key, text = name.decode("latin-1"), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    @property
    def authorization(self) -> bytes | None:
        found = self.headers.get("authorization")
        return None if found is None else found.encode("latin-1")

    async def body(self, bytes_max: int) -> bytes:
        """The request's body; raises TOO_LARGE as soon as it is known to be, ClientGoneError."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and (len(length) > 18 or int(length) > bytes_max):
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def answer(self, answer: Answer) -> None:
        """Send an answer."""
        headers = [(k.encode("latin-1"), v.encode("latin-1", "replace")) for k, v in answer.headers.items()]
        if answer.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await self.send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if self.method == "HEAD" else answer.body
        await self.send({"type": "http.response.body", "body": body})


def json_answer(value: Any) -> Answer:
    return Answer(200, {"content-type": "application/json", "vary": "Accept"}, msgspec.json.encode(value))


def refusal(error: PenstockError, headers: Headers | None = None) -> Answer:
    """An error as an answer (docs/rest.md)."""
    face = error.kind.codes
    told = {"content-type": "application/json", **(headers or {})}
    if face.retriable and face.status in (429, 503):
        told["retry-after"] = str(error.retry_after_s)
    message = error.message.encode(errors="replace").decode()
    return Answer(face.status, told, msgspec.json.encode({"error_code": face.code, "message": message}))


def _too_large(bytes_max: int) -> PenstockError:
    return PenstockError(ErrorKind.TOO_LARGE, f"the body is larger than {bytes_max} bytes")
