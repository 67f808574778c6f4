"""The broker: what the doors see. Everything runs on one event loop."""

import re
import secrets
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId
from penstock.model.names import NamespaceName, TopicName, check_local
from penstock.model.policy import ConsumerOptions, ProducerOptions, SubscriptionType

from .access import Access, Epochs
from .compaction import Compactions
from .consumer import Consumer
from .counting import check_producers, check_subscriptions
from .cursors import CursorFlusher
from .dead_letters import DeadLetters
from .keeping import Keeper
from .namespaces import Namespaces
from .offsets import OffsetSet
from .policies import Policies
from .ports import Clock, CursorChange, EntryFormat, Store
from .producer import Producer
from .requests import Requests
from .schemas import Schemas
from .settings import BrokerSettings
from .staging import Staging
from .subscription import Subscription
from .tasks import Tasks
from .topic import Topic
from .topics import Topics


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
        self.tasks = Tasks()
        self.namespaces = Namespaces(store)
        self.policies = Policies(store, self.namespaces, self.settings)
        self.schemas = Schemas(store, self.namespaces, clock, self.settings.max_schema_bytes)
        self.topics = Topics(
            store,
            transient,
            self.namespaces,
            self.settings,
            clock,
            opened=self._opened,
            appeared=self._appeared,
            logs_max=self.policies.max_topics,
        )
        self.keeper = Keeper(
            self.policies,
            self.settings,
            clock,
            self.tasks,
            names=self.topics.all_names,
            opened=lambda: self.topics.open_topics,
            open=lambda name: self.topics.all_of(name, create=False),
        )
        self._transient = transient
        self._flusher = CursorFlusher(clock, self.settings.cursor_flush_ms, self.tasks.spawn)
        self._dead_letters = DeadLetters(encoder, self.producer, self.schemas)
        self.requests = Requests(clock, encoder, self.settings.request_timeout_ms_max)
        self._epochs = Epochs(store)
        self.compactions = Compactions(store, encoder, self.tasks)
        self.staging = Staging(store, self.topics, clock, self.settings, self.tasks.spawn)
        self._growing: dict[TopicName, set[Producer]] = {}
        self._watchers: dict[Consumer, Callable[[TopicName], None]] = {}
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
        await self.staging.load()
        self.keeper.start()

    def drain(self) -> None:
        """Nobody waits for room any more: publishes that a quota holds are refused at once (UNAVAILABLE)."""
        why = PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")
        for topic in self.topics.open_topics:
            topic.backlog.end(why)

    async def close(self) -> None:
        """Disconnect everybody, save every cursor, let go of the stores."""
        self.requests.close()
        self.keeper.close()
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
        PRODUCER_BUSY for a name in use (unless `shared_name`) and for too many, PRODUCER_FENCED, TOPIC_NOT_FOUND,
        TOPIC_TERMINATED, and the kinds BACKLOG_QUOTA_… while the backlog is beyond such a quota (a `shared_name`
        hears of it when it publishes).
        """
        options = options or ProducerOptions()
        topics = await self.topics.all_of(name)
        for topic in topics:
            topic.check_open()
            if not options.shared_name:
                await topic.backlog.check()

        producer = Producer(
            options.name or self.new_name("producer"),
            topics,
            options,
            encoder=self.encoder,
            clock=self.clock,
            version_of=lambda schema: self.schemas.get_or_create(name, schema),
            deduplicate=lambda: topics[0].policies.deduplication,
            message_bytes_max=self.settings.max_message_bytes,
            detach=self._detach_producer,
            requests=self.requests,
            topic=str(name.base),
        )
        try:
            for topic in topics:
                check_producers(topic, producer)
                await topic.access.enter(producer, None if queued is None else partial(queued, producer))
                topic.check_open()
        except BaseException:
            producer.close()
            raise
        if not options.shared_name and (len(topics) > 1 or topics[0].name != name):
            self._growing.setdefault(name, set()).add(producer)
        return producer

    async def _grow(self, name: TopicName) -> None:
        """Let the producers of a partitioned topic know its new partitions."""
        topics = await self.topics.all_of(name, create=False)
        for producer in self._growing.get(name, set()):
            producer.grow(topics)
            for topic in topics:
                topic.producers.setdefault(producer.name, producer)

    def _detach_producer(self, producer: Producer) -> None:
        base = producer.topics[0].name.base
        growing = self._growing.get(base)
        if growing is not None:
            growing.discard(producer)
            if not growing:
                del self._growing[base]
        for topic in producer.topics:
            topic.access.leave(producer)

    # -- consuming

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
    ) -> Consumer:
        """A consumer of every partition of `names`; creates topics and subscriptions that are not there.

        Raises SUBSCRIPTION_BUSY, CONSUMER_BUSY, TOPIC_NOT_FOUND; then it is attached nowhere.
        """
        check_local("subscription", subscription)
        consumer = Consumer(options.name or self.new_name("consumer"), subscription, options)
        try:
            for name in names:
                topics = await self.topics.all_of(name)
                # A partition without a subscription that the others have came later: none of it was seen.
                known = any(subscription in topic.subscriptions for topic in topics)
                # An id says nothing of the other partitions: they begin with what there is.
                named = {topic.ledger for topic in topics} & {options.start.ledger}
                for topic in topics:
                    from_start = known or (bool(named) and topic.ledger not in named)
                    await self._attach(consumer, topic, unique_name=unique_name, from_start=from_start)
        except BaseException:
            await self.leave(consumer)
            raise
        for name in names:
            if self.topics.exists(name) and self.topics.partitions(name):
                self._watch(consumer, frozenset(names).__contains__)
                break
        return consumer

    async def subscribe_pattern(
        self,
        pattern: str,
        subscription: str,
        options: ConsumerOptions,
        *,
        namespace: NamespaceName,
        domain: str = "persistent",
        allowed: Callable[[TopicName], bool] = lambda name: True,
    ) -> Consumer:
        """A consumer of every topic of a namespace whose full name matches, also of those that come later.

        `pattern` matches `tenant/namespace/topic` wholly, with or without a domain before it; of what matches,
        `allowed` says what may be consumed, each time anew. Raises BAD_PARAMETER for a pattern that is no
        regular expression.
        """
        try:
            wanted = re.compile(pattern.split("://", 1)[-1])
        except re.error as error:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid topicsPattern: {error}") from None

        def matches(name: TopicName) -> bool:
            return (
                name.domain == domain
                and name.namespace_name == namespace
                and wanted.fullmatch(f"{name.tenant}/{name.namespace}/{name.local}") is not None
                and allowed(name)
            )

        names = [n for n in self.topics.names(namespace, domain) if matches(n)]
        consumer = await self.subscribe(names, subscription, options)
        consumer.follows = True
        self._watch(consumer, matches)
        for name in self.topics.names(namespace, domain):
            if name not in names and matches(name):  # it appeared meanwhile
                await self._join(consumer, name)
        return consumer

    def _watch(self, consumer: Consumer, wanted: Callable[[TopicName], bool]) -> None:
        def appeared(name: TopicName) -> None:
            if wanted(name):
                self.tasks.spawn(self._join(consumer, name), f"join {name}")

        self._watchers[consumer] = appeared

    def _appeared(self, name: TopicName) -> None:
        if self._growing.get(name):
            self.tasks.spawn(self._grow(name), f"grow {name}")
        for consumer, appeared in list(self._watchers.items()):
            if consumer.closed:
                del self._watchers[consumer]
            else:
                appeared(name)

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        """Attach a consumer to a topic that appeared or grew: from its beginning, lest messages be missed."""
        ledgers = {s.topic.ledger for s in consumer.attached}
        for topic in await self.topics.all_of(name, create=False):
            if topic.ledger not in ledgers and not consumer.closed:
                await self._attach(consumer, topic, from_start=True)

    async def _attach(
        self, consumer: Consumer, topic: Topic, *, unique_name: bool = False, from_start: bool = False
    ) -> None:
        options = consumer.options
        subscription = topic.subscriptions.get(consumer.subscription)
        if subscription is None:
            if from_start:
                mark = topic.first_offset
            else:
                mark = await topic.offset_after(options.start, inclusive=options.start_inclusive)
            subscription = await self._create_subscription(
                topic,
                consumer.subscription,
                mark,
                durable=options.durable and topic.name.persistent,
                properties=options.subscription_properties,
            )
        # While it was made the consumer may have gone, the topic too, or another may have attached the consumer.
        topic.check_there()
        if consumer.closed or consumer in subscription.consumers:
            return
        subscription.add(consumer, unique_name=unique_name)

    async def _create_subscription(
        self,
        topic: Topic,
        name: str,
        mark: int,
        *,
        durable: bool,
        properties: dict[str, str] | None = None,
    ) -> Subscription:
        check_subscriptions(topic)
        if durable:
            kept = msgspec.json.encode(properties or {})
            await topic.store.save_cursors([CursorChange(topic.ledger, name, mark, {}, kept)])
        made = topic.subscriptions.get(name)  # somebody may have been quicker while it was stored
        if made is None:
            made = self._subscription(topic, name, OffsetSet(mark), durable=durable, properties=properties)
            topic.backlog.forget()
        return made

    def _subscription(
        self,
        topic: Topic,
        name: str,
        cursor: OffsetSet,
        *,
        durable: bool,
        properties: dict[str, str] | None = None,
    ) -> Subscription:
        made = Subscription(
            topic,
            name,
            cursor=cursor,
            durable=durable,
            encoder=self.encoder,
            tasks=self.tasks,
            dirty=self._moved,
            bury=self._dead_letters.bury,
            requests=self.requests,
            properties=properties,
        )
        topic.subscriptions[name] = made
        return made

    def _moved(self, subscription: Subscription) -> None:
        """A cursor moved: it is to be saved, and may have held what can go now."""
        self._flusher.dirty(subscription)
        self.keeper.moved(subscription)

    async def _opened(self, topic: Topic) -> None:
        topic.access = Access(topic, self._epochs)
        topic.compaction = self.compactions.of(topic)
        topic.after_delete.append(partial(self._epochs.forget, topic))
        topic.after_delete.append(partial(self.compactions.forget, topic))
        for saved in await topic.store.load_cursors(topic.ledger):
            cursor = OffsetSet.load(max(saved.mark, topic.first_offset), saved.chunks)
            properties = msgspec.json.decode(saved.properties or b"{}", type=dict[str, str])
            self._subscription(topic, saved.subscription, cursor, durable=True, properties=properties)
        topic.after_delete.append(partial(self.policies.forget, topic.name.base))
        topic.after_delete.append(partial(self.keeper.forget, topic))
        self.keeper.opened(topic)

    async def leave(self, consumer: Consumer, *, keep_ms: int = 0) -> None:
        """Close a consumer; subscriptions that are not durable go with their last one, after `keep_ms`."""
        attached = consumer.attached
        consumer.close()
        self._watchers.pop(consumer, None)
        for subscription in attached:
            if subscription.durable or subscription.consumers:
                continue
            if keep_ms:
                self.clock.call_later(keep_ms, partial(self._drop_unused, subscription))
            else:
                self._drop_unused(subscription)

    def _drop_unused(self, subscription: Subscription) -> None:
        if not subscription.consumers and not subscription.deleted:
            subscription.deleted = True
            subscription.close()
            subscription.topic.subscriptions.pop(subscription.name, None)

    # -- subscriptions as an administrator sees them

    async def subscription(self, name: TopicName, subscription: str) -> list[Subscription]:
        """The subscription on every partition of a topic; raises TOPIC_NOT_FOUND, SUBSCRIPTION_NOT_FOUND."""
        topics = await self.topics.all_of(name, create=False)
        found = [t.subscriptions[subscription] for t in topics if subscription in t.subscriptions]
        if not found:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND, f"{name} has no subscription {subscription}"
            )
        return found

    async def create_subscription(
        self,
        name: TopicName,
        subscription: str,
        start: MessageId,
        *,
        inclusive: bool = False,
        properties: dict[str, str] | None = None,
    ) -> None:
        """Create a durable subscription without a consumer; raises ALREADY_EXISTS."""
        check_local("subscription", subscription)
        topics = await self.topics.all_of(name)
        if any(subscription in topic.subscriptions for topic in topics):
            raise PenstockError(
                ErrorKind.ALREADY_EXISTS, f"subscription {subscription} already exists on {name}"
            )
        marks = [await topic.offset_after(start, inclusive=inclusive) for topic in topics]
        for topic, mark in zip(topics, marks, strict=True):
            await self._create_subscription(topic, subscription, mark, durable=True, properties=properties)

    async def set_mark(
        self, topic: Topic, subscription: str, offset: int, *, exact: bool = False
    ) -> Subscription:
        """Have a durable subscription of `topic` count everything below `offset` as acknowledged; it is made where
        it is missing. Only `exact` moves it back. Who calls flushes it.

        Raises BAD_PARAMETER past the end, and for a subscription that consumers share.
        """
        if offset > topic.next_offset:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{topic.name} ends at {topic.next_offset}, before {offset}"
            )
        offset = max(offset, topic.first_offset)
        found = topic.subscriptions.get(subscription)
        if found is None:
            return await self._create_subscription(topic, subscription, offset, durable=True)
        if found.consumers and found.type in (SubscriptionType.SHARED, SubscriptionType.KEY_SHARED):
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{subscription} is shared by consumers: none may acknowledge for all"
            )
        if exact and offset < found.cursor.mark:
            await found.move(offset)
        else:
            found.skip(offset)
        return found

    async def unsubscribe(self, name: TopicName, subscription: str, *, force: bool = False) -> None:
        """Delete a subscription; raises SUBSCRIPTION_BUSY while it has consumers, unless `force`."""
        found = await self.subscription(name, subscription)
        if not force and any(s.consumers for s in found):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {subscription} has active connected consumers"
            )
        for one in found:
            await self._delete_subscription(one)

    async def unsubscribe_consumer(self, consumer: Consumer) -> None:
        """Delete the subscription of a consumer, which must be its only one (Pulsar's unsubscribe)."""
        attached = consumer.attached
        if any(len(s.consumers) > 1 for s in attached):
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, "other consumers are connected to the subscription"
            )
        for one in attached:
            await self._delete_subscription(one)

    async def _delete_subscription(self, subscription: Subscription) -> None:
        subscription.deleted = True
        subscription.topic.subscriptions.pop(subscription.name, None)
        gone = PenstockError(
            ErrorKind.SUBSCRIPTION_NOT_FOUND, f"subscription {subscription.name} was deleted"
        )
        subscription.dissolve(gone)
        self.keeper.moved(subscription)
        if subscription.durable:
            await subscription.topic.store.delete_cursor(subscription.topic.ledger, subscription.name)

    # -- topics as a whole

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Let a partitioned topic have more partitions; raises BAD_PARAMETER, TOPIC_NOT_FOUND.

        They get the durable subscriptions of those before, which miss nothing while nobody is connected.
        """
        await self.topics.set_partitions(name, partitions)
        topics = await self.topics.all_of(name, create=False)
        kept = {s.name: s for topic in topics for s in topic.subscriptions.values() if s.durable}
        for topic in topics:
            for one in kept.values():
                if one.name not in topic.subscriptions:
                    await self._create_subscription(
                        topic, one.name, topic.first_offset, durable=True, properties=one.properties
                    )

    async def delete_topic(self, name: TopicName, *, force: bool = False, schema: bool = False) -> None:
        """Delete a topic, and its schemas when `schema`; raises TOPIC_NOT_FOUND, TOPIC_IN_USE."""
        await self.topics.delete(name, force=force)
        await self.namespaces.forget_topic(name)
        if schema:
            await self.schemas.forget(name)

    async def delete_namespace(self, name: NamespaceName, *, force: bool = False) -> None:
        """Delete a namespace; raises NAMESPACE_IN_USE while it has topics, unless `force`."""
        self.namespaces.policies(name)
        topics = self.topics.names(name)
        if topics and not force:
            raise PenstockError(ErrorKind.NAMESPACE_IN_USE, f"namespace {name} still has topics")
        for topic in topics:
            await self.delete_topic(topic, force=True, schema=True)
        await self.namespaces.delete(name)
