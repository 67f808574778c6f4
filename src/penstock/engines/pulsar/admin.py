"""The cluster's admin REST: what the engine asks of it, and requests that are passed on."""

import itertools
from typing import Any, Final
from urllib.parse import quote

import httpx

from penstock.broker.cluster import ClusterAnswer, Headers
from penstock.client.authentication import Authentication
from penstock.client.errors import AuthenticationError
from penstock.client.session.connection import parse_service_url
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName

from .credentials import advice

REDIRECTS_MAX: Final = 5  # a broker sends to the owner of a topic
_CONNECTIONS_MAX: Final = 32
# Of one connection, and of its two ends: not passed on (RFC 9110 7.6.1).
_HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"host",
        b"content-length",
        b"content-encoding",
        b"authorization",
        b"accept-encoding",
        b"cookie",
        b"date",
        b"server",
    )
)

_KINDS: Final = {
    400: ErrorKind.BAD_PARAMETER,
    401: ErrorKind.FORBIDDEN,  # with a reason: Pulsar says so where a role may not
    403: ErrorKind.FORBIDDEN,
    409: ErrorKind.ALREADY_EXISTS,
    412: ErrorKind.BAD_PARAMETER,
    422: ErrorKind.BAD_PARAMETER,
    429: ErrorKind.TOO_MANY_REQUESTS,
    500: ErrorKind.UNAVAILABLE,  # a broker failed, as one does that starts or has too few bookies
    501: ErrorKind.NOT_SUPPORTED,
    502: ErrorKind.UNAVAILABLE,
    503: ErrorKind.UNAVAILABLE,
    504: ErrorKind.UNAVAILABLE,
}

_NOT_OWNED: Final = "Failed to find ownership"


class Admin:
    """Asks another of the hosts each time, and goes on with the next where one cannot be reached."""

    def __init__(self, url: str, authentication: Authentication, verify: Any, timeout_s: float) -> None:
        parsed = parse_service_url(url)
        self._roots = [f"{parsed.scheme}://{address.authority}" for address in parsed.addresses]
        self._first = itertools.cycle(range(len(self._roots)))
        self._authentication = authentication
        self._http = httpx.AsyncClient(
            timeout=timeout_s,
            verify=verify,
            trust_env=False,
            limits=httpx.Limits(max_connections=_CONNECTIONS_MAX),
        )

    async def get(self, path: str, *, missing: ErrorKind = ErrorKind.NOT_FOUND, **query: object) -> Any:
        """What a GET answers; raises `missing` for 404, and what other statuses mean."""
        return await self.call("GET", path, missing=missing, **query)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        missing: ErrorKind = ErrorKind.NOT_FOUND,
        **query: object,
    ) -> Any:
        """One call below `/admin/v2`; returns the answer's JSON, None for an empty one."""
        response = await self._send(
            method, f"/admin/v2{path}", params={key: str(value) for key, value in query.items()}, json=body
        )
        if response.status_code >= 400:
            raise _refusal(response, missing)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            return response.text

    async def forward(
        self, method: str, path: str, query: bytes, headers: Headers, body: bytes
    ) -> ClusterAnswer:
        """Pass a request on, under the server's own credentials."""
        kept = [(name, value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
        target = path + ("?" + query.decode("latin-1") if query else "")
        response = await self._send(method, target, headers=kept, content=body)
        return ClusterAnswer(
            response.status_code,
            # Names as they are written: Pulsar's own clients compare them.
            [(name, value) for name, value in response.headers.raw if name.lower() not in _HOP_BY_HOP],
            response.content,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        given = httpx.Headers(more.pop("headers", None))
        given.update(self._authentication.headers())
        first, count = next(self._first), len(self._roots)
        error: httpx.HTTPError | None = None
        for number in range(count):
            root = self._roots[(first + number) % count]
            try:
                response = await self._follow(method, root + path, given, more)
            except httpx.ConnectError as failed:
                error = failed
            except httpx.TimeoutException:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"the cluster at {root} did not answer in time"
                ) from None
            except httpx.HTTPError as failed:
                raise _unreachable(root, failed) from None
            else:
                if response.status_code == 401 and not _reason(response):
                    raise self._authentication.refused(AuthenticationError(f"{root} answers 401"))
                return response
        raise _unreachable(self._roots[first], error)

    async def _follow(
        self, method: str, url: str, headers: httpx.Headers, more: dict[str, Any]
    ) -> httpx.Response:
        """Redirects are followed here: the credentials go along, as brokers of one cluster take the same."""
        for _ in range(REDIRECTS_MAX):
            response = await self._http.request(method, url, headers=headers, **more)
            if response.status_code not in (301, 302, 303, 307, 308) or "location" not in response.headers:
                return response
            url = str(response.url.join(response.headers["location"]))
            more = {name: value for name, value in more.items() if name != "params"}
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the cluster answered with more than {REDIRECTS_MAX} redirects"
        )


def _unreachable(root: str, error: Exception | None) -> PenstockError:
    reason = str(error) or type(error).__name__
    what = advice(reason)
    return PenstockError(ErrorKind.UNAVAILABLE, f"the cluster at {root} cannot be reached: {reason}{what}")


def _reason(response: httpx.Response) -> str:
    """What a refusal of the admin REST says, empty for an answer of what lies before it."""
    try:
        return str(response.json()["reason"])
    except (ValueError, KeyError, TypeError):
        return ""


def _refusal(response: httpx.Response, missing: ErrorKind) -> PenstockError:
    reason, status = _reason(response) or response.text[:300], response.status_code
    kind = missing if status == 404 else _KINDS.get(status, ErrorKind.INTERNAL)
    if kind is ErrorKind.FORBIDDEN:
        return PenstockError(kind, f"the cluster does not allow it to this server: {reason}")
    if status == 412 and _NOT_OWNED in reason:  # no fault of the caller's: a bundle on its way to a broker
        kind = ErrorKind.UNAVAILABLE
    return PenstockError(kind, f"the cluster refuses it with status {status}: {reason}")


def admin_path(name: TopicName) -> str:
    """A topic below `/admin/v2`."""
    return f"/{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}"
