"""The cluster's admin REST: what the engine asks of it, and requests that are passed on."""

import itertools
from collections.abc import Collection, Iterable
from typing import Any, Final

import httpx
import msgspec

from penstock.broker.cluster import ClusterAnswer, Headers
from penstock.client.admin_requests import ask, query_text
from penstock.client.authentication import Authentication
from penstock.client.errors import AuthenticationError
from penstock.client.session.connection import parse_service_url
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.target import Target

from .credentials import advice

_CONNECTIONS_MAX: Final = 32
# The only request headers that are forwarded. Credentials and cookies are for this server; `X-Original-Principal` and
# `X-Pulsar-Auth-Method-Name` would change the principal that brokers see.
_ASKED_WITH: Final = frozenset(
    b"accept content-type user-agent traceparent tracestate x-pulsar-listenername".split()
)
# Response headers that are not forwarded: they concern one connection (RFC 9110 7.6.1), or the brokers themselves.
_NOT_ANSWERED_WITH: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authentication-info proxy-connection te trailer transfer-encoding upgrade"
    b" content-length content-encoding set-cookie date server".split()
)

_KINDS: Final = {
    400: ErrorKind.BAD_PARAMETER,
    401: ErrorKind.FORBIDDEN,  # with a reason: Pulsar answers so if a role may not
    403: ErrorKind.FORBIDDEN,
    409: ErrorKind.ALREADY_EXISTS,
    412: ErrorKind.BAD_PARAMETER,
    422: ErrorKind.BAD_PARAMETER,
    429: ErrorKind.TOO_MANY_REQUESTS,
    500: ErrorKind.UNAVAILABLE,  # a broker that is starting, or has too few bookies
    501: ErrorKind.NOT_SUPPORTED,
    502: ErrorKind.UNAVAILABLE,
    503: ErrorKind.UNAVAILABLE,
    504: ErrorKind.UNAVAILABLE,
}

# Of a server that may not create what an operator, or another process, has created.
EXISTS_OR_FORBIDDEN: Final = (ErrorKind.ALREADY_EXISTS, ErrorKind.FORBIDDEN)
_NOT_OWNED: Final = "Failed to find ownership"


class Admin:
    """Asks another of the hosts each time, and goes on with the next if one cannot be reached."""

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

    async def get(self, target: Target, *, missing: ErrorKind = ErrorKind.NOT_FOUND, **query: object) -> Any:
        """What a GET answers; raises `missing` for 404, and what other statuses mean."""
        return await self.call("GET", target, missing=missing, **query)

    async def call(
        self,
        method: str,
        target: Target,
        *,
        body: Any = None,
        missing: ErrorKind = ErrorKind.NOT_FOUND,
        **query: object,
    ) -> Any:
        """Send one request; returns the answer's JSON, None if it is empty."""
        response = await self._send(
            method,
            target,
            query_text((key, str(value)) for key, value in query.items()),
            self._authentication,
            {} if body is None else {"content-type": "application/json"},
            None if body is None else msgspec.json.encode(body),
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
        self,
        method: str,
        target: Target,
        query: Iterable[tuple[str, str]] = (),
        headers: Headers = (),
        body: bytes = b"",
        authentication: Authentication | None = None,
    ) -> ClusterAnswer:
        """Forward a request, under the server's own credentials or those given."""
        named = _named_by_connection(headers)
        kept = [
            (name, value)
            for name, value in headers
            if name.lower() in _ASKED_WITH and name.lower() not in named
        ]
        response = await self._send(
            method,
            target,
            query_text(query),
            authentication or self._authentication,
            httpx.Headers(kept),
            body,
        )
        # header names in their original case: Pulsar's own clients compare them
        answered = response.headers.raw
        dropped = _NOT_ANSWERED_WITH | _named_by_connection(answered)
        return ClusterAnswer(
            response.status_code,
            [(name, value) for name, value in answered if name.lower() not in dropped],
            response.content,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(
        self,
        method: str,
        target: Target,
        query: str,
        authentication: Authentication,
        headers: dict[str, str] | httpx.Headers,
        content: bytes | None,
    ) -> httpx.Response:
        given = httpx.Headers(headers)
        given.update(authentication.headers())
        first, count = next(self._first), len(self._roots)
        error: httpx.HTTPError | None = None
        for number in range(count):
            root = self._roots[(first + number) % count]
            try:
                response = await ask(self._http, method, root, target, query, headers=given, content=content)
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
                    raise authentication.refused(AuthenticationError(f"{root} answers 401"))
                return response
        raise _unreachable(self._roots[first], error)


async def ensure(
    admin: Admin,
    target: Target,
    body: Any = None,
    *,
    missing: ErrorKind = ErrorKind.NOT_FOUND,
    passed: Collection[ErrorKind] = (ErrorKind.ALREADY_EXISTS,),
) -> None:
    """PUT a resource that may exist; errors of the kinds in `passed` are ignored."""
    try:
        await admin.call("PUT", target, body=body, missing=missing)
    except PenstockError as error:
        if error.kind not in passed:
            raise


def _named_by_connection(headers: Headers) -> set[bytes]:
    """The headers that `Connection` names, in lower case."""
    lists = (value for name, value in headers if name.lower() == b"connection")
    return {one.strip().lower() for value in lists for one in value.split(b",")}


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
