"""Calls to a server over one connection, answered with JSON. On the standard library alone, as `entries`: httpx costs a
process a quarter of a second of processor, and every stream and every planning of a query has one."""

import http.client
import json
import ssl
import threading
from typing import Any, Final, Protocol, Self
from urllib.parse import urlsplit

from penstock.client.access import Access, without_password
from penstock.client.http import TIMEOUT_S, refusal, unreachable
from penstock.model.errors import ErrorKind, PenstockError

from .entries import connect

JSON: Final = "application/json"

# How a connection fails that the server has closed while it was not in use.
_CLOSED: Final = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,
)


class Caller(Protocol):
    """The caller: `Calls`, or the client."""

    @property
    def url(self) -> str: ...

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        """The answer. Raises RemoteError if the server refuses, UNAVAILABLE if it cannot be reached."""
        ...


class Calls:
    """One call at a time: those of other threads wait. To be used as a context manager.

    A call is repeated if the connection had been closed: all calls of pipelines may be repeated, see `Stages`.
    """

    def __init__(self, access: Access, timeout_s: float = TIMEOUT_S) -> None:
        self._access = access
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._busy = threading.Lock()  # a task asks for topics while a thread of its sends a part

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._access.url

    def close(self) -> None:
        """Close the connection; the next call opens one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def call(self, method: str, path: str, *, body: Any = None) -> Any:
        """The answer to JSON, or to no body. Raises as `send`."""
        return self.send(method, path, None if body is None else json.dumps(body).encode(), JSON)

    def send(self, method: str, path: str, body: bytes | None, kind: str, prefer: str = "") -> Any:
        """The answer to a body of a media type; None for an empty one. `prefer`: the header Prefer (RFC 7240).

        Raises RemoteError if the server refuses, and UNAVAILABLE if it cannot be reached.
        """
        headers = self._access.headers()
        if body is not None:
            headers["Content-Type"] = kind
        if prefer:
            headers["Prefer"] = prefer
        target = urlsplit(self.url).path + path
        try:
            with self._busy:
                status, answer = self._exchanged(method, target, body, headers)
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(self.url, error) from error
        if status >= 300:  # nothing here answers from elsewhere
            raise refusal(status, answer)
        if not answer:
            return None
        try:
            return json.loads(answer)
        except ValueError:
            raise PenstockError(
                ErrorKind.INTERNAL, f"{without_password(self.url)} answers what is no JSON: {answer[:80]!r}"
            ) from None

    def _exchanged(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Over the connection that there is, or a new one if the server has closed it."""
        used = self._connection is not None
        try:
            try:
                return self._exchange(method, target, body, headers)
            except _CLOSED:
                if not used:
                    raise
                self.close()
                return self._exchange(method, target, body, headers)
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def _exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = connect(self._access, self._timeout_s)
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()
