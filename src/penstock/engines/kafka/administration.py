"""What administrators do to topics, namespaces and tenants as a whole, through Kafka's admin API."""

import logging
from typing import Final

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.capability import Capability, not_supported
from penstock.engines.registry.schemas import Schemas
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.target import Target
from penstock.runtime.tasks import each

from .cluster import KafkaCluster
from .policies import KafkaNamespaces, KafkaPolicies
from .serving.serving import Serving
from .topics import KafkaTopics

log = logging.getLogger(__name__)

APPLIED_AT_ONCE: Final = 16  # topics whose configuration is set


class KafkaAdministration:
    """`broker.Administration`."""

    def __init__(
        self,
        cluster: KafkaCluster,
        topics: KafkaTopics,
        namespaces: KafkaNamespaces,
        policies: KafkaPolicies,
        schemas: Schemas,
        serving: Serving,
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._namespaces = namespaces
        self._policies = policies
        self._schemas = schemas
        self._served = serving.served
        self._others = serving.others
        namespaces.apply = self._apply_all
        policies.apply = self._apply

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        if FOR_PROCESS.get():  # which deleted it
            await self._topics.learn_deletion(name)
            await self._delete_cursors(name)
            return
        if not force:
            await self._others.check_unused(name)
        known = self._topics.document(name)
        more = ("partitions",) if known is not None and known.partitions else ()
        await self._topics.delete(name, force=force)
        await self._delete_cursors(name)
        await self._others.tell("DELETE", Target.of_topic(name, *more), force="true")
        await self._policies.forget(name)
        await self._namespaces.forget_topic(name)
        if schema:
            await self._schemas.forget(name)

    async def _delete_cursors(self, name: TopicName) -> None:
        """Delete the subscriptions that this process has of a deleted topic."""
        now = self._topics.found(name)
        kafka = self._topics.naming.kafka_name(name)
        try:
            await self._served.delete_cursors(kafka, "" if now is None else now.id)
        except PenstockError as error:  # they fit no log, and are removed later
            log.info("subscriptions of %s are not deleted yet: %s", name, error.message)

    async def unload_topic(self, name: TopicName) -> None:
        """As `Administration.unload_topic`, at every process. Consumers of this process stay: they are attached again."""
        why = PenstockError(ErrorKind.UNAVAILABLE, f"{name} was unloaded: connect again")
        for topic in await self._topics.all_of(name, create=False):
            await self._served.unload(topic)
            for producer in list(topic.producers.values()):
                producer.close(why)
        await self._others.tell("PUT", Target.of_topic(name, "unload"))

    async def trim_topic(self, name: TopicName, *, everything: bool = False) -> None:
        """Delete every record; subscriptions go on with what comes next."""
        if not everything:
            raise not_supported("trimming on demand: Kafka deletes what retention does not keep")
        logs = await self._topics.all_of(name, create=False)
        places = [(log.place.topic, log.place.partition) for log in logs]
        await self._cluster.admin.delete_records(await self._cluster.admin.ends(places))
        for log in logs:
            await log.refresh()

    async def compact_topic(self, name: TopicName) -> None:
        raise not_supported(Capability.COMPACTION.value)

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        self._namespaces.policies(name)
        await self._topics.list_all()
        topics = self._topics.names(name)
        if topics and not force:
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"namespace {name} still has topics")
        for topic in topics:
            await self.delete_topic(topic, force=True, schema=True)
        await self._namespaces.delete(name)

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        if force:
            for namespace in self._namespaces.of_tenant(tenant):
                await self.delete_namespace(namespace, force=True)
        await self._namespaces.delete_tenant(tenant)

    # -- policies that Kafka keeps

    async def _apply(self, name: TopicName) -> None:
        """Set the configuration of a topic in Kafka by the present policies, if it exists."""
        if await self._topics.ask(name) is None:
            return
        kafka = self._topics.naming.kafka_name(name)
        await self._cluster.admin.set_configs(kafka, self._policies.all_configs(name))

    async def _apply_all(self, namespace: NamespaceName) -> None:
        await self._topics.list_all()
        await each(self._apply, self._topics.names(namespace), APPLIED_AT_ONCE)
