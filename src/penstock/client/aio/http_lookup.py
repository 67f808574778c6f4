"""Lookup over HTTP, for service URLs that begin with http:// or https://."""

from __future__ import annotations

import itertools
import ssl
from typing import Any
from urllib.parse import quote

import httpx

from penstock.client import errors
from penstock.client.authentication import Authentication
from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    PulsarException,
    TopicNotFound,
)
from penstock.client.session.service_url import ServiceUrl
from penstock.model.names import TopicName

from .link import Link
from .lookup import address_of
from .pool import Pool

_ERRORS: dict[int, type[PulsarException]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    404: TopicNotFound,
}


class HttpLookup:
    """Asks the admin interface; connections to brokers are the pool's."""

    def __init__(
        self,
        pool: Pool,
        url: ServiceUrl,
        authentication: Authentication,
        context: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self._pool = pool
        self._url = url
        self._authentication = authentication
        self._hosts = itertools.cycle(url.addresses)
        verify: Any = context if context is not None else True
        self._http = httpx.AsyncClient(timeout=timeout_s, verify=verify, follow_redirects=True)

    async def link(self, topic: str) -> Link:
        answer = await self._get(f"/lookup/v2/topic/{_path(topic)}")
        url = answer.get("brokerUrlTls" if self._url.tls else "brokerUrl")
        if not url:
            raise errors.LookupError(f"{topic}: the service names no broker")
        return await self._pool.link(address_of(url))

    async def partitions(self, topic: str) -> int:
        answer = await self._get(f"/admin/v2/{_path(topic)}/partitions?checkAllowAutoCreation=true")
        return int(answer.get("partitions", 0))

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        name = {0: "PERSISTENT", 1: "NON_PERSISTENT", 2: "ALL"}[int(mode)]
        return list(await self._get(f"/admin/v2/namespaces/{namespace}/topics?mode={name}"))

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def _get(self, path: str) -> Any:
        url = f"{self._url.scheme}://{next(self._hosts).authority}{path}"
        try:
            response = await self._http.get(url, headers=self._authentication.headers())
        except httpx.HTTPError as error:
            raise ConnectError(f"{url} cannot be reached: {error}") from error
        if response.status_code >= 400:
            kind = _ERRORS.get(response.status_code, errors.LookupError)
            raise kind(f"HTTP status {response.status_code}: {response.text[:200]}")
        return response.json()


def _path(topic: str) -> str:
    name = TopicName.parse(topic)
    return f"{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}"
