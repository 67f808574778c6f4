"""The consumers of a broker: attached to the topics they name, also to those that come later."""

from collections.abc import Callable, Sequence
from functools import partial

from penstock.model.names import NamespaceName, TopicName, check_local
from penstock.model.policy import ConsumerOptions

from .consumer import Consumer
from .patterns import Pattern
from .ports import Clock
from .subscriptions import Subscriptions
from .tasks import Tasks
from .topic import Topic
from .topics import Topics


class Consumers:
    """Attaches consumers and lets them go. `new_name` makes a name for those that bring none."""

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        clock: Clock,
        tasks: Tasks,
        *,
        new_name: Callable[[str], str],
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._clock = clock
        self._tasks = tasks
        self._new_name = new_name
        self._watchers: dict[Consumer, Callable[[TopicName], None]] = {}

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
    ) -> Consumer:
        """As `Broker.subscribe`."""
        check_local("subscription", subscription)
        consumer = Consumer(options.name or self._new_name("consumer"), subscription, options)
        try:
            for name in names:
                topics = await self._topics.all_of(name)
                # A partition without a subscription that the others have came later: none of it was seen.
                known = any(subscription in topic.subscriptions for topic in topics)
                # An id says nothing of the other partitions: they begin with what there is.
                named = {topic.ledger for topic in topics} & {options.start.ledger}
                for topic in topics:
                    from_start = known or (bool(named) and topic.ledger not in named)
                    await self._attach(consumer, topic, unique_name=unique_name, from_start=from_start)
        except BaseException:
            self.leave(consumer)
            raise
        for name in names:
            if self._topics.exists(name) and self._topics.partitions(name):
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
        domain: str,
        allowed: Callable[[TopicName], bool],
    ) -> Consumer:
        """As `Broker.subscribe_pattern`."""
        wanted = Pattern(pattern.split("://", 1)[-1])

        def matches(name: TopicName) -> bool:
            return (
                name.domain == domain
                and name.namespace_name == namespace
                and wanted.fullmatch(f"{name.tenant}/{name.namespace}/{name.local}")
                and allowed(name)
            )

        names = [n for n in self._topics.names(namespace, domain) if matches(n)]
        consumer = await self.subscribe(names, subscription, options)
        consumer.follows = True
        self._watch(consumer, matches)
        for name in self._topics.names(namespace, domain):
            if name not in names and matches(name):  # it appeared meanwhile
                await self._join(consumer, name)
        return consumer

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
            subscription = await self._subscriptions.make(
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

    # -- topics that come later

    def _watch(self, consumer: Consumer, wanted: Callable[[TopicName], bool]) -> None:
        def appeared(name: TopicName) -> None:
            if wanted(name):
                self._tasks.spawn(self._join(consumer, name), f"join {name}")

        self._watchers[consumer] = appeared

    def appeared(self, name: TopicName) -> None:
        """A topic appeared or grew: whoever follows it joins."""
        for consumer, told in list(self._watchers.items()):
            if consumer.closed:
                del self._watchers[consumer]
            else:
                told(name)

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        """Attach a consumer to a topic that appeared or grew: from its beginning, lest messages be missed."""
        ledgers = {s.topic.ledger for s in consumer.attached}
        for topic in await self._topics.all_of(name, create=False):
            if topic.ledger not in ledgers and not consumer.closed:
                await self._attach(consumer, topic, from_start=True)

    # -- going

    def leave(self, consumer: Consumer, *, keep_ms: int = 0) -> None:
        """As `Broker.leave`."""
        attached = consumer.attached
        consumer.close()
        self._watchers.pop(consumer, None)
        for subscription in attached:
            if subscription.durable or subscription.consumers:
                continue
            if keep_ms:
                self._clock.call_later(keep_ms, partial(self._subscriptions.drop_unused, subscription))
            else:
                self._subscriptions.drop_unused(subscription)
