"""What administrators do to topics, namespaces and tenants as a whole."""

from typing import Final

from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.schemas import Schemas
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.runtime.clock import Clock

from .compactions import Compactions
from .retention_task import RetentionTask
from .topics import Topics

UNLOADED_KEEP_MS: Final = 60_000  # how long the subscription of a reader waits for it after `unload_topic`


class Administration:
    """`broker.Administration` over the parts of a broker."""

    def __init__(
        self,
        topics: Topics,
        namespaces: Namespaces,
        schemas: Schemas,
        retention: RetentionTask,
        compactions: Compactions,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._namespaces = namespaces
        self._schemas = schemas
        self._retention = retention
        self._compactions = compactions
        self._clock = clock

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        await self._topics.delete(name, force=force)
        await self._namespaces.forget_topic(name)
        if schema:
            await self._schemas.forget(name)

    async def unload_topic(self, name: TopicName) -> None:
        why = PenstockError(ErrorKind.UNAVAILABLE, f"{name} was unloaded: connect again")
        for topic in await self._topics.all_of(name, create=False):
            for subscription in list(topic.subscriptions.values()):
                await subscription.flush()
                for consumer in list(subscription.consumers):
                    consumer.close(why)
                if not subscription.durable:
                    self._clock.call_later(UNLOADED_KEEP_MS, subscription.drop_unused)
            for producer in list(topic.producers.values()):
                producer.close(why)

    async def _truncate(self, name: TopicName) -> None:
        for topic in await self._topics.all_of(name, create=False):
            end = topic.next_offset
            for subscription in list(topic.subscriptions.values()):
                subscription.skip(end)
                await subscription.flush()
            await topic.trim(await topic.entry_at(end))
            topic.backlog.forget()

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        if force:
            for namespace in self._namespaces.of_tenant(tenant):
                await self.delete_namespace(namespace, force=True)
        await self._namespaces.delete_tenant(tenant)

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        self._namespaces.policies(name)
        topics = self._topics.names(name)
        if topics and not force:
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"namespace {name} still has topics")
        for topic in topics:
            await self.delete_topic(topic, force=True, schema=True)
        await self._namespaces.delete(name)

    async def trim_topic(self, name: TopicName, *, everything: bool = False) -> None:
        if everything:
            return await self._truncate(name)
        for topic in await self._topics.all_of(name, create=False):
            await self._retention.look_now(topic)

    async def compact_topic(self, name: TopicName) -> None:
        for topic in await self._topics.all_of(name, create=False):
            self._compactions.start(topic)
