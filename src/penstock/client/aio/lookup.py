"""Who serves a topic, how many partitions it has, which topics there are, and what their schemas are."""

from __future__ import annotations

import itertools
from typing import Any, Final, Protocol

from penstock.client import errors
from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import TopicNotFound, server_error
from penstock.client.session import commands
from penstock.client.session.service_url import Address, ServiceUrl, parse_service_url
from penstock.model.schema import SchemaInfo
from penstock.wire.fields import schema_version_number
from penstock.wire.pulsar_pb2 import CommandLookupTopicResponse, CommandPartitionedTopicMetadataResponse

from .link import Link
from .pool import Pool

REDIRECTS_MAX: Final = 20


class Lookup(Protocol):
    """Answers about topics; over the protocol itself, or over HTTP."""

    async def link(self, topic: str) -> Link:
        """A connection to the broker of a topic."""

    async def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 when it is not partitioned."""

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        """The names of a namespace's topics; partitioned ones by their partitions."""


class BinaryLookup:
    """Asks over the protocol itself, each time another of the service's hosts where there are several."""

    def __init__(self, pool: Pool, url: ServiceUrl, listener: str | None, timeout_s: float) -> None:
        self._pool = pool
        self._tls = url.tls
        self._hosts = itertools.cycle(url.addresses)
        self._listener = listener
        self._timeout_s = timeout_s

    async def link(self, topic: str) -> Link:
        service = next(self._hosts)
        asked = await self._pool.link(service)
        authoritative = False
        for _ in range(REDIRECTS_MAX):
            answer = await self._ask_lookup(asked, topic, authoritative)
            url = answer.brokerServiceUrlTls if self._tls else answer.brokerServiceUrl
            broker = parse_service_url(url).addresses[0] if url else service
            proxied = answer.proxy_through_service_url
            link = await self._pool.link(
                service if proxied else broker, broker.authority if proxied else None
            )
            if answer.response == CommandLookupTopicResponse.Connect:
                return link
            asked, authoritative = link, answer.authoritative
        raise errors.LookupError(f"{topic}: more than {REDIRECTS_MAX} redirections")

    async def _ask_lookup(self, link: Link, topic: str, authoritative: bool) -> Any:
        answer = await link.ask(
            lambda number: commands.lookup(
                number, topic, authoritative=authoritative, listener=self._listener
            ),
            self._timeout_s,
        )
        if answer.response == CommandLookupTopicResponse.Failed:
            raise server_error(answer.error, answer.message)
        return answer

    async def partitions(self, topic: str) -> int:
        link = await self._pool.link(next(self._hosts))
        answer = await link.ask(lambda number: commands.partitions(number, topic), self._timeout_s)
        if answer.response == CommandPartitionedTopicMetadataResponse.Failed:
            raise server_error(answer.error, answer.message)
        return int(answer.partitions)

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        link = await self._pool.link(next(self._hosts))
        answer = await link.ask(lambda number: commands.topics(number, namespace, mode), self._timeout_s)
        return list(answer.topics)


class Schemas:
    """Versions of topics' schemas, each fetched once."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._known: dict[tuple[str, int], SchemaInfo | None] = {}

    async def latest(self, link: Link, topic: str) -> SchemaInfo | None:
        """A topic's latest schema, None where it has none."""
        return await self._ask(link, topic, None)

    async def version(self, link: Link, topic: str, version: int) -> SchemaInfo | None:
        """A version of a topic's schema, None where there is none."""
        key = (topic, version)
        if key not in self._known:
            self._known[key] = await self._ask(link, topic, version)
        return self._known[key]

    async def register(self, link: Link, topic: str, info: SchemaInfo) -> int | None:
        """The version of a schema, which is registered where it is new (PIP-43). Raises IncompatibleSchema."""
        answer = await link.ask(
            lambda number: commands.get_or_create_schema(number, topic, info), self._timeout_s
        )
        if answer.HasField("error_code"):
            raise server_error(answer.error_code, answer.error_message)
        return schema_version_number(answer.schema_version)

    async def _ask(self, link: Link, topic: str, version: int | None) -> SchemaInfo | None:
        answer = await link.ask(lambda number: commands.get_schema(number, topic, version), self._timeout_s)
        if answer.HasField("error_code"):
            error = server_error(answer.error_code, answer.error_message)
            if isinstance(error, TopicNotFound):
                return None
            raise error
        return commands.schema_info(answer.schema)


def address_of(url: str) -> Address:
    """The host a broker's URL names."""
    return parse_service_url(url).addresses[0]
