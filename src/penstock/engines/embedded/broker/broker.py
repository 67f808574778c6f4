"""The broker: what the endpoints see. Everything runs on one event loop."""

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from penstock.engines.embedded.log.offsets import OffsetSet
from penstock.engines.embedded.ports import Clock, EntryFormat, Store
from penstock.engines.embedded.ports.storage_health import StorageHealth
from penstock.engines.embedded.registry.namespaces import Namespaces, TopicDocument
from penstock.engines.embedded.registry.policies import Policies
from penstock.engines.embedded.registry.schemas import Schemas
from penstock.engines.embedded.runtime.tasks import Tasks
from penstock.engines.embedded.settings import BrokerSettings
from penstock.engines.embedded.subscription import Budget, Consumer, Subscription
from penstock.engines.embedded.subscription.cursors import CursorFlusher
from penstock.engines.embedded.topic.access import Access, Epochs
from penstock.engines.embedded.topic.producer import Producer
from penstock.engines.embedded.topic.requests import Requests
from penstock.engines.embedded.topic.topic import Topic, TopicParts
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import ConsumerOptions, ProducerOptions, SubscriptionType

from .compactions import Compactions
from .consumers import Consumers
from .dead_letters import DeadLetters
from .producers import Producers
from .retention_task import RetentionTask
from .staging import Staging
from .subscriptions import Subscriptions
from .topics import Topics
from .watches import Watches

UNLOADED_KEEP_MS: Final = 60_000  # how long the subscription of a reader waits for it after `unload_topic`


