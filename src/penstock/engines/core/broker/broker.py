"""The broker: what the endpoints see. Everything runs on one event loop."""

import secrets

from penstock.broker.capability import Capability
from penstock.broker.settings import BrokerSettings
from penstock.broker.storage_health import StorageHealth
from penstock.broker.topics import TopicDocument
from penstock.engines.core.ports import Batches, Store
from penstock.engines.core.topic.access import Access, Epochs
from penstock.engines.core.topic.replies import Replies
from penstock.engines.core.topic.topic import Topic, TopicParts
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.registry.policies import Policies
from penstock.engines.registry.schemas import Schemas
from penstock.engines.shared.dead_letters import DeadLetters
from penstock.engines.shared.documents import DocumentReader
from penstock.engines.shared.requests import Requests
from penstock.engines.shared.watches import Watches
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import SubscriptionType
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.statistics import Writes
from penstock.runtime.tasks import Tasks

from .administration import Administration
from .compactions import Compactions
from .consumers import Consumers
from .producers import Producers
from .retention_task import RetentionTask
from .staging import Staging
from .subscriptions import Subscriptions
from .topics import Topics


class Broker:
    """`broker.Broker` over one store.

    `store` keeps persistent topics, `transient` the others; their ledgers must not overlap.
    """

    capabilities = frozenset(Capability)
    partitioner = Partitioner.JAVA
    cluster = None  # it is its own
    journals = processes = None  # of a cluster

    def __init__(
        self,
        store: Store,
        transient: Store,
        batches: Batches,
        clock: Clock,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.clock = clock
        self.batches = batches
        self.store = store
        self.storage = StorageHealth.of(store)
        self.failures = Failures(clock)
        self.tasks = Tasks()
        reader = DocumentReader(self.failures)
        self.namespaces = Namespaces(store, auto_create=self.settings.auto_create_namespaces, reader=reader)
        self.policies = Policies(store, self.namespaces, self.settings, reader=reader)
        self.schemas = Schemas(store, self.namespaces, clock, self.settings.max_schema_bytes, reader=reader)
        self.topics = Topics(
            store,
            transient,
            self.namespaces,
            self.settings,
            clock,
            parts=self._parts,
            appeared=self._appeared,
            logs_max=self.policies.max_topics,
            auto=self.policies.auto_topics,
            reader=reader,
        )
        self.retention = RetentionTask(
            self.policies,
            self.settings,
            clock,
            self.tasks,
            names=self.topics.all_names,
            opened=lambda: self.topics.open_topics,
            open=lambda name: self.topics.all_of(name, create=False),
            compact=lambda topic: self.compactions.start(topic),
        )
        self._transient = transient
        self._flusher = CursorFlusher(clock, self.settings.cursor_flush_ms, self.tasks.spawn)
        self.requests = Requests(clock, self.settings.request_timeout_ms_max)
        self._replies = Replies(self.requests, batches.decode)
        self._epochs = Epochs(store, reader)
        self.compactions = Compactions(store, batches, self.tasks, reader)
        self.administration = Administration(
            self.topics, self.namespaces, self.schemas, self.retention, self.compactions, clock
        )
        self.staging = Staging(store, self.topics, clock, self.settings, self.tasks.spawn)
        self.subscriptions = Subscriptions(self.topics, self._subscription)
        self._producers = Producers(
            self.topics,
            self.schemas,
            self.requests,
            self.storage,
            batches,
            clock,
            message_bytes_max=self.settings.max_message_bytes,
            new_name=self.new_name,
        )
        self.producer = self._producers.open
        self.append_entries = self._producers.append_entries
        self._dead_letters = DeadLetters(batches.decode, self._producers.lend, self.schemas)
        self.watches = Watches(self.tasks)
        self.topics.listeners.add(self.watches.changed)
        self._consumers = Consumers(
            self.topics, self.subscriptions, clock, self.tasks, self.watches, new_name=self.new_name
        )
        self.subscribe = self._consumers.subscribe
        self.subscribe_pattern = self._consumers.subscribe_pattern
        self._events = _TopicEvents(self, self._epochs)
        self._names = 0
        self._instance = secrets.token_hex(4)

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
        await self.staging.load()
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
        self.staging.close()
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

    @property
    def writes(self) -> Writes | None:
        """What the store's writer did; None before its start, and of a store without one."""
        return getattr(self.store, "writes", None)

    def new_name(self, kind: str) -> str:
        """A name that no other client has: `{kind}-{instance}-{number}`."""
        self._names += 1
        return f"{kind}-{self._instance}-{self._names}"

    # -- what the parts tell one another

    def _parts(self, name: TopicName, document: TopicDocument | None) -> TopicParts:
        return TopicParts(
            access=Access(name, self._epochs),
            compaction=self.compactions.of(name),
            policies=self.policies.in_force(name),
            listener=self._events,
            hold_ms=self.settings.quota_hold_ms,
            terminated=document is not None and document.terminated,
            bytes_max=None if name.persistent else self.settings.transient_topic_bytes,
        )

    def _appeared(self, name: TopicName) -> None:
        if self._producers.grows_with(name):
            self.tasks.spawn(self._producers.grow(name), f"grow {name}")
        self._consumers.appeared(name)

    def _subscription(
        self, topic: Topic, name: str, cursor: OffsetSet, durable: bool, properties: dict[str, str] | None
    ) -> Subscription:
        made = Subscription(
            topic,
            name,
            cursor=cursor,
            durable=durable,
            keys=self.batches.keys,
            tasks=self.tasks,
            cursors=topic.store,
            compaction=topic.compaction,
            host=_Host(
                topic, self._flusher, self.retention, self._dead_letters, self._replies, self.failures
            ),
            properties=properties,
        )
        topic.bound(made)
        return made


class _TopicEvents:
    """What the broker's parts do when something happens to a topic."""

    def __init__(self, broker: Broker, epochs: Epochs) -> None:
        self._broker = broker
        self._epochs = epochs
        self.appended = broker.retention.appended
        self.over_quota = broker.retention.over_quota

    async def opened(self, topic: Topic) -> None:
        await self._broker.subscriptions.restore(topic)
        self._broker.retention.opened(topic)
        for observer in self._broker.topics.observers:
            observer.opened(topic)

    async def trimming(self, topic: Topic, before_entry: int) -> None:
        for observer in self._broker.topics.observers:
            await observer.trimming(topic, before_entry)

    async def deleted(self, topic: Topic) -> None:
        await self._epochs.forget(topic.name)
        await self._broker.compactions.forget(topic)
        await self._broker.policies.forget(topic.name.base)
        self._broker.retention.deleted(topic)
        for observer in self._broker.topics.observers:
            await observer.deleted(topic)


class _Host:
    """What the subscriptions of one topic ask of it and of its broker."""

    def __init__(
        self,
        topic: Topic,
        flusher: CursorFlusher,
        retention: RetentionTask,
        dead_letters: DeadLetters,
        replies: Replies,
        failures: Failures,
    ) -> None:
        self._topic = topic
        self._flusher = flusher
        self._retention = retention
        self.failures = failures
        self.bury = dead_letters.bury
        self.reply = replies.reply
        self.reply_all = replies.reply_all

    def check(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        self._topic.check_consumer(subscription, wanted)

    def moved(self, subscription: Subscription) -> None:
        self._flusher.dirty(subscription)
        self._retention.moved(self._topic, subscription)

    def rewound(self) -> None:
        self._topic.backlog.forget()

    def removed(self, subscription: Subscription) -> None:
        self._topic.subscriptions.pop(subscription.name, None)
        self._retention.moved(self._topic, subscription)
