"""The connections of a client: one to each broker, shared by its producers and consumers."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from penstock.client.authentication import Authentication
from penstock.client.errors import AlreadyClosed, ConnectError
from penstock.client.session.connection import Hello
from penstock.client.session.service_url import Address

from .link import Link

CLOSE_S: Final = 1.0  # for a broker to answer that a connection is closed


class Pool:
    """Opens connections where there are none."""

    def __init__(
        self, authentication: Authentication, context: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        self._authentication = authentication
        self._context = context
        self._timeout_s = timeout_s
        self._links: dict[tuple[Address, str | None], Link] = {}
        self._opening: dict[tuple[Address, str | None], asyncio.Lock] = {}
        self._closed = False

    async def link(self, address: Address, proxy_to: str | None = None) -> Link:
        """A connection to a broker, through a proxy where `proxy_to` names the broker. Raises ConnectError."""
        key = (address, proxy_to)
        async with self._opening.setdefault(key, asyncio.Lock()):
            found = self._links.get(key)
            if found is not None and not found.closed:
                return found
            if self._closed:
                raise AlreadyClosed("the client is closed")
            link = self._links[key] = await self._open(address, proxy_to)
            return link

    async def _open(self, address: Address, proxy_to: str | None) -> Link:
        hello = Hello(self._authentication, proxy_to)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                _, link = await loop.create_connection(
                    lambda: Link(hello),
                    address.host,
                    address.port,
                    ssl=self._context if address.tls else None,
                )
        except (OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise ConnectError(f"{address.authority} cannot be reached: {reason}") from error
        await link.ready(self._timeout_s)
        return link

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        links = list(self._links.values())
        self._links.clear()
        for link in links:
            link.close()
        for link in links:
            await link.ended(CLOSE_S)
