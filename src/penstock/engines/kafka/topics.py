"""The topics that this server uses, and those that it makes, changes and deletes through Kafka's admin API."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from penstock.broker.capability import Capability, not_supported
from penstock.broker.settings import BrokerSettings
from penstock.broker.topics import TopicObserver
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.subscription import subscriptions_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import AutoTopics, InForce
from penstock.runtime.clock import Clock

from .cluster import KafkaCluster
from .documents import Documents
from .driver.admin import Described
from .driver.fetcher import Fetcher
from .framing import Framings
from .known import KnownTopics
from .naming import Naming, Place
from .policies import KafkaNamespaces
from .properties import TopicProperties
from .topic import KafkaTopic

UNUSED_MS: Final = 600_000  # then a topic without clients here is forgotten
CREATED_S: Final = 0.05  # between two looks for a topic that was just created


class KafkaTopics(KnownTopics):
    """`broker.Topics`. `in_force` are the policies of a topic, `configs` what Kafka is told of them when it is created."""

    def __init__(
        self,
        cluster: KafkaCluster,
        naming: Naming,
        namespaces: KafkaNamespaces,
        documents: Documents,
        fetcher: Fetcher,
        clock: Clock,
        settings: BrokerSettings,
        *,
        in_force: Callable[[TopicName], InForce],
        auto: Callable[[NamespaceName], AutoTopics],
        configs: Callable[[TopicName], Mapping[str, str]],
        logs_max: Callable[[NamespaceName], int],
        registry: Framings | None,
    ) -> None:
        super().__init__(
            cluster.admin,
            naming,
            namespaces,
            TopicProperties(documents, documents.reader),
            clock,
            auto,
            cluster.settings.learned_ms,
            registry,
        )
        self.listeners: set[Callable[[TopicName], None]] = set()
        self.observers: list[TopicObserver] = []
        # Called with a topic that is there, to enter the subscriptions that nobody here consumes.
        self.learners: list[Callable[[TopicName], Awaitable[None]]] = []
        # Called with a topic that was deleted, or is not used any more here.
        self.closers: list[Callable[[KafkaTopic], None]] = []
        self.gone = self._forget_all
        self.changed = self._tell
        self._cluster = cluster
        self._spaces = namespaces
        self._documents = documents
        self._fetcher = fetcher
        self._settings = settings
        self._in_force = in_force
        self._configs = configs
        self._logs_max = logs_max
        self._open: dict[TopicName, KafkaTopic] = {}
        self._of: defaultdict[TopicName, set[TopicName]] = defaultdict(set)  # open logs by their base

    async def load(self) -> None:
        """Read what is stored of topics, and learn which there are."""
        await self.properties.load()
        await self.list_all()

    async def learn_whole(self, name: TopicName) -> None:
        await self.learn(name)
        if not self.exists(name):
            return
        logs = await self.all_of(name, create=False)
        await asyncio.gather(*(log.refresh() for log in logs))
        for learner in self.learners:
            await learner(name)

    # -- those in use

    @property
    def tail_bytes(self) -> int:
        return self._fetcher.tails.bytes

    @property
    def open_topics(self) -> Sequence[KafkaTopic]:
        return list(self._open.values())

    async def get(self, name: TopicName, *, create: bool | None = None) -> KafkaTopic:
        await self._ensure(name, create=create)
        if self.partitions(name):
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} is partitioned: name a partition")
        return await self._log(self.own(name))

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[KafkaTopic]:
        await self._ensure(name, create=create)
        return [await self._log(one) for one in self.logs(name)]

    async def _log(self, name: TopicName) -> KafkaTopic:
        topic = self._open.get(name)
        if topic is None and name.partition == 0:
            topic = self._open.get(name.base)  # it had no partitions when it was opened
        if topic is not None:
            return topic
        of = name if self.found(name) is not None else name.base
        found = self.found(of)
        if found is None or not found.id:
            found = await self.ask(of)
        if found is None:
            raise self.missing(name)
        place = Place(*self.at(name), found.id)
        policies, hold_ms = self._in_force(name), self._settings.quota_hold_ms
        topic = KafkaTopic(
            name, place, self._fetcher, self._clock, policies, self._documents, hold_ms, self.registry
        )
        await topic.refresh()
        there = self._open.setdefault(name, topic)  # another call may have been quicker
        if there is topic:
            self._of[name.base].add(name)
            for observer in self.observers:
                observer.opened(topic)
        return there

    async def _ensure(self, name: TopicName, *, create: bool | None) -> None:
        await self.learn(name)
        if self.exists(name):
            return
        base = self.found(name.base)
        if name.partition >= 0 and base is not None:
            raise PenstockError(
                ErrorKind.PARTITION_NOT_FOUND, f"{name.base} has {base.partitions} partitions"
            )
        allowed = self.auto(name).allowed if create is None else create
        if not allowed or name.partition >= 0:
            raise self.missing(name)
        try:
            await self.create(name, self.auto(name).partitions)
        except PenstockError as error:
            if (
                error.kind is not ErrorKind.ALREADY_EXISTS
            ):  # another process, or a client of Kafka's, was quicker
                raise
            await self.ask(name)

    # -- changing which there are

    async def create(
        self, name: TopicName, partitions: int, properties: dict[str, str] | None = None
    ) -> None:
        self._check_partitions(partitions)
        if name.partition >= 0:
            raise PenstockError(
                ErrorKind.INVALID_NAME, "a topic's name can't contain '-partition-' and a number at its end"
            )
        kafka = self.naming.kafka_name(name)
        self._spaces.check(name.namespace_name)
        await self._check_room(name.namespace_name, max(1, partitions))
        await self._spaces.ensure(name.namespace_name)
        replication = self._cluster.settings.replication_factor
        await self._cluster.admin.create(kafka, max(1, partitions), replication, self._configs(name))
        await self._await(name, lambda found: found is not None)
        await self.properties.save(name, properties or {})
        self._tell(name)

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Let a topic have more partitions; raises FEWER_PARTITIONS, BAD_PARAMETER, TOPIC_NOT_FOUND."""
        self._check_partitions(partitions)
        await self.ask(name)
        if self.found(name) is None:
            raise self.missing(name)
        have = len(self.logs(name))
        if partitions < have:
            raise PenstockError(
                ErrorKind.FEWER_PARTITIONS, f"{name} has {have} partitions: they cannot be fewer"
            )
        if partitions > have:
            await self._check_room(name.namespace_name, partitions - have)
            await self._cluster.admin.grow(self.naming.kafka_name(name), partitions)
            await self._await(name, lambda found: found is not None and found.partitions >= partitions)

    async def delete(self, name: TopicName, *, force: bool) -> None:
        """Delete a topic; raises TOPIC_NOT_FOUND, and TOPIC_IN_USE where somebody is connected here, unless `force`."""
        found = await self.ask(name)
        if found is None:
            raise self.missing(name)
        for log in [self._open[one] for one in self._of.get(name, ())]:
            consumers = any(one.consumers for one in log.subscriptions.values())
            if (log.producers or consumers) and not force:
                raise PenstockError(
                    ErrorKind.TOPIC_IN_USE, f"{name} has active producers or consumers; delete it with force"
                )
        await self._cluster.admin.delete(self.naming.kafka_name(name))
        await self.properties.save(name, {})
        await self._await(name, lambda now: now is None or now.id != found.id)

    async def _await(self, name: TopicName, holds: Callable[[Described | None], bool]) -> None:
        """Ask until the broker that is asked has heard of a change."""
        until = self._clock.monotonic_ms() + self._cluster.settings.timeout_ms
        while not holds(await self.ask(name)):
            if self._clock.monotonic_ms() > until:
                raise PenstockError(ErrorKind.UNAVAILABLE, f"the brokers do not show what became of {name}")
            await asyncio.sleep(CREATED_S)

    async def _check_room(self, namespace: NamespaceName, logs: int) -> None:
        """Raise TOO_MANY_TOPICS unless the namespace may have so many logs more."""
        most = self._logs_max(namespace)
        if most <= 0:
            return
        await self.learn_names(namespace)
        have = sum(len(self.logs(name)) for name in self.names(namespace) if self.exists(name))
        if most < have + logs:
            raise PenstockError(
                ErrorKind.TOO_MANY_TOPICS,
                f"namespace {namespace} may have {most} topics, partitions counted each, and has {have}",
            )

    def _check_partitions(self, partitions: int) -> None:
        if not 0 <= partitions <= self._settings.max_partitions:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"the number of partitions must be within 0 and {self._settings.max_partitions}",
            )

    async def set_properties(
        self, name: TopicName, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        await self.learn(name)
        if self.found(name) is None:
            raise self.missing(name)
        await self.properties.save(name, change(dict(self.properties.of(name))))

    async def terminate(self, name: TopicName) -> Sequence[KafkaTopic]:
        raise not_supported(Capability.TERMINATION.value)

    # -- coming and going

    def apply(self, concerns: Callable[[TopicName], bool]) -> None:
        """Have the policies of now bound the open topics that they concern."""
        for topic in self.open_topics:
            if concerns(topic.name):
                topic.apply(self._in_force(topic.name))

    def _tell(self, name: TopicName) -> None:
        for listener in list(self.listeners):
            listener(name)

    def _forget_all(self, name: TopicName) -> None:
        for log in list(self._of.get(name, ())):
            self._forget(log, deleted=True)

    def _forget(self, name: TopicName, *, deleted: bool) -> None:
        topic = self._open.pop(name, None)
        logs = self._of[name.base]
        logs.discard(name)
        if not logs:
            del self._of[name.base]
        if topic is not None:
            _close(topic, deleted=deleted)
            for closer in self.closers:
                closer(topic)

    def sweep(self) -> None:
        """Let readers leave that are not used, and forget topics without clients here."""
        before = self._clock.monotonic_ms() - UNUSED_MS
        for topic in self.open_topics:
            topic.sweep()
            if topic.deleted or (topic.used_ms < before and not topic.in_use):
                self._forget(topic.name, deleted=topic.deleted)

    def close(self) -> None:
        """End every log."""
        for topic in self.open_topics:
            topic.end(deleted=False)


def _close(topic: KafkaTopic, *, deleted: bool) -> None:
    """A topic is used no more: one that was deleted takes its producers and consumers along."""
    topic.end(deleted=deleted)
    gone = PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{topic.name} was deleted")
    topic.rates.end(gone)
    for producer in list(topic.producers.values()):
        producer.close(gone)
    for subscription in list(subscriptions_of(topic).values()):
        for consumer in list(subscription.consumers):
            if isinstance(consumer, Consumer):
                consumer.part_ended(subscription, gone)