class Broker:
    """Topics, producers, subscriptions and schemas over one store.

    `store` keeps persistent topics, `transient` the others; their ledgers must not overlap.
    """

    def __init__(
        self,
        store: Store,
        transient: Store,
        encoder: EntryFormat,
        clock: Clock,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.settings = settings or BrokerSettings()
        self.clock = clock
        self.encoder = encoder
        self.store = store
        self.storage = StorageHealth.of(store)
        self.tasks = Tasks()
        self.namespaces = Namespaces(store, auto_create=self.settings.auto_create_namespaces)
        self.policies = Policies(store, self.namespaces, self.settings)
        self.schemas = Schemas(store, self.namespaces, clock, self.settings.max_schema_bytes)
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
        self._dead_letters = DeadLetters(encoder, self.producer, self.schemas)
        self.requests = Requests(clock, encoder, self.settings.request_timeout_ms_max)
        self._epochs = Epochs(store)
        self.compactions = Compactions(store, encoder, self.tasks)
        self.staging = Staging(store, self.topics, clock, self.settings, self.tasks.spawn)
        self.subscriptions = Subscriptions(self.topics, self._subscription)
        self._producers = Producers(
            self.topics,
            self.schemas,
            self.requests,
            self.storage,
            encoder,
            clock,
            message_bytes_max=self.settings.max_message_bytes,
            new_name=self.new_name,
        )
        self.watches = Watches(self.tasks)
        self.topics.listeners.add(self.watches.changed)
        self._consumers = Consumers(
            self.topics, self.subscriptions, clock, self.tasks, self.watches, new_name=self.new_name
        )
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
        """Nobody waits for room any more: publishes that a quota holds are refused at once (UNAVAILABLE)."""
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

    def new_name(self, kind: str) -> str:
        """A name that nobody else has: `{kind}-{instance}-{number}`."""
        self._names += 1
        return f"{kind}-{self._instance}-{self._names}"

    # -- producing

    async def producer(
        self,
        name: TopicName,
        options: ProducerOptions | None = None,
        *,
        queued: Callable[[Producer], None] | None = None,
    ) -> Producer:
        """A producer for a topic or one of its partitions; creates the topic as configured.

        `queued` is called when the producer has to wait until it may have the topic alone. Raises
        PRODUCER_BUSY for a name in use (unless `shared_name`) and for too many, PRODUCER_FENCED, EXCLUSIVE_PRODUCER,
        TOPIC_NOT_FOUND, TOPIC_TERMINATED, STORAGE_FULL and STORAGE_FAILED while the storage takes nothing, and the
        kinds BACKLOG_QUOTA_… while the backlog is beyond such a quota (a `shared_name`
        hears of it when it publishes).
        """
        return await self._producers.open(name, options, queued=queued)

    # -- consuming

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        """A consumer of every partition of `names`; creates topics and subscriptions that are not there.

        What is read for it counts in `budget`. Raises SUBSCRIPTION_BUSY, CONSUMER_BUSY, TOPIC_NOT_FOUND; then it is attached nowhere.
        """
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
        """A consumer of every topic of a namespace whose full name matches, also of those that come later.

        `pattern` matches `tenant/namespace/topic` wholly, with or without a domain before it; of what matches,
        `allowed` says what may be consumed, each time anew. Raises BAD_PARAMETER for what is no `Pattern`.
        """
        return await self._consumers.subscribe_pattern(
            pattern, subscription, options, namespace=namespace, domain=domain, allowed=allowed, budget=budget
        )

    async def leave(self, consumer: Consumer, *, keep_ms: int = 0) -> None:
        """Close a consumer; subscriptions that are not durable go with their last one, after `keep_ms`."""
        self._consumers.leave(consumer, keep_ms=keep_ms)

    # -- topics as a whole

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        """Delete a topic, and its schemas when `schema`; raises TOPIC_NOT_FOUND, TOPIC_IN_USE."""
        await self.topics.delete(name, force=force)
        await self.namespaces.forget_topic(name)
        if schema:
            await self.schemas.forget(name)

    async def unload_topic(self, name: TopicName) -> None:
        """Disconnect who publishes and consumes, once every cursor is saved: clients come back by themselves.

        Raises TOPIC_NOT_FOUND. A subscription that is not durable waits for its reader.
        """
        why = PenstockError(ErrorKind.UNAVAILABLE, f"{name} was unloaded: connect again")
        for topic in await self.topics.all_of(name, create=False):
            for subscription in list(topic.subscriptions.values()):
                await subscription.flush()
                for consumer in list(subscription.consumers):
                    consumer.close(why)
                if not subscription.durable:
                    self.clock.call_later(UNLOADED_KEEP_MS, subscription.drop_unused)
            for producer in list(topic.producers.values()):
                producer.close(why)

    async def truncate_topic(self, name: TopicName) -> None:
        """Let go of every message, acknowledged or not; raises TOPIC_NOT_FOUND."""
        for topic in await self.topics.all_of(name, create=False):
            end = topic.next_offset
            for subscription in list(topic.subscriptions.values()):
                subscription.skip(end)
                await subscription.flush()
            await topic.trim(await topic.entry_at(end))
            topic.backlog.forget()

    async def delete_tenant(self, tenant: str, *, force: bool = False) -> None:
        """Delete a tenant; raises NOT_FOUND, NAMESPACE_IN_USE while it has namespaces, unless `force`."""
        if force:
            for namespace in self.namespaces.of_tenant(tenant):
                await self.delete_namespace(namespace, force=True)
        await self.namespaces.delete_tenant(tenant)

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Delete a namespace; raises NAMESPACE_IN_USE while it has topics, unless `force`."""
        self.namespaces.policies(name)
        topics = self.topics.names(name)
        if topics and not force:
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"namespace {name} still has topics")
        for topic in topics:
            await self.delete_topic(topic, force=True, schema=True)
        await self.namespaces.delete(name)

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
            encoder=self.encoder,
            tasks=self.tasks,
            cursors=topic.store,
            compaction=topic.compaction,
            host=_Host(topic, self._flusher, self.retention, self._dead_letters, self.requests),
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
        requests: Requests,
    ) -> None:
        self._topic = topic
        self._flusher = flusher
        self._retention = retention
        self.bury = dead_letters.bury
        self.reply = requests.reply

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
