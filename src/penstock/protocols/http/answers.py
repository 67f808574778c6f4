"""Answers: JSON, a whole answer as a value, and errors in the dialect of their endpoint."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Self

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

Header = tuple[bytes, bytes]

JSON_TYPE: Final = (b"content-type", b"application/json")


class Dialect(Enum):
    """The dialect of error bodies: that of REST, or with `reason`, in which Pulsar's tools look for the text."""

    REST = "rest"
    PULSAR = "pulsar"


class ExactName(str):
    """A header's name that keeps its case on the wire: HTTP does not care, but Java's admin client compares it."""

    def encode(self, encoding: str = "latin-1", errors: str = "strict") -> "_ExactBytes":
        return _ExactBytes(self, encoding, errors)


class _ExactBytes(bytes):
    def lower(self) -> Self:
        """Itself: servers write names in lower case."""
        return self


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A status with a body: `body` as JSON, `raw` as it is, or (None both) nothing."""

    status: int = 200
    body: Any = None
    raw: bytes | None = None
    headers: Mapping[str, str] = {}

    def content(self) -> tuple[bytes | None, list[Header]]:
        """The body's bytes and all headers but its length; raw bytes without a type are text."""
        headers = _encoded(self.headers)
        if self.raw is not None:
            content: bytes | None = self.raw
            kind = b"text/plain; charset=utf-8"
        elif self.body is not None:
            content, kind = to_json(self.body), b"application/json"
        else:
            return None, headers
        if "content-type" not in self.headers:
            headers.insert(0, (b"content-type", kind))
        return content, headers


NO_CONTENT: Final = Answer(status=204)


class RefusedError(PenstockError):
    """An error that is answered with further headers."""

    def __init__(self, kind: ErrorKind, message: str, headers: Mapping[str, str]) -> None:
        super().__init__(kind, message)
        self.headers = headers

    def __reduce__(self) -> Any:
        return type(self), (self.kind, self.message, self.headers)


class BodyError(PenstockError):
    """The body of a request is not of its operation's shape. The answer has an `example` of one that is."""


def not_allowed(method: str, allowed: Sequence[str], reason: str = "") -> RefusedError:
    """METHOD_NOT_ALLOWED, with the methods that there are (RFC 9110 15.5.6)."""
    return RefusedError(
        ErrorKind.METHOD_NOT_ALLOWED,
        reason or f"{method[:20]} is not for this resource",
        {"allow": ", ".join(allowed)},
    )


def error_body(
    kind: ErrorKind, message: str, dialect: Dialect = Dialect.PULSAR, example: Any = None
) -> bytes:
    """An error as JSON; `example` is a body that would have been taken."""
    body: dict[str, Any] = {"error_code": kind.codes.code, "message": message}
    if dialect is Dialect.PULSAR:
        body["reason"] = message
    if example is not None:
        body["example"] = example
    return to_json(body)


def error_headers(error: PenstockError, challenges: Sequence[Header] = ()) -> list[Header]:
    """The headers that go with an error's answer; `challenges` are those of UNAUTHENTICATED."""
    headers = _encoded(error.headers) if isinstance(error, RefusedError) else []
    if error.kind is ErrorKind.UNAUTHENTICATED:
        headers += challenges
    if error.retriable and error.kind.codes.status in (429, 503):
        headers.append((b"retry-after", b"%d" % error.retry_after_s))
    return headers


def _encoded(headers: Mapping[str, str]) -> list[Header]:
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]


def to_json(value: Any) -> bytes:
    """JSON; lone surrogates in texts are replaced."""
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
