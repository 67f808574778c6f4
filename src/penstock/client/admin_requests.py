"""HTTP requests to a cluster's brokers: sent exactly as built, and redirected only to the same path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode

from penstock.model.target import Target

from .errors import ConnectError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import httpx

REDIRECTS_MAX: Final = 5  # a broker sends to the owner of a topic
_REDIRECTS: Final = (301, 302, 303, 307, 308)


def query_text(pairs: Iterable[tuple[str, str]]) -> str:
    """A query string in the one encoding that no HTTP client changes."""
    return urlencode(list(pairs), quote_via=quote, safe="")


async def ask(
    http: httpx.AsyncClient,
    method: str,
    root: str,
    target: Target,
    query: str = "",
    *,
    headers: Mapping[str, str] | httpx.Headers,
    content: bytes | None = None,
) -> httpx.Response:
    """Send one request and return the answer; `root` is `scheme://host:port`, `query` as `query_text` writes one.

    A redirect is followed with method, body and credentials, which all brokers of a cluster accept, if it leads to the
    same path and not from https to http. Raises ConnectError for any other redirect, and errors of httpx.
    """
    for _ in range(REDIRECTS_MAX):
        response = await http.send(_request(http, method, root, target, query, headers, content))
        location = response.headers.get("location")
        if response.status_code not in _REDIRECTS or location is None:
            return response
        root, query = _redirected(response.url, location, target)
    raise ConnectError(f"the cluster answered with more than {REDIRECTS_MAX} redirects")


def _request(
    http: httpx.AsyncClient,
    method: str,
    root: str,
    target: Target,
    query: str,
    headers: Mapping[str, str] | httpx.Headers,
    content: bytes | None,
) -> httpx.Request:
    """Raises ConnectError if the HTTP client would send another path than the target's."""
    wanted = target.path + (f"?{query}" if query else "")
    request = http.build_request(method, root + wanted, headers=headers, content=content)
    if request.url.raw_path != wanted.encode():
        raise ConnectError(
            f"the request was not sent: its path {wanted!r} would be changed to {request.url.raw_path!r}"
        )
    return request


def _redirected(url: httpx.URL, location: str, target: Target) -> tuple[str, str]:
    """The root and the query that a redirect leads to. Raises ConnectError."""
    import httpx  # here: other clients import no HTTP client

    try:
        to = url.join(location)
    except httpx.InvalidURL:
        raise ConnectError("the cluster redirects to an invalid URL") from None
    if to.scheme != "https" and to.scheme != url.scheme:
        raise ConnectError(
            f"the cluster redirects from {url.scheme} to {to.scheme}: credentials are not sent there"
        )
    path, _, query = to.raw_path.decode("latin-1").partition("?")
    if not to.host or not target.is_path(path):
        raise ConnectError(f"the cluster redirects to another path: {path[:200]!r}")
    return f"{to.scheme}://{to.netloc.decode('ascii')}", query_text(parse_qsl(query, keep_blank_values=True))
