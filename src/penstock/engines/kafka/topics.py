"""The topics of a Kafka cluster: those that it has, and those that this server uses, makes, changes and deletes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from penstock.broker.acting import FOR_PROCESS
from penstock.broker.capability import Capability, not_supported
from penstock.broker.settings import BrokerSettings
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.subscription import subscriptions_of
from penstock.engines.shared.catalog import NEVER, NO_TOPICS, Catalog, Described
from penstock.engines.shared.name_list import check_growth, check_new, check_partitions
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics
from penstock.runtime.clock import Clock

from .cluster import KafkaCluster
from .documents import Documents, TopicProperties
from .driver.fetcher import Fetcher
from .driver.record import At
from .naming import Naming, Place
from .policies import KafkaNamespaces, KafkaPolicies
from .schema_registry.formats import FramedSchemas
from .topic import KafkaTopic

log = logging.getLogger(__name__)

RECENT_MS: Final = 200  # a topic that was asked for so lately is not asked for again
GONE_MS: Final = 2000  # for a broker to hear of a deletion that another process was answered
CREATED_S: Final = 0.05  # between two looks for a topic that was just created


class KafkaTopics(Catalog[KafkaTopic]):
    """`broker.Topics`. `policies` bound topics, and are configurations of Kafka's topics."""

    unpartitioned = 1
    lists_all = True

    def __init__(
        self,
        cluster: KafkaCluster,
        naming: Naming,
        namespaces: KafkaNamespaces,
        documents: Documents,
        fetcher: Fetcher,
        clock: Clock,
        settings: BrokerSettings,
        policies: KafkaPolicies,
        registry: FramedSchemas | None,
    ) -> None:
        super().__init__(namespaces, clock, cluster.settings.learned_ms)
        self.registry = registry  # of schemas
        self.properties = TopicProperties(documents, documents.reader)
        self.naming = naming
        # Called with an existing topic, to enter subscriptions without consumers here.
        self.learners: list[Callable[[TopicName], Awaitable[None]]] = []
        # Called with a topic that was deleted, or is not used any more here.
        self.closers: list[Callable[[KafkaTopic], None]] = []
        # Called with a topic whose log was truncated.
        self.truncations: list[Callable[[KafkaTopic], None]] = []
        self._cluster = cluster
        self._spaces = namespaces
        self._documents = documents
        self._fetcher = fetcher
        self._settings = settings
        self._policies = policies

    async def load(self) -> None:
        """Read stored documents of topics, and learn the list of topics."""
        await self.properties.load()
        await self.list_all()

    async def learn(self, name: TopicName, *, whole: bool = False) -> None:
        await super().learn(name)
        if FOR_PROCESS.get():
            await self._ask_if_missing(name)
        if whole and self.exists(name):
            await self._learn_logs(name)

    async def _ask_if_missing(self, name: TopicName) -> None:
        """Another process uses a topic or a partition: it may know of one that is newer than what was learned here."""
        if not self.exists(name):
            await self.ask(name.base)

    async def get_for_process(self, name: TopicName) -> KafkaTopic:
        """As `get` of a topic that another process, or this one, has created."""
        await self.learn(name)
        await self._ask_if_missing(name)
        return await self.get(name, create=False)

    async def look_again(self, name: TopicName) -> None:
        """Before a topic is consumed that nobody uses here: it may have been made again since it was asked for, and what is kept of
        the one before would end under the new consumer."""
        base = name.base
        known = self.found(base)
        asked_ms = self._asked.get(base, NEVER)
        if asked_ms != NEVER and self._clock.monotonic_ms() - asked_ms < RECENT_MS:
            return
        if known is None or not known.id or any(one.has_clients for one in self.open_of(base)):
            return
        try:
            now = await self._describe(base)
        except PenstockError as error:
            log.debug("%s is taken to be as it was: %s", base, error.message)
            return
        if now is not None:
            self.put(base, now)

    async def _learn_logs(self, name: TopicName) -> None:
        logs = await self.all_of(name, create=False)
        try:
            await asyncio.gather(*(log.refresh() for log in logs))
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
            await self.ask(name.base)  # it was deleted since it was asked for
            if self.exists(name):
                raise
            return
        for learner in self.learners:
            await learner(name)

    @property
    def tail_bytes(self) -> int:
        return self._fetcher.tails.bytes

    def auto(self, name: TopicName) -> AutoTopics:
        if name.partition >= 0 or not self._spaces.serves(name.namespace_name):
            return NO_TOPICS
        return self._policies.auto_topics(name.namespace_name)

    # -- asking the cluster

    async def _describe(self, name: TopicName) -> Described | None:
        kafka = self.naming.kafka_name(name)
        there = self._namespaces.exists(name.namespace_name)
        return await self._cluster.admin.describe(kafka) if there else None

    async def _list(self, namespace: NamespaceName | None) -> Mapping[str, int]:
        return await self._cluster.admin.topics()

    def _name_of(self, text: str) -> TopicName | None:
        return self.naming.topic_name(text)

    async def _learn_more(self, name: TopicName) -> None:
        if self.registry is not None:
            await self.registry.learn(name.base)

    def _properties(self, name: TopicName) -> dict[str, str]:
        return self.properties.of(name)

    def at(self, name: TopicName) -> At:
        """Kafka's topic and partition of a log that exists."""
        if self.found(name) is not None:
            return self.naming.kafka_name(name), 0
        return self.naming.kafka_name(name.base), max(0, name.partition)

    async def group_positions(self, name: TopicName, group: str) -> Mapping[TopicName, MessageId]:
        """As `broker.GroupPositions`."""
        topics = await self.all_of(name, create=False)
        places = [(topic.place.topic, topic.place.partition) for topic in topics]
        committed = await self._cluster.groups.committed(group, places)
        if not committed:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"consumer group {group} has committed no position in {name}"
            )
        found: dict[TopicName, MessageId] = {}
        for topic, place in zip(topics, places, strict=True):
            await topic.refresh()
            begin, end = topic.first_offset, topic.next_offset
            offset = committed.get(place, begin)
            if not begin <= offset <= end:
                extra = {"group": group, "topic": str(topic.name), "committed": offset, "begins_at": begin}
                log.warning("a group's position does not fit its log", extra=extra)
                offset = begin
            found[topic.name] = MessageId(topic.ledger, offset, topic.name.partition)
        return found

    # -- opening

    async def _log(self, name: TopicName) -> KafkaTopic:
        # Partition 0 may have been opened when the topic had no partitions.
        held = self._open.get(name.base) if name.partition == 0 and name not in self._open else None
        return held or await super()._log(name)

    async def _new(self, name: TopicName) -> KafkaTopic:
        of = name if self.found(name) is not None else name.base
        found = self.found(of)
        if found is None or not found.id:
            found = await self.ask(of)
        if found is None:
            raise self.missing(name)
        place = Place(*self.at(name), found.id)
        policies, hold_ms = self._policies.in_force(name), self._settings.quota_hold_ms
        topic = KafkaTopic(
            name, place, self._fetcher, self._clock, policies, self._documents, hold_ms, self.registry
        )
        await topic.refresh()
        topic.on_truncated = partial(self._truncated, topic)
        return topic

    def _truncated(self, topic: KafkaTopic) -> None:
        for listener in self.truncations:
            listener(topic)

    # -- changing which there are

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        check_new(name, partitions, self._settings.max_partitions)
        kafka = self.naming.kafka_name(name)
        self._spaces.check(name.namespace_name)
        await self._check_room(name.namespace_name, max(1, partitions))
        await self._spaces.ensure(name.namespace_name)
        replication = self._cluster.settings.replication_factor
        await self._cluster.admin.create(kafka, max(1, partitions), replication, self._policies.configs(name))
        await self._await(name, lambda found: found is not None)
        await self.properties.save(name, properties or {})

    async def set_partitions(self, name: TopicName, partitions: int) -> None:
        """Let a topic have more partitions; raises FEWER_PARTITIONS, BAD_PARAMETER, TOPIC_NOT_FOUND."""
        check_partitions(partitions, self._settings.max_partitions)
        await self.ask(name)
        if self.found(name) is None:
            raise self.missing(name)
        have = len(self.logs(name))
        check_growth(name, have, partitions)
        if partitions > have:
            await self._check_room(name.namespace_name, partitions - have)
            await self._cluster.admin.grow(self.naming.kafka_name(name), partitions)
            await self._await(name, lambda found: found is not None and found.partitions >= partitions)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic; raises TOPIC_NOT_FOUND, and TOPIC_IN_USE if clients of this process use it, unless `force`."""
        found = await self.ask(name)
        if found is None:
            raise self.missing(name)
        for log in self.open_of(name):
            if log.has_clients and not force:
                raise PenstockError(
                    ErrorKind.TOPIC_IN_USE, f"{name} has active producers or consumers; delete it with force"
                )
        await self._cluster.admin.delete(self.naming.kafka_name(name))
        await self.properties.save(name, {})
        await self._await(name, lambda now: now is None or now.id != found.id)

    async def learn_deletion(self, name: TopicName) -> None:
        """Another process deleted a topic: end what this one has of it. The broker that is asked may hear of it a little later, and
        a new topic may have the name already."""
        known = self.found(name)
        until = self._clock.monotonic_ms() + GONE_MS
        while known is not None and self._clock.monotonic_ms() < until:
            found = await self.ask(name)
            if found is None or found.id != known.id:
                return
            await asyncio.sleep(CREATED_S)

    async def _await(self, name: TopicName, holds: Callable[[Described | None], bool]) -> None:
        """Ask until the broker that is asked has heard of a change."""
        until = self._clock.monotonic_ms() + self._cluster.settings.timeout_ms
        while not holds(await self.ask(name)):
            if self._clock.monotonic_ms() > until:
                raise PenstockError(ErrorKind.UNAVAILABLE, f"the brokers do not show what became of {name}")
            await asyncio.sleep(CREATED_S)

    async def _check_room(self, namespace: NamespaceName, logs: int) -> None:
        most = self._policies.max_topics(namespace)
        if most > 0:
            await self.learn_names(namespace)
            self._names.check_room(namespace, logs, most)

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        await self.learn(name)
        if self.found(name) is None:
            raise self.missing(name)
        await self.properties.save(name, change(dict(self.properties.of(name))))

    async def terminate(self, name: TopicName) -> Sequence[KafkaTopic]:
        raise not_supported(Capability.TERMINATION.value)

    # -- changes

    def apply(self, name: TopicName | NamespaceName) -> None:
        """The policies of a topic or a namespace changed: have them bound its open topics."""
        if isinstance(name, TopicName):
            topics = self.open_of(name)
        else:
            topics = [one for one in self.open_topics if one.name.namespace_name == name]
        for topic in topics:
            topic.apply(self._policies.in_force(topic.name))

    def _close(self, topic: KafkaTopic, *, deleted: bool) -> None:
        """A topic that was deleted takes its producers and consumers along."""
        topic.end(deleted=deleted)
        gone = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{topic.name} was deleted")
        topic.rates.end(gone)
        for producer in list(topic.producers.values()):
            producer.close(gone)
        for subscription in list(subscriptions_of(topic).values()):
            for consumer in list(subscription.consumers):
                if isinstance(consumer, Consumer):
                    consumer.part_ended(subscription, gone)
        for closer in self.closers:
            closer(topic)
