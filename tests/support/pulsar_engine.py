"""Parts of the Pulsar engine without its broker: producers and schemas before a real cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec

from penstock.broker.topic import Topic
from penstock.broker.topics import Topics
from penstock.client.aio.context import Context
from penstock.client.http import HttpClient
from penstock.engines.pulsar.producer import Producer
from penstock.engines.pulsar.schemas import Schemas
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions

from .entry_producers import client_context


class _Policies(msgspec.Struct):
    deduplication: bool = False


class _Topic(msgspec.Struct):
    name: TopicName
    policies: _Policies


class _Admin:
    def __init__(self, url: str) -> None:
        self._url = url

    async def call(self, method: str, path: str, **more: Any) -> Any:
        query = "&".join(f"{name}={value}" for name, value in more.items() if name not in ("body", "missing"))
        return await asyncio.to_thread(self._call, method, f"/admin/v2{path}?{query}", more.get("body"))

    def _call(self, method: str, path: str, body: Any) -> Any:
        with HttpClient(self._url) as http:
            return http.call(method, path, body=body)


class Parts:
    """A cluster's context and admin, its topics as far as producers ask for them, and its schemas."""

    def __init__(self, context: Context, admin_url: str, *, deduplication: bool = False) -> None:
        self.context = context
        self.admin = _Admin(admin_url)
        self.timeout_s = 30.0
        self.listeners: set[Callable[[TopicName], None]] = set()
        self.schemas = Schemas(self, 1 << 20)
        self._policies = _Policies(deduplication)

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[Topic]:
        count = 0 if name.partition >= 0 else await self.context.lookup.partitions(str(name))
        names = [name.of_partition(number) for number in range(count)] or [name]
        return cast("Sequence[Topic]", [_Topic(one, self._policies) for one in names])

    async def producer(self, topic: str, **options: Any) -> Producer:
        """A producer that is open."""
        name = TopicName.parse(topic)
        await self.schemas.learn(name)
        made = Producer(self, cast(Topics, self), self.schemas, name, ProducerOptions(**options))
        await made.open()
        return made


@asynccontextmanager
async def parts(cluster: Any, *, deduplication: bool = False) -> AsyncIterator[Parts]:
    """The parts of an engine before `cluster`, the fixture `pulsar_cluster`."""
    async with client_context(cluster.service_url) as context:
        yield Parts(context, cluster.admin_url, deduplication=deduplication)
