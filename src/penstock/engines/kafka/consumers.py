"""The consumers of this process: attached to every partition of the topics that they name, also to those that come later."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.broker.delivery import Budget
from penstock.broker.watches import Watches
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.later_topics import LaterTopics, drop_unused
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import NamespaceName, TopicName, check_subscription
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .elsewhere import ShownConsumers
from .hosting import Hosting
from .subscription import GroupSubscription
from .subscriptions import KafkaSubscriptions
from .topic import KafkaTopic
from .topics import KafkaTopics


class GroupConsumer(Consumer):
    """A consumer whose subscriptions other processes may have consumers of: `delete` asks them."""

    def __init__(self, *args: Any, delete: Callable[[Consumer], Awaitable[None]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._delete = delete

    async def unsubscribe(self) -> None:
        await self._delete(self)


class Consumers:
    """Attaches consumers and lets them go. `new_name` makes a name for those that bring none."""

    def __init__(
        self,
        topics: KafkaTopics,
        hosting: Hosting,
        subscriptions: KafkaSubscriptions,
        watches: Watches,
        clock: Clock,
        tasks: Tasks,
        *,
        new_name: Callable[[str], str],
        shown: ShownConsumers,
    ) -> None:
        self._topics = topics
        self._hosting = hosting
        self._subscriptions = subscriptions
        self._clock = clock
        self._new_name = new_name
        self._shown = shown
        self._later = LaterTopics(topics, watches, tasks, self._join)
        topics.listeners.add(self._changed)

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe`."""
        check_subscription(subscription)
        called = options.name or self._new_name("consumer")
        delete = self._subscriptions.delete_of
        consumer = GroupConsumer(
            called, subscription, options, budget, self._clock.now_ms(), left=self._left, delete=delete
        )
        try:
            for name in names:
                await self._attach(consumer, await self._topics.all_of(name), unique_name=unique_name)
            await self._enter(consumer, first=True)
            if options.durable:
                await self._shown.show(called, names, subscription, options.properties)
        except BaseException:
            await consumer.leave()
            raise
        self._later.add(consumer, names)
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
        budget: Budget | None = None,
    ) -> Consumer:
        """As `Broker.subscribe_pattern`."""
        return await self._later.subscribe(
            pattern,
            namespace,
            domain,
            lambda names: self.subscribe(names, subscription, options, budget=budget),
            allowed=allowed,
            learn=lambda: self._topics.learn_names(namespace),
        )

    # -- attaching

    async def _attach(
        self,
        consumer: Consumer,
        topics: Sequence[KafkaTopic],
        *,
        unique_name: bool = False,
        later: bool = False,
    ) -> None:
        """Attach a consumer to the logs of one topic; `later`: they are read from their beginning."""
        options = consumer.options
        # An id says nothing of the other partitions: they begin with what there is.
        named = {topic.ledger for topic in topics} & {options.start.ledger}
        marks: dict[KafkaTopic, int] = {}
        for topic in topics:
            topic.check_type(options.type)
            await topic.refresh()
            start = EARLIEST if later or (named and topic.ledger not in named) else options.start
            marks[topic] = await topic.offset_after(start, inclusive=options.start_inclusive)
        fresh = options.durable and await self._subscriptions.begin(
            topics, consumer.subscription, marks, options
        )
        for topic in topics:
            if consumer.closed:
                return
            source = (
                self._hosting.durable(topic, consumer.subscription, options.subscription_properties)
                if options.durable
                else self._hosting.transient(topic, consumer.subscription, marks[topic])
            )
            if consumer not in source.consumers:
                source.add(consumer, unique_name=unique_name)
            if fresh and options.subscription_properties and topic is topics[0]:
                await source.set_properties(options.subscription_properties)

    async def _enter(self, consumer: Consumer, *, first: bool) -> None:
        """Take part in the group, and see that nobody elsewhere stands against it."""
        sources = [one for one in consumer.attached if isinstance(one, GroupSubscription)]
        if not sources:
            return
        group = self._hosting.groups.of(consumer.subscription)
        places = [one.at for one in sources]
        kind = consumer.options.type
        if first:
            await group.check_alone(places, kind)
        await group.enter(sources)
        if first:
            await group.check_alone(places, kind, joined=True)

    # -- topics that come later

    def _changed(self, name: TopicName) -> None:
        """A topic came, grew or went."""
        if self._topics.exists(name):
            self._later.appeared(name)

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        """Attach a consumer to a topic that appeared or grew: from its beginning, lest messages be missed."""
        try:
            topics = await self._topics.all_of(name, create=False)
            known = {one.topic.ledger for one in consumer.attached}
            fresh = [topic for topic in topics if topic.ledger not in known]
            if not fresh or consumer.closed:
                return
            await self._attach(consumer, fresh, later=True)
            await self._enter(consumer, first=False)
            await self._hosting.groups.of(consumer.subscription).look(fresh[0].place.topic)
        except PenstockError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise

    # -- going

    def _left(self, consumer: Consumer, attached: Sequence[Subscription], keep_ms: int) -> None:
        self._shown.hide(consumer.name, self._later.names(consumer), consumer.subscription)
        self._later.forget(consumer)
        drop_unused(attached, keep_ms, self._clock.call_later)
