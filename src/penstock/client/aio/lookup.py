"""Lookups: the broker of a topic, its partitions, the topics of a namespace, and schemas."""

from __future__ import annotations

import itertools
import ssl
from typing import Any, Final, Protocol

from penstock.client import errors
from penstock.client.admin_requests import ask, query_text
from penstock.client.authentication import Authentication
from penstock.client.enums import RegexSubscriptionMode
from penstock.client.errors import (
    AuthenticationError,
    AuthorizationError,
    ConnectError,
    InvalidTopicName,
    PulsarException,
    TopicNotFound,
    server_error,
)
from penstock.client.session.commands import schema_info, wire_schema
from penstock.client.session.connection import ServiceUrl, parse_service_url
from penstock.model.errors import PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.schema import SchemaInfo
from penstock.model.target import Target
from penstock.wire.metadata import schema_version_bytes, schema_version_number
from penstock.wire.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetSchema,
    CommandGetTopicsOfNamespace,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

from .link import Link, Pool

REDIRECTS_MAX: Final = 20

_HTTP_ERRORS: Final[dict[int, type[PulsarException]]] = {
    401: AuthenticationError,
    403: AuthorizationError,
    404: TopicNotFound,
}


def topic_name(text: str) -> TopicName:
    """A topic's name. Raises InvalidTopicName."""
    try:
        return TopicName.parse(text)
    except PenstockError as error:
        raise InvalidTopicName(error.message) from None


class BrokerLookup(Protocol):
    """Finds the broker of a topic."""

    async def link(self, topic: str) -> Link:
        """A connection to the broker of a topic."""


class Lookup(BrokerLookup, Protocol):
    """Answers about topics; over the protocol itself, or over HTTP."""

    async def partitions(self, topic: str, *, create: bool = True) -> int:
        """How many partitions a topic has, 0 when it is not partitioned.

        Asking creates a missing topic with partitions if the service is configured so; without `create` it raises
        TopicNotFound instead, as far as the service knows how.
        """

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        """The names of a namespace's topics; partitioned ones by their partitions."""


class BinaryLookup:
    """Asks over the protocol itself, each time another of the service's hosts if there are several."""

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

    async def service(self) -> Link:
        """A connection to the service. Raises the error that prevents it."""
        return await self._pool.link(next(self._hosts))

    async def _ask_lookup(self, link: Link, topic: str, authoritative: bool) -> Any:
        command = CommandLookupTopic(
            topic=topic, authoritative=authoritative, advertised_listener_name=self._listener
        )
        answer = await link.ask(command, self._timeout_s)
        if answer.response == CommandLookupTopicResponse.Failed:
            raise server_error(answer.error, answer.message)
        return answer

    async def partitions(self, topic: str, *, create: bool = True) -> int:
        link = await self._pool.link(next(self._hosts))
        command = CommandPartitionedTopicMetadata(
            topic=topic, metadata_auto_creation_enabled=None if create else False
        )
        answer = await link.ask(command, self._timeout_s)
        if answer.response == CommandPartitionedTopicMetadataResponse.Failed:
            raise server_error(answer.error, answer.message)
        return int(answer.partitions)

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        link = await self._pool.link(next(self._hosts))
        command = CommandGetTopicsOfNamespace(namespace=namespace, mode=int(mode))  # type: ignore[arg-type]
        answer = await link.ask(command, self._timeout_s)
        return list(answer.topics)


class HttpLookup:
    """Asks the admin interface, for service URLs of HTTP; connections to brokers are the pool's."""

    def __init__(
        self,
        pool: Pool,
        url: ServiceUrl,
        authentication: Authentication,
        context: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        import httpx  # here, and below: other clients import no HTTP client

        self._pool = pool
        self._url = url
        self._authentication = authentication
        self._hosts = itertools.cycle(url.addresses)
        verify: Any = context if context is not None else True
        self._http = httpx.AsyncClient(timeout=timeout_s, verify=verify)

    async def link(self, topic: str) -> Link:
        answer = await self._get(Target.of("lookup", "v2", "topic", *_names(topic)))
        url = answer.get("brokerUrlTls" if self._url.tls else "brokerUrl")
        if not url:
            raise errors.LookupError(f"{topic}: the service names no broker")
        return await self._pool.link(parse_service_url(url).addresses[0])

    async def partitions(self, topic: str, *, create: bool = True) -> int:
        target = Target.of("admin", "v2", *_names(topic), "partitions")
        answer = await self._get(target, checkAllowAutoCreation="true" if create else "false")
        return int(answer.get("partitions", 0))

    async def topics(self, namespace: str, mode: RegexSubscriptionMode) -> list[str]:
        name = {0: "PERSISTENT", 1: "NON_PERSISTENT", 2: "ALL"}[int(mode)]
        target = Target.of_namespace(NamespaceName.parse(namespace), "topics")
        return list(await self._get(target, mode=name))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _get(self, target: Target, **query: str) -> Any:
        import httpx

        root = f"{self._url.scheme}://{next(self._hosts).authority}"
        headers = self._authentication.headers()
        try:
            response = await ask(self._http, "GET", root, target, query_text(query.items()), headers=headers)
        except httpx.HTTPError as error:
            raise ConnectError(f"{root}{target.path} cannot be reached: {error}") from error
        if response.status_code >= 400:
            kind = _HTTP_ERRORS.get(response.status_code, errors.LookupError)
            raise kind(f"HTTP status {response.status_code}: {response.text[:200]}")
        return response.json()


def _names(topic: str) -> tuple[str, str, str, str]:
    name = TopicName.parse(topic)
    return name.domain, name.tenant, name.namespace, name.local


class Schemas:
    """Versions of topics' schemas, each fetched once."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._known: dict[tuple[str, int], SchemaInfo | None] = {}

    async def latest(self, link: Link, topic: str) -> SchemaInfo | None:
        """A topic's latest schema, or None."""
        return await self._ask(link, topic, None)

    async def version(self, link: Link, topic: str, version: int) -> SchemaInfo | None:
        """A version of a topic's schema, or None."""
        key = (topic, version)
        if key not in self._known:
            self._known[key] = await self._ask(link, topic, version)
        return self._known[key]

    async def register(self, link: Link, topic: str, info: SchemaInfo) -> int | None:
        """The version of a schema, which is registered if it is new (PIP-43). Raises IncompatibleSchema."""
        command = CommandGetOrCreateSchema(topic=topic, schema=wire_schema(info))
        answer = await link.ask(command, self._timeout_s)
        if answer.HasField("error_code"):
            raise server_error(answer.error_code, answer.error_message)
        return schema_version_number(answer.schema_version)

    async def _ask(self, link: Link, topic: str, version: int | None) -> SchemaInfo | None:
        wanted = None if version is None else schema_version_bytes(version)
        answer = await link.ask(CommandGetSchema(topic=topic, schema_version=wanted), self._timeout_s)
        if answer.HasField("error_code"):
            error = server_error(answer.error_code, answer.error_message)
            if isinstance(error, TopicNotFound):
                return None
            raise error
        return schema_info(answer.schema)
