"""The broker before an Apache Pulsar cluster: what the endpoints see. Everything runs on one event loop."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from itertools import groupby
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
from penstock.model.message_id import UNKNOWN_ID
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, InForce, ProducerOptions, Quota, Retention
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire
from penstock.wire.contents import parse_head

from .cluster import ActingClusters, PulsarCluster
from .journals import PulsarJournals
from .processes import PulsarProcessDocuments, ReplyTopics
from .producer import Producer
from .registry import PulsarRegistryRecords
from .schemas import Schemas
from .staging.parts import Staged
from .staging.space import StagingSpace
from .staging.writers import open_staging
from .subscriptions import PulsarSubscriptions
from .topics import PulsarNamespaces, PulsarTopics

SWEEP_S: Final = 5.0
LEAVE_S: Final = 5.0  # for the cluster to answer, when the server stops, that its clients have left
PRODUCERS_MAX: Final = 1024  # that are kept; each leaves its topic by itself when it is not used
# A broker connects one producer of a name at a time. The one that has the name leaves after its answer; others wait for that.
NAME_WAIT_S: Final = 5.0
NAME_RETRY_S: Final = 0.05


class PulsarBroker:
    """`broker.Broker`. Messages, cursors, schemas and policies are the cluster's; this process has its clients."""

    # The cluster's own, or not there.
    administration = cluster_view = group_positions = groups = other_registry = None
    own_documents = policies = record_formats = watch = None
    partitioner = Partitioner.JAVA
    _consumers: type[Consumer] = Consumer
    _recheck_missing = False

    def __init__(
        self,
        settings: ClusterSettings,
        own: BrokerSettings,
        clock: Clock,
        cluster: PulsarCluster | None = None,
        requests: Requests | None = None,
    ) -> None:
        """`cluster`: by default the one that the settings name. `requests`: those whose replies the cluster delivers; None:
        replies travel on topics. Raises BAD_PARAMETER."""
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
        self.schemas = Schemas(self.cluster, own.max_schema_bytes)
        self.topics = PulsarTopics(
            self.cluster,
            self.namespaces,
            clock,
            self._in_force,
            settings.learned_ms,
            learn_schema=self.schemas.learn,
            recheck_missing=self._recheck_missing,
        )
        self.subscriptions = PulsarSubscriptions(self.cluster, self.topics)
        self.staging: Staging[Staged] | None = None  # until it is known that the cluster has transactions
        self._entry_producers = KeptProducers(
            self._acting_producer, PRODUCERS_MAX, stateless=True, by_caller=True
        )
        self._staging_namespace = NamespaceName.parse(settings.staging_namespace)
        self._replies: Replies | None = None
        if requests is None:
            requests = Requests(clock, own.request_timeout_ms_max, correlated=True)
            transport = ReplyTopics(self.cluster.context, clock, self.tasks, requests)
            self._replies = Replies(transport, clock, requests)
        self.requests = requests
        self.open_journal = PulsarJournals(self.cluster, self.topics, self._own_producer).open
        self.processes: PulsarProcessDocuments | None = PulsarProcessDocuments(
            self.cluster, self._staging_namespace, f"penstock-{secrets.token_hex(8)}", clock, self.tasks
        )
        self.registry_records = PulsarRegistryRecords(
            self.cluster, self._staging_namespace, clock, self.tasks
        )
        self._letter_producers = KeptProducers(self._own_producer)
        self._dead_letters = DeadLetters(wire.decode, self._letter_producers.lend, self.schemas)
        self.new_name = NewNames()
        self._stopping = False
        self._attached = AttachedConsumers(
            self.topics,
            self.schemas,
            clock,
            self.tasks,
            self._dead_letters.bury,
            self.failures,
            new_name=self.new_name,
            give_reply=None if self._replies is None else self._replies.reply,
            leave_s=lambda: LEAVE_S if self._stopping else None,
            kind=self._consumers,
        )

    def _new_producer(self, cluster: PulsarCluster, name: TopicName, options: ProducerOptions) -> Producer:
        return Producer(cluster, self.topics, self.schemas, name, options, self.requests, self._replies)

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
        """Leave every topic; the cluster redelivers unacknowledged messages.

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
        self.registry_records.close()
        work = [*(consumer.leave() for consumer in leaving)]
        if self._replies is not None:
            work.append(self._replies.close())
        if self.staging is not None:
            work.append(self.staging.close())
        if work:
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
        return await self._new_producer(self._acting.of(ACTING.get()), name, options).open()

    async def _own_producer(self, name: TopicName, options: ProducerOptions) -> AnyProducer:
        """A producer of the server itself, independent of the caller."""
        return await self._new_producer(self.cluster, name, options).open()

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
        """As `Broker.append_entries`, but not all or none. `deduplicate` needs deduplication in the cluster, and then
        each producer of the entries has its name there; else one producer publishes them all, under its own sequence ids."""
        if deduplicate and not self._in_force(topic.name).deduplication:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED,
                f"the cluster does not tell repeats in {topic.name.namespace_name}: deduplication is off there"
                " (brokerDeduplicationEnabled, or the namespace's policy)",
            )
        done = Published()
        # If a namespace wants encrypted entries only, the first other one is refused.
        encrypted = bool(entries) and bool(parse_head(entries[0].data)[0].encryption_keys)
        for name, run in groupby(entries, lambda entry: entry.producer if deduplicate else ""):
            if deduplicate:
                await self._publish_named(topic.name, name, list(run), done, encrypted=encrypted)
            else:
                async with self._entry_producers.lend(topic.name, encrypted) as producer:
                    await self._publish(producer, list(run), done)
        return done

    async def _publish_named(
        self, topic: TopicName, name: str, entries: Sequence[NewEntry], done: Published, *, encrypted: bool
    ) -> None:
        """Publish under the entries' own name: the broker returns the last sequence id of a name only to its producer."""
        producer = await self._open_named(topic, ProducerOptions(name=name, encrypted=encrypted))
        try:
            await self._publish(producer, entries, done)
        finally:
            producer.close()
            await producer.left()

    async def _open_named(self, topic: TopicName, options: ProducerOptions) -> Producer:
        loop = asyncio.get_running_loop()
        until = loop.time() + NAME_WAIT_S
        while True:
            try:
                return await self._acting_producer(topic, options)
            except PenstockError as error:
                if error.kind is not ErrorKind.PRODUCER_BUSY or loop.time() >= until:
                    raise
            await asyncio.sleep(NAME_RETRY_S)

    async def _publish(self, producer: Producer, entries: Sequence[NewEntry], done: Published) -> None:
        for result in await producer.append(entries):
            if isinstance(result, PenstockError):
                raise result
            if result == UNKNOWN_ID:
                done.repeats += 1
            elif done.first is None:
                done.first = result
        if producer.options.name:
            done.last_sequence_id = producer.figures().last_sequence_id

    # -- what the parts ask

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.topics.sweep()
            await self._acting.sweep()

    def _in_force(self, name: TopicName) -> InForce:
        found = self.namespaces.find(name.namespace_name)
        deduplication = None if found is None else found.deduplication
        if deduplication is None:
            deduplication = self.cluster.flag("brokerDeduplicationEnabled")
        own = self.settings
        return InForce(  # retention and quotas are the cluster's
            Retention(),
            0,
            Quota(),
            Quota(),
            deduplication,
            own.max_producers_per_topic,
            own.max_consumers_per_topic,
            own.max_consumers_per_subscription,
            own.max_subscriptions_per_topic,
        )
