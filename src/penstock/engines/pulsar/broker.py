"""The broker before an Apache Pulsar cluster: what the endpoints see. Everything runs on one event loop."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from penstock.broker.acting import ACTING
from penstock.broker.capability import Capability
from penstock.broker.consumer import Consumer as AnyConsumer
from penstock.broker.delivery import Budget
from penstock.broker.producer import Producer as AnyProducer
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.staging import Published
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topic import Topic
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.consumers import AttachedConsumers
from penstock.engines.shared.dead_letters import DeadLetters, KeptProducers
from penstock.engines.shared.new_names import NewNames
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import Requests
from penstock.engines.staging.staging import Staging
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, InForce, ProducerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

from .acting import ActingClusters
from .cluster import PulsarCluster
from .entries import EntryPublishing
from .journals import PulsarJournals
from .namespaces import PulsarNamespaces
from .process_documents import PulsarProcessDocuments
from .producer import Producer, RequestReplies
from .replies import ReplyTopics
from .schemas import Schemas
from .staging.parts import Staged
from .staging.space import StagingSpace
from .staging.writers import open_staging
from .subscriptions import PulsarSubscriptions
from .topic import policies_of
from .topics import PulsarTopics

SWEEP_S: Final = 5.0
LEAVE_S: Final = 5.0  # for the cluster to answer, when the server stops, that its clients have left


class PulsarBroker:
    """`broker.Broker`. Messages, cursors, schemas and policies are the cluster's; this process has its clients."""

    # The cluster's own, or not there.
    administration = group_positions = policies = record_formats = watch = None
    partitioner = Partitioner.JAVA
    _consumers: type[Consumer] = Consumer

    def __init__(
        self,
        settings: ClusterSettings,
        own: BrokerSettings,
        clock: Clock,
        cluster: PulsarCluster | None = None,
    ) -> None:
        """`cluster`: by default the one that the settings name. Raises BAD_PARAMETER."""
        if not settings.admin_url:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                "engine.admin_url is missing: the address of the cluster's admin REST, like http://127.0.0.1:8080",
            )
        self.cluster = cluster or PulsarCluster(settings)
        self._acting = ActingClusters(self.cluster, clock)
        self.settings = own
        self.capabilities: frozenset[Capability] = frozenset()  # until it is known what the cluster offers
        self.clock = clock
        self.tasks = Tasks()
        self.storage = StorageHealth()
        self.failures = Failures(clock)
        self.namespaces = PulsarNamespaces(self.cluster, clock, settings.learned_ms)
        self.topics = self._new_topics(settings.learned_ms)
        self.schemas = Schemas(self.cluster, own.max_schema_bytes)
        self.topics.learners.append(self._learn_schema)
        self.subscriptions = PulsarSubscriptions(self.cluster, self.topics)
        self.staging: Staging[Staged] | None = None  # until it is known that the cluster has transactions
        self._entries = EntryPublishing(self._acting_producer, self._in_force)
        self._staging_namespace = NamespaceName.parse(settings.staging_namespace)
        self._replies = self._new_replies()
        self.requests = self._replies.requests
        self.open_journal = PulsarJournals(self.cluster, self.topics, self._own_producer).open
        self.processes: PulsarProcessDocuments | None = PulsarProcessDocuments(
            self.cluster,
            self._staging_namespace,
            f"penstock-{secrets.token_hex(8)}",
            clock,
            self.tasks,
        )
        self._letter_producers = KeptProducers(self._own_producer)
        self._dead_letters = DeadLetters(wire.decode, self._letter_producers.lend, self.schemas)
        self.new_name = NewNames()
        self._stopping = False
        self._attached = AttachedConsumers(
            self.topics,
            Arriving(self.schemas),
            clock,
            self.tasks,
            self._dead_letters.bury,
            self.failures,
            new_name=self.new_name,
            give_reply=self._replies.reply if isinstance(self._replies, Replies) else None,
            leave_s=lambda: LEAVE_S if self._stopping else None,
            kind=self._consumers,
        )

    def _new_topics(self, learned_ms: int) -> PulsarTopics:
        return PulsarTopics(self.cluster, self.namespaces, self.clock, self._in_force, learned_ms)

    def _new_replies(self) -> RequestReplies:
        requests = Requests(self.clock, self.settings.request_timeout_ms_max, correlated=True)
        topics = ReplyTopics(self.cluster.context, self.clock, self.tasks, requests)
        return Replies(topics, self.clock, requests)

    def _new_producer(self, cluster: PulsarCluster, name: TopicName, options: ProducerOptions) -> Producer:
        return Producer(cluster, self.topics, self.schemas, name, options, self._replies)

    async def start(self) -> None:
        """Reach the cluster and learn what it is configured to; raises UNAVAILABLE."""
        try:
            await self.cluster.start()
        except BaseException:
            await self.cluster.close()
            raise
        offers = [Capability.ENTRIES, Capability.TERMINATION, Capability.EXCLUSIVE_PRODUCERS]
        if self.cluster.numbered:
            offers += [Capability.OFFSETS, Capability.BYTE_POSITIONS]
        if self.cluster.flag("transactionCoordinatorEnabled"):
            offers.append(Capability.STAGED_PUBLISH)
            self.staging = self._new_staging()
        self.capabilities = frozenset(offers)
        bytes_max = self.cluster.number("maxMessageSize", self.settings.max_message_bytes)
        self.settings = msgspec.structs.replace(
            self.settings, max_message_bytes=min(bytes_max, self.settings.max_message_bytes)
        )
        self.tasks.spawn(self._sweep(), "close unused objects")

    def _new_staging(self) -> Staging[Staged]:
        space = StagingSpace(self.cluster, self._staging_namespace, self.settings.stage_timeout_ms)
        parts = (space, self.topics, self.schemas)
        return open_staging(*parts, lambda: self._acting.of(ACTING.get()).context, self.clock, self.tasks)

    def drain(self) -> None:
        """From now on the cluster is not waited for for long. Nothing is held here: it holds publishes."""
        self._stopping = True

    async def close(self) -> None:
        """Leave every topic; what was out with consumers is the cluster's to deliver again.

        A cluster that does not answer is waited for LEAVE_S, for everything together; then the connections end, and with
        them whatever waits for it.
        """
        self._stopping = True
        self.requests.close()
        self._letter_producers.close()
        leaving: list[Consumer] = []
        for topic in self.topics.open_topics:
            for producer in list(topic.producers.values()):
                producer.close()
            for subscription in list(topic.subscriptions.values()):
                leaving += [one for one in subscription.consumers if isinstance(one, Consumer)]
        self.topics.close()
        work = [self._replies.close(), *(consumer.leave() for consumer in leaving)]
        if self.staging is not None:
            work.append(self.staging.close())
        await asyncio.wait([self.tasks.spawn(one, "leave") for one in work], timeout=LEAVE_S)
        self.tasks.cancel()
        await asyncio.gather(self._acting.close(), self.cluster.close())
        await self.tasks.close()

    # -- clients

    async def producer(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[AnyProducer], None] | None = None,
    ) -> AnyProducer:
        return await self._acting_producer(name, options or ProducerOptions())

    async def _acting_producer(self, name: TopicName, options: ProducerOptions) -> Producer:
        """A producer for the caller that is served now."""
        return await self._open(self._new_producer(self._acting.of(ACTING.get()), name, options))

    async def _own_producer(self, name: TopicName, options: ProducerOptions) -> AnyProducer:
        """A producer of the server's own, whoever is served now."""
        return await self._open(self._new_producer(self.cluster, name, options))

    async def _open(self, producer: Producer) -> Producer:
        await producer.open()
        return producer

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> AnyConsumer:
        return await self._attached.subscribe(
            self._acting.of(ACTING.get()),
            names,
            subscription,
            self._named(options),
            unique_name=unique_name,
            budget=budget,
        )

    async def subscribe_pattern(
        self,
        pattern: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        namespace: NamespaceName,
        domain: str = "persistent",
        allowed: Callable[[TopicName], bool] = lambda name: True,
        budget: Budget | None = None,
    ) -> AnyConsumer:
        return await self._attached.subscribe_pattern(
            self._acting.of(ACTING.get()),
            pattern,
            subscription,
            self._named(options),
            namespace=namespace,
            domain=domain,
            allowed=allowed,
            budget=budget,
        )

    def _named(self, options: ConsumerOptions) -> ConsumerOptions:
        """The options as the cluster gets them."""
        return options

    async def append_entries(
        self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> Published:
        return await self._entries.append(topic, entries, deduplicate=deduplicate)

    # -- what the parts ask

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.topics.sweep()
            await self._acting.sweep()

    async def _learn_schema(self, name: TopicName) -> None:
        await self.schemas.learn(name)

    def _in_force(self, name: TopicName) -> InForce:
        found = self.namespaces.find(name.namespace_name)
        deduplication = None if found is None else found.deduplication
        if deduplication is None:
            deduplication = self.cluster.flag("brokerDeduplicationEnabled")
        return policies_of(self.settings, deduplication=deduplication)


class Arriving:
    """What consumers ask of schemas."""

    def __init__(self, schemas: Schemas) -> None:
        self.knows = schemas.knows
        self._schemas = schemas

    async def fetch(self, topic: TopicName, version: int) -> None:
        """Learn a version that an entry names."""
        await self._schemas.fetch(topic, (version,))
