"""The broker before an Apache Kafka cluster: what the endpoints see. Everything runs on one event loop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.capability import Capability
from penstock.broker.consumer import Consumer as AnyConsumer
from penstock.broker.delivery import Budget
from penstock.broker.namespaces import TenantInfo
from penstock.broker.producer import Item
from penstock.broker.producer import Producer as AnyProducer
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.staging import Published
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topic import Topic
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.consumers import AttachedConsumers
from penstock.engines.core.broker.hosting import Means
from penstock.engines.core.broker.topic_subscriptions import TopicSubscriptions
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.registry import namespaces as namespaces_module
from penstock.engines.registry import policies as policies_module
from penstock.engines.registry import schemas as schemas_module
from penstock.engines.shared.catalog import OPENING_MAX
from penstock.engines.shared.dead_letters import DeadLetters, KeptProducers
from penstock.engines.shared.new_names import NewNames
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import Requests
from penstock.engines.shared.watches import Watches
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import (
    ConsumerOptions,
    NamespacePolicies,
    ProducerOptions,
    TopicPolicies,
)
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks, each
from penstock.wire import entry as wire

from .administration import KafkaAdministration
from .cluster import KafkaCluster
from .documents import PROPERTIES, Documents, KafkaProcessDocuments
from .driver.fetcher import Fetcher
from .driver.producer import RecordProducer
from .groups import KafkaGroupMembers
from .internal import internal_topics
from .journals import KafkaJournals
from .naming import Naming
from .policies import KafkaNamespaces, KafkaPolicies, RetentionTimes
from .producer import Producer
from .publishing import Publishing
from .replies import ReplyPartitions, SentReplies
from .schema_registry.formats import FramedSchemas, KafkaRecordFormats
from .schema_registry.own import OwnRegistrySchemas
from .schema_registry.records import KafkaRegistryRecords
from .schema_registry.schemas import RegistrySchemas
from .serving.owned import DeliveredSchemas
from .serving.serving import Serving
from .staging.writers import open_staging
from .topics import KafkaTopics
from .view import KafkaView

log = logging.getLogger(__name__)

SWEEP_S: Final = 1.0
PRODUCERS_MAX: Final = 1024  # kept for dead letters and entries of other processes; they share a connection
LEAVE_S: Final = 6.0  # for the cluster to answer when the server stops: for last commits, and leaving groups
AGAIN_S: Final = 1.0  # then a task that waits for something as it ends is cancelled again
LIST_S: Final = 10.0  # poll interval for created, deleted and grown topics


class KafkaBroker:
    """`broker.Broker`. Records and committed offsets are Kafka's; this process has its clients."""

    capabilities = frozenset(
        (Capability.ENTRIES, Capability.OFFSETS, Capability.BYTE_POSITIONS, Capability.STAGED_PUBLISH)
    )

    own_documents = None

    def __init__(
        self,
        settings: ClusterSettings,
        own: BrokerSettings,
        clock: Clock,
        fleet: ProcessFleet | None = None,
    ) -> None:
        """`fleet` knows the other processes of the service; None: they are not reached."""
        if own.deduplication:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, "broker.deduplication: the engine before Kafka has no deduplication"
            )
        self.kafka = KafkaCluster(settings)
        self.settings = own
        self.partitioner = Partitioner(settings.partitioner)
        self.clock = clock
        self.tasks = Tasks()
        self.storage = StorageHealth()
        self.failures = Failures(clock)
        self.requests = Requests(clock, own.request_timeout_ms_max, correlated=True)
        self._watches = Watches(self.tasks)
        self.watch = self._watches.add
        hidden = () if settings.schema_registry else (settings.schemas_topic,)
        self.naming = Naming(settings.namespaces, internal_topics(settings), hidden)
        self.documents = Documents(
            self.kafka,
            settings.documents_topic,
            once=(schemas_module.KIND,),
            failures=self.failures,
            fields={
                namespaces_module.KIND: NamespacePolicies.__struct_fields__,
                namespaces_module.TENANT: TenantInfo.__struct_fields__,
                policies_module.KIND: TopicPolicies.__struct_fields__,
            },
        )
        self.processes = KafkaProcessDocuments(self.documents)
        reader = self.documents.reader
        self.namespaces = KafkaNamespaces(
            self.documents,
            self.naming,
            auto_create=own.auto_create_namespaces,
            reader=reader,
        )
        self.policies = KafkaPolicies(self.documents, self.namespaces, own, reader=reader)
        self.registry_records: KafkaRegistryRecords | None = None
        self.other_registry: RegistrySchemas | None = None
        framed: FramedSchemas
        parts = (self.documents, self.namespaces, self.naming, clock, own.max_schema_bytes)
        if settings.schema_registry:
            framed = self.other_registry = RegistrySchemas(settings, *parts, self.tasks, self.failures)
        else:
            self.registry_records = KafkaRegistryRecords(
                self.kafka, self.documents, self.tasks, self.failures
            )
            framed = OwnRegistrySchemas(settings, *parts, reader, self.registry_records)
        self.schemas = framed
        self.record_formats = KafkaRecordFormats(self.naming, framed)
        self._fetcher = Fetcher(self.kafka.clients, self.kafka.admin, self.kafka.tasks, own.tail_bytes)
        self.topics = KafkaTopics(
            self.kafka,
            self.naming,
            self.namespaces,
            self.documents,
            self._fetcher,
            clock,
            own,
            self.policies,
            framed,
        )
        self._records = RecordProducer(
            self.kafka.clients,
            compression=settings.compression,
            message_bytes_max=own.max_message_bytes,
        )
        journals = KafkaJournals(self.kafka, self.naming, self._fetcher, self._records, clock)
        self.open_journal = journals.open
        self._reply_partitions = ReplyPartitions(
            self.kafka, self._fetcher, self._records, self.requests, self.tasks
        )
        self._replies = Replies(self._reply_partitions, clock, self.requests, self._reply_partitions)
        self._publishing = Publishing(
            self._records,
            self.schemas,
            self._replies,
            framed,
            RetentionTimes(self.kafka.admin.configs, clock, settings.learned_ms),
            self.topics,
            bytes_max=own.max_message_bytes,
            partitioner=self.partitioner,
        )
        self.staging = open_staging(
            self.kafka, own, self._publishing, self._fetcher, self.topics, clock, self.tasks
        )
        self.new_name = NewNames()
        self._flusher = CursorFlusher(clock, own.cursor_flush_ms, self.tasks.spawn)
        self._kept_producers = KeptProducers(self.producer, PRODUCERS_MAX)
        letters = DeadLetters(wire.decode, self._kept_producers.lend, self.schemas)
        replies = SentReplies(self._replies)
        means = Means(wire.keys, self._flusher, letters.bury, replies, self.failures, self.tasks)
        self.cluster = self._serving = Serving(
            self.kafka,
            self.topics,
            clock,
            self.tasks,
            means,
            fleet=fleet,
            new_name=self.new_name,
        )
        self.subscriptions = TopicSubscriptions(self.topics, self._serving.service)
        self.administration = KafkaAdministration(
            self.kafka, self.topics, self.namespaces, self.policies, self.schemas, self._serving
        )
        self.topics.learners.append(self._serving.service.learn)
        self.group_positions = self.topics.group_positions
        self.cluster_view = KafkaView(self.kafka, self.naming)
        self.groups = KafkaGroupMembers(self.kafka, self.topics, self.watch)
        self._attached = AttachedConsumers(
            self.topics,
            DeliveredSchemas(self.schemas, self.documents.catch_up),
            clock,
            self.tasks,
            letters.bury,
            self.failures,
            new_name=self.new_name,
            give_reply=self._replies.reply,
            leave_s=lambda: LEAVE_S if self._stopping else None,
        )
        self._stopping = False
        self.subscribe_pattern = partial(
            self._attached.subscribe_pattern,
            self._serving.service,
            domain="persistent",
            allowed=lambda name: True,
        )
        self.policies.on_change(self.topics.apply)
        self.topics.listeners.add(self._watches.changed)
        self.topics.listeners.add(self._topic_changed)

    async def start(self) -> None:
        """Reach the cluster, and read stored documents; raises UNAVAILABLE."""
        try:
            await self.kafka.start()
            await self.documents.start()
            self._listen()
            await self.namespaces.load()
            await self.policies.load()
            self.policies.learn_defaults(await self.documents.configs())
            await self.schemas.load()
            self._name_topics()
            await self.topics.load()
            await self._reply_partitions.start()
            await self._serving.start()
        except BaseException:
            await self._disconnect()
            raise
        self.tasks.spawn(self._sweep(), "close unused objects")
        self.tasks.spawn(self._list(), "look for topics")

    def _listen(self) -> None:
        """Learn of changes of documents, before they are loaded: one that comes between would be missed."""
        listeners = self.documents.listeners
        listeners[namespaces_module.KIND].append(self.namespaces.learned)
        listeners[namespaces_module.TENANT].append(self.namespaces.learned_tenant)
        listeners[policies_module.KIND].append(self.policies.learned)
        listeners[schemas_module.KIND].append(self.schemas.learned)
        listeners[PROPERTIES].append(self.topics.properties.learned)
        self.namespaces.listeners.append(self._name_topics)

    def drain(self) -> None:
        """Nothing is held here."""

    async def close(self) -> None:
        """Leave every topic; unacknowledged messages are redelivered, here or by another process.

        A cluster that does not answer is waited for LEAVE_S at most, twice: threads that still wait for it hold up nothing.
        """
        self.requests.close()
        for topic in self.topics.open_topics:
            for producer in list(topic.producers.values()):
                producer.close()
        self._stopping = True
        await self._soon(self._leave_consumers(), self.groups.close())
        self._flusher.close()
        await self._soon(self._serving.close(), self._replies.close(), self._records.close())
        self.topics.close()
        self._kept_producers.close()
        await self.tasks.close(AGAIN_S)
        await self._disconnect()

    async def _leave_consumers(self) -> None:
        """Close the consumers of this process; those of others go to the next owners of their partitions."""
        consumers = {
            consumer
            for topic in self.topics.open_topics
            for subscription in topic.subscriptions.values()
            for consumer in subscription.consumers
        }
        await asyncio.gather(*(one.leave() for one in consumers if isinstance(one, Consumer)))

    async def _disconnect(self) -> None:
        await self._soon(self._serving.close())  # if the start failed
        parts = [self.staging.close(), self._records.close(), self.documents.close(), self._fetcher.close()]
        if self.other_registry is not None:
            parts.append(self.other_registry.close())
        if self.registry_records is not None:
            parts.append(self.registry_records.close())
        await self._soon(*parts, self.kafka.close())
        await self.tasks.close(AGAIN_S)

    async def _soon(self, *parts: Coroutine[Any, Any, None]) -> None:
        """Have parts end side by side, as far as that is done soon."""
        await asyncio.wait([self.tasks.spawn(one, "leave") for one in parts], timeout=LEAVE_S)

    # -- clients

    async def producer(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[AnyProducer], None] | None = None,
    ) -> AnyProducer:
        options = options or ProducerOptions()
        topics = await self.topics.all_of(name)
        for topic in topics:
            topic.check_open()
        own_name = options.name or self.new_name("producer")
        producer = Producer(name, topics, options, self._publishing, own_name)
        producer.attach()
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
        await each(self.topics.look_again, names, OPENING_MAX)
        if options.forwarded or await self._is_direct(names, options):
            return await self._serving.local.subscribe(
                names, subscription, options, unique_name=unique_name, budget=budget
            )
        return await self._attached.subscribe(
            self._serving.service, names, subscription, options, unique_name=unique_name, budget=budget
        )

    async def _is_direct(self, names: Sequence[TopicName], options: ConsumerOptions) -> bool:
        """Whether a client that looks its topic up again itself is served by this process without a link."""
        if not options.redirected or len(names) != 1:
            return False
        topics = await self.topics.all_of(names[0])
        return len(topics) == 1 and (not options.durable or self._serving.served.owns(topics[0]))

    async def append_entries(
        self, topic: Topic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> Published:
        """As `Broker.append_entries`, but not all or none: entries stored before an error stay."""
        if deduplicate:
            raise PenstockError(
                ErrorKind.NOT_SUPPORTED, "Kafka does not tell repeats: it has no deduplication"
            )
        async with self._kept_producers.lend(topic.name) as producer:
            results = await producer.publish_entries([Item(entry) for entry in entries])
        for result in results:
            if isinstance(result, PenstockError):
                raise result
        return Published(first=next((one for one in results if isinstance(one, MessageId)), None))

    # -- notices between the parts

    def _topic_changed(self, name: TopicName) -> None:
        if self.topics.document(name) is not None and any(one.producers for one in self.topics.open_of(name)):
            self.tasks.spawn(self._grow(name), f"publish to all partitions of {name}")

    async def _grow(self, name: TopicName) -> None:
        """Let the producers of a topic know its new partitions."""
        topics = await self.topics.all_of(name, create=False) if self.topics.partitions(name) else ()
        for producer in list(topics[0].producers.values()) if topics else ():
            if isinstance(producer, Producer):
                producer.grow(topics)

    def _name_topics(self) -> None:
        """Other namespaces may have other topics."""
        self.naming.know(self.namespaces.all())
        self.topics.forget_names()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            await self.topics.sweep()
            self._serving.served.sweep(self.topics.open_topics)

    async def _list(self) -> None:
        while True:
            await asyncio.sleep(LIST_S)
            looks = [self.topics.list_all]
            if self.registry_records is not None:
                looks.append(self.registry_records.look)
            for look in looks:
                try:
                    await look()
                except PenstockError as error:
                    log.debug("what is new cannot be listed: %s", error.message)
