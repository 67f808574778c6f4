"""What the administrator's endpoint answers."""

from collections.abc import Mapping
from typing import Any, Final, Self

import msgspec
from starlette.types import Send

from penstock.model.errors import ErrorKind

encode = msgspec.json.Encoder().encode

TEXT = {"content-type": "text/plain; charset=utf-8"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A status with a body: JSON, or `raw` bytes as they are, or (None both) nothing."""

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: Mapping[str, str] = {}

    def content(self) -> tuple[bytes | None, dict[str, str]]:
        """The body's bytes and all headers."""
        if self.raw is not None:
            return self.raw, {**TEXT, **self.headers}
        return None if self.body is None else encode(self.body), dict(self.headers)


class ExactName(bytes):
    """A header's name that keeps its case on the wire: HTTP does not care, but Java's admin client compares it."""

    def lower(self) -> Self:
        """Itself: servers write names in lower case."""
        return self


PROPERTIES_HEADER: Final = "X-Pulsar-PROPERTY"  # an object of a message's properties
_EXACT: Final = {PROPERTIES_HEADER: ExactName(PROPERTIES_HEADER, "latin-1")}

NO_CONTENT = Answer(status=204)


def error_body(kind: ErrorKind, message: str) -> bytes:
    """An error as JSON; `reason` is where Pulsar's own tools look for the text."""
    return encode({"error_code": kind.codes.code, "message": message, "reason": message})


async def send_json(send: Send, status: int, body: bytes | None, headers: Mapping[str, str]) -> None:
    """Send one answer whole; its content is JSON unless the headers say otherwise."""
    sent: list[tuple[bytes, bytes]] = [
        (_EXACT.get(name) or name.encode("latin-1"), value.encode("latin-1"))
        for name, value in headers.items()
    ]
    if body is not None:
        if "content-type" not in headers:
            sent.append((b"content-type", b"application/json"))
        if "content-length" not in headers:
            sent.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body or b""})
