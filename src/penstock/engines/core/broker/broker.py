"""The broker: what the endpoints see. Everything runs on one event loop."""

from collections.abc import Callable, Sequence

from penstock.broker.capability import Capability
from penstock.broker.delivery import Budget
from penstock.broker.settings import BrokerSettings
from penstock.broker.staging import Published
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topic import Topic as AnyTopic
from penstock.engines.core.ports import Batches, Store
from penstock.engines.core.topic.access import Epochs
from penstock.engines.core.topic.producer import Producer
from penstock.engines.core.topic.replies import Replies
from penstock.engines.core.topic.topic import Topic
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.policies import Policies
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.dead_letters import DeadLetters
from penstock.engines.shared.documents import DocumentReader
from penstock.engines.shared.new_names import NewNames
from penstock.engines.shared.requests import Requests
from penstock.engines.shared.watches import Watches
from penstock.engines.subscription import Consumer
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import ConsumerOptions, ProducerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .administration import Administration
from .compactions import Compactions
from .consumers import Consumers
from .events import TopicEvents
from .hosting import Hosting
from .producers import Producers
from .retention_task import RetentionTask
from .staging import open_staging
from .subscriptions import Subscriptions
from .topics import Topics


class Broker:
    """`broker.Broker` over one store.

    `store` keeps persistent topics, `transient` the others; their ledgers must not overlap.
    """

    capabilities = frozenset(Capability)
    partitioner = Partitioner.JAVA
    cluster = None  # it is its own
    group_positions = open_journal = processes = record_formats = None  # of a cluster

    def __init__(
        self,
        store: Store,
        transient: Store,
        batches: Batches,
        clock: Clock,
        settings: BrokerSettings | None = None,
    ) -> None:
        """Builds the parts in order: each is given those before it, and listens to them if it has to."""
        self.settings = settings = settings or BrokerSettings()
        self.clock = clock
        self.store = store
        self._transient = transient
        self.storage = StorageHealth.of(store)
        self.failures = Failures(clock)
        self.tasks = tasks = Tasks()
        self.new_name = NewNames()
        reader = DocumentReader(self.failures)

        self.namespaces = Namespaces(store, auto_create=settings.auto_create_namespaces, reader=reader)
        self.policies = Policies(store, self.namespaces, settings, reader=reader)
        self.schemas = Schemas(store, self.namespaces, clock, settings.max_schema_bytes, reader=reader)
        self._epochs = Epochs(store, reader)
        self.compactions = Compactions(store, batches, tasks, reader)
        self.requests = Requests(clock, settings.request_timeout_ms_max)

        events = TopicEvents()
        self.topics = topics = Topics(
            store,
            transient,
            self.namespaces,
            self.policies,
            self._epochs,
            self.compactions,
            events,
            settings,
            clock,
            reader,
        )
        watches = Watches(tasks)
        self.watch = watches.add
        topics.listeners.add(watches.changed)
        self.retention = RetentionTask(self.policies, topics, self.compactions, settings, clock, tasks)

        self._producers = Producers(
            topics,
            self.schemas,
            self.requests,
            self.storage,
            batches,
            clock,
            tasks,
            message_bytes_max=settings.max_message_bytes,
            new_name=self.new_name,
        )
        letters = DeadLetters(batches.decode, self._producers.lend, self.schemas)
        replies = Replies(self.requests, batches.decode)
        self._flusher = flusher = CursorFlusher(clock, settings.cursor_flush_ms, tasks.spawn)
        hosting = Hosting(batches.keys, flusher, self.retention, letters, replies, self.failures, tasks)
        self.subscriptions = Subscriptions(topics, hosting.build)
        self._consumers = Consumers(
            topics, self.subscriptions, clock, tasks, self.watch, new_name=self.new_name
        )

        self.administration = Administration(
            topics, self.namespaces, self.schemas, self.retention, self.compactions, clock
        )
        self.staging = open_staging(store, topics, clock, settings, tasks)

        events.add(opened=self.subscriptions.restore)
        events.add(
            opened=self.retention.opened,
            appended=self.retention.appended,
            over_quota=self.retention.over_quota,
        )
        events.add(deleted=self._forget)
        events.add(deleted=self.retention.deleted)

    async def start(self) -> None:
        """Open the stores and read what there is; raises UNAVAILABLE."""
        await self.store.start()
        await self._transient.start()
        await self.namespaces.load()
        await self.schemas.load()
        await self._epochs.load()
        await self.compactions.load()
        await self.policies.load()
        await self.topics.load()
        for topic in self.topics.all_names():  # of a store that lost the document of its namespace
            await self.namespaces.ensure(topic.namespace_name)
        await self.staging.start()
        self.retention.start()

    def drain(self) -> None:
        """No publish waits for room any longer: those that a quota holds are refused at once (UNAVAILABLE)."""
        why = PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        for topic in self.topics.open_topics:
            topic.refuse_waiting(why)

    async def close(self) -> None:
        """Disconnect every client, save every cursor, let go of the stores."""
        self.requests.close()
        self.retention.close()
        await self.staging.close()
        for topic in self.topics.open_topics:
            for producer in list(topic.producers.values()):
                producer.close()
            for subscription in list(topic.subscriptions.values()):
                subscription.close()
        self._flusher.close()
        await self._flusher.flush()
        await self.tasks.close()
        await self.store.close()
        await self._transient.close()

    # -- clients

    async def producer(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[Producer], None] | None = None,
    ) -> Producer:
        return await self._producers.open(name, options, queued=queued)

    async def append_entries(
        self, topic: AnyTopic, entries: Sequence[NewEntry], *, deduplicate: bool
    ) -> Published:
        return await self._producers.append_entries(topic, entries, deduplicate=deduplicate)

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        return await self._consumers.subscribe(
            names, subscription, options, unique_name=unique_name, budget=budget
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
    ) -> Consumer:
        return await self._consumers.subscribe_pattern(
            pattern,
            subscription,
            options,
            namespace=namespace,
            domain=domain,
            allowed=allowed,
            budget=budget,
        )

    async def _forget(self, topic: Topic) -> None:
        """Remove the data kept for a deleted topic in addition to its log."""
        await self._epochs.forget(topic.name)
        await self.compactions.forget(topic)
        await self.policies.forget(topic.name.base)
