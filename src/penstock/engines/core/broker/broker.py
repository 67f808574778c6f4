"""The broker: what the endpoints see. Everything runs on one event loop."""

from typing import Any

from penstock.broker.capability import Capability
from penstock.broker.settings import BrokerSettings
from penstock.broker.storage_health import StorageHealth
from penstock.engines.core.ports import Batches, Held, Store
from penstock.engines.core.topic.access import Epochs
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
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.partitioning import Partitioner
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .administration import Administration
from .compactions import Compactions
from .events import TopicEvents
from .following import FollowingConsumers
from .hosting import Means
from .producers import Producers
from .registry_records import StoredRegistryRecords
from .retention_task import RetentionTask
from .staging import open_staging
from .stored_cursors import StoredCursors
from .subscriptions import RunningSubscriptions
from .topic_subscriptions import OwnSubscriptions, TopicSubscriptions
from .topics import Topics


def _subscription(topic: Topic, name: str, held: Held | None, **parts: Any) -> Subscription:
    return Subscription(topic, name, durable=held is not None, **parts)


class Broker:
    """`broker.Broker` over one store.

    `store` keeps persistent topics, `transient` the others; their ledgers must not overlap.
    """

    capabilities = frozenset(Capability)
    partitioner = Partitioner.JAVA
    cluster = None  # it is its own
    # of a cluster
    cluster_view = group_positions = groups = open_journal = None
    other_registry = processes = record_formats = None

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
        self.store = self.own_documents = store
        self.registry_records = StoredRegistryRecords(store)
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

        producers = Producers(
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
        letters = DeadLetters(batches.decode, producers.lend, self.schemas)
        replies = Replies(self.requests, batches.decode)
        self._flusher = flusher = CursorFlusher(clock, settings.cursor_flush_ms, tasks.spawn)
        self.producer, self.append_entries = producers.open, producers.append_entries
        means = Means(batches.keys, flusher, letters.bury, replies, self.failures, tasks)
        cursors, moved = StoredCursors(), self.retention.moved
        running = RunningSubscriptions(cursors, cursors, means, _subscription, moved=moved, removed=moved)
        self.subscriptions = TopicSubscriptions(topics, OwnSubscriptions(running))
        consumers = FollowingConsumers(topics, running, clock, tasks, self.watch, self.new_name)
        self.subscribe, self.subscribe_pattern = consumers.subscribe, consumers.subscribe_pattern

        self.administration = Administration(
            topics, self.namespaces, self.schemas, self.retention, self.compactions, clock
        )
        self.staging = open_staging(store, topics, clock, settings, tasks)

        events.add(opened=cursors.load)
        events.add(opened=running.open_all)
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
        """Disconnect every client, save every cursor, release the stores."""
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

    async def _forget(self, topic: Topic) -> None:
        """Remove the data kept for a deleted topic in addition to its log."""
        await self._epochs.forget(topic.name)
        await self.compactions.forget(topic)
        await self.policies.forget(topic.name.base)
