"""The consumers of a broker: attached to the topics they name, also to those that come later."""

from collections.abc import Callable, Sequence

from penstock.broker.delivery import Budget
from penstock.broker.watches import WatchTopics
from penstock.engines.core.topic.topic import Topic
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.later_topics import LaterTopics, drop_unused
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_subscription
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .subscriptions import Subscriptions
from .topics import Topics


class Consumers:
    """Attaches consumers and lets them go. `new_name` makes a name for those that bring none."""

    def __init__(
        self,
        topics: Topics,
        subscriptions: Subscriptions,
        clock: Clock,
        tasks: Tasks,
        watch: WatchTopics,
        *,
        new_name: Callable[[str], str],
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._clock = clock
        self._new_name = new_name
        self._later = LaterTopics(topics, watch, tasks, self._join)
        topics.listeners.add(self._topic_changed)

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
        self._check_letters(options)
        called = options.name or self._new_name("consumer")
        consumer = Consumer(called, subscription, options, budget, self._clock.now_ms(), left=self._left)
        try:
            for name in names:
                topics = await self._topics.all_of(name)
                # A partition without a subscription that the others have came later: none of it was seen.
                known = any(subscription in topic.subscriptions for topic in topics)
                if options.durable and not known and not topics[0].policies.auto_subscriptions:
                    raise PenstockError(
                        ErrorKind.SUBSCRIPTION_NOT_FOUND,
                        f"{topics[0].name} has no subscription {subscription}, "
                        "and autoSubscriptionCreation is off",
                    )
                # An id says nothing of the other partitions: they begin with what there is.
                named = {topic.ledger for topic in topics} & {options.start.ledger}
                for topic in topics:
                    from_start = known or (bool(named) and topic.ledger not in named)
                    await self._attach(consumer, topic, unique_name=unique_name, from_start=from_start)
        except BaseException:
            await consumer.leave()
            raise
        if any(self._topics.exists(name) and self._topics.partitions(name) for name in names):
            self._later.add(consumer, names)  # partitions may be added
        return consumer

    def _check_letters(self, options: ConsumerOptions) -> None:
        """Raise TOPIC_NOT_FOUND for dead letters that would find no namespace."""
        if options.dead_letter is not None and options.dead_letter.topic:
            target = TopicName.parse(options.dead_letter.topic)
            if not self._topics.has_namespace(target):
                raise self._topics.missing(target)

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
            allowed=lambda name: allowed(name) and self._topics.exists(name),
        )

    def _topic_changed(self, name: TopicName) -> None:
        if self._topics.exists(name):
            self._later.appeared(name)

    async def _attach(
        self, consumer: Consumer, topic: Topic, *, unique_name: bool = False, from_start: bool = False
    ) -> None:
        options = consumer.options
        subscription = topic.subscriptions.get(consumer.subscription)
        if subscription is None:
            topic.check_type(options.type)
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

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        """Attach a consumer to a topic that appeared or grew: from its beginning, lest messages be missed."""
        ledgers = {s.topic.ledger for s in consumer.attached}
        for topic in await self._topics.all_of(name, create=False):
            if topic.ledger not in ledgers and not consumer.closed:
                await self._attach(consumer, topic, from_start=True)

    # -- going

    def _left(self, consumer: Consumer, attached: Sequence[Subscription], keep_ms: int) -> None:
        self._later.forget(consumer)
        drop_unused(attached, keep_ms, self._clock.call_later)
