"""Penstock over HTTP: the calls that the command line, pipelines and the demo make. The one importer of httpx."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName

from .access import Access, without_password
from .paths import admin_path, partition_path, topic_path

if TYPE_CHECKING:
    import ssl

    import httpx

TIMEOUT_S: Final = 60.0  # without a byte from the server, which may wait 30 s for its cluster

_KINDS: Final = {kind.codes.code: kind for kind in ErrorKind}


class RemoteError(PenstockError):
    """The server's own words: HTTP status, error code and message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(_KINDS.get(code) or _kind_of(status), message)
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[type[RemoteError], tuple[int, int, str]]:  # type: ignore[override]
        return type(self), (self.status, self.code, self.message)


class Offsets(NamedTuple):
    """The bounds of a partition's log (end exclusive); `at` answers `publish_time`."""

    ledger: int
    earliest: int
    latest: int
    at: int | None = None


class HttpClient:
    """One server; to be used as a context manager.

    Calls raise RemoteError if the server refuses, and UNAVAILABLE if it cannot be reached.
    """

    def __init__(self, access: Access | str, *, timeout_s: float = TIMEOUT_S) -> None:
        self.access = access if isinstance(access, Access) else Access(url=access)
        self.url = self.access.url
        self.timeout_s = timeout_s
        self._session: httpx.Client | None = None

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        """Read once: the system's certificates alone take tens of milliseconds."""
        return self.access.tls()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def call(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        """One request; `body` goes out as JSON. Returns the answer's JSON, None for an empty one."""
        answered = self.fetch(method, path, params=params, body=body, content=content, headers=headers)[0]
        try:
            return json.loads(answered) if answered else None
        except ValueError:
            raise PenstockError(
                ErrorKind.INTERNAL,
                f"{without_password(self.url)} answers what is no JSON: is it a Penstock?",
            ) from None

    def fetch(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """The same for an answer that need not be JSON: its bytes, and its headers by name in any case."""
        import httpx  # here: tasks of a pipeline need not import it

        if self._session is None:
            self._session = httpx.Client(
                timeout=self.timeout_s,
                verify=self._tls or not self.url.startswith("http://"),  # plain HTTP reads no certificates
            )
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            response = self._session.request(
                method,
                self.url + path,
                params=given,
                json=body,
                content=content,
                headers={**self.access.headers(), **(headers or {})},  # a token may have been renewed
            )
        except httpx.HTTPError as error:
            raise unreachable(self.url, error) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"the request cannot be sent: {error}") from None
        if response.status_code >= 400:
            raise refusal(response.status_code, response.content)
        if not 200 <= response.status_code < 300:  # the token is for this server: nothing is asked elsewhere
            raise redirection(response.status_code, response.content, response.headers.get("location", ""))
        return response.content, response.headers

    def topics(self, namespace: NamespaceName) -> list[str]:
        """The names of a namespace's topics; partitioned ones by their partitions."""
        names: list[str] = self.call("GET", f"/admin/v2/namespaces/{namespace}/topics")
        return names

    def partitions(self, topic: TopicName) -> int:
        """How many partitions a topic has; 0 when it is not partitioned. Raises TOPIC_NOT_FOUND."""
        answer = self.call("GET", f"{admin_path(topic)}/partitions")
        return int(answer["partitions"])

    def create_topic(self, topic: TopicName, partitions: int = 0) -> None:
        """Make a topic, partitioned unless `partitions` is 0. Raises ALREADY_EXISTS."""
        if partitions:
            self.call("PUT", f"{admin_path(topic)}/partitions", body=partitions)
        else:
            self.call("PUT", admin_path(topic))

    def offsets(self, topic: TopicName, partition: int, publish_time: int | None = None) -> Offsets:
        """The bounds of a partition, and the first offset published at or after a time."""
        answer = self.call(
            "GET", f"{partition_path(topic, partition)}/offsets", params={"publish_time": publish_time}
        )
        return Offsets(answer["ledger"], answer["earliest"], answer["latest"], answer.get("offset"))

    def produce(self, topic: TopicName, messages: Sequence[dict[str, Any]], **request: Any) -> Any:
        """Publish PIP-64 messages; `request` are the further fields of the body. Returns the answer."""
        body = {**request, "messages": list(messages)}
        return self.call("POST", topic_path(topic), body=body)

    def read(self, topic: TopicName, partition: int = 0, **params: Any) -> Any:
        """Read a partition's messages as JSON; `params` are PIP-64's and the design's."""
        return self.call("GET", f"{partition_path(topic, partition)}/messages", params=params)


def unreachable(url: str, error: Exception) -> PenstockError:
    """No answer came."""
    where = without_password(url)
    return PenstockError(
        ErrorKind.UNAVAILABLE, f"{where} cannot be reached: {str(error) or type(error).__name__}"
    )


def refusal(status: int, body: bytes) -> RemoteError:
    """What an answer with an error says."""
    try:
        answer = json.loads(body)
        if "error_code" not in answer:  # of a cluster behind the server
            return RemoteError(status, 0, str(answer["reason"]))
        return RemoteError(status, int(answer["error_code"]), str(answer["message"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError(
            status, 0, f"HTTP status {status}" + (f": {text}" if (text := _line(body)) else "")
        )


def _line(body: bytes) -> str:
    """The text of an answer without our error format: the title of a page, or the beginning of a text, in one line."""
    text = body[:2000].decode(errors="replace")
    title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    return " ".join((title[1] if title else text).split())[:200]


def redirection(status: int, body: bytes, location: str) -> RemoteError:
    """The error of an answer that redirects: the server's own message, or one for a proxy in front of it."""
    found = refusal(status, body)
    if found.code:
        return found
    where = f" to {without_password(location)}" if location else ""
    return RemoteError(
        status, 0, f"the answer is a redirection{where} (HTTP status {status}): is that the server's address?"
    )


def _kind_of(status: int) -> ErrorKind:
    """For an answer without a known code: by its status, so that `retriable` is right."""
    if status in (502, 503, 504):
        return ErrorKind.UNAVAILABLE
    return next((kind for kind in ErrorKind if kind.codes.status == status), ErrorKind.INTERNAL)
