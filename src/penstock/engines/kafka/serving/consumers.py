"""Consumers of the subscriptions that this process serves: each of one topic or partition."""

from collections.abc import Callable, Sequence

from penstock.broker.delivery import Budget
from penstock.engines.attached.link import Moved
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.later_topics import drop_unused
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_subscription
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock

from .subscription import ServedSubscription
from .subscriptions import ServedSubscriptions


class ServedConsumer(Consumer):
    """`broker.Consumer`. It is closed when the subscription gets another owner."""

    async def flush(self) -> None:
        """As `Consumer.flush`. Raises `Moved` if it is closed: nothing is known of what was not saved until then."""
        if self.closed:
            raise Moved(self.subscription)
        await super().flush()


class ServedConsumers:
    """What links within this process, and the links of other processes, subscribe at."""

    def __init__(
        self,
        topics: KafkaTopics,
        subscriptions: ServedSubscriptions,
        clock: Clock,
        new_name: Callable[[str], str],
    ) -> None:
        self._topics = topics
        self._subscriptions = subscriptions
        self._clock = clock
        self._new_name = new_name

    async def subscribe(
        self,
        names: Sequence[TopicName],
        subscription: str,
        options: ConsumerOptions,
        *,
        unique_name: bool = False,
        budget: Budget | None = None,
    ) -> ServedConsumer:
        """As `Broker.subscribe`, for one topic without partitions, or one partition.

        Raises `Moved` if another process owns the partition and the consumer is durable.
        """
        check_subscription(subscription)
        (name,) = names
        # Whoever asks has created it. One that was deleted does not come back because its consumers connect again.
        topic = await self._topics.get_for_process(name)
        topic.check_type(options.type)
        source = await self._source(topic, subscription, options)
        now_ms = self._clock.now_ms()
        called = options.name or self._new_name("consumer")
        consumer = ServedConsumer(called, subscription, options, budget, now_ms, left=self._left)
        source.add(consumer, unique_name=unique_name)
        return consumer

    async def _source(
        self, topic: KafkaTopic, subscription: str, options: ConsumerOptions
    ) -> ServedSubscription:
        if options.durable:
            found = await self._subscriptions.find(topic, subscription)
            if found is not None:
                return found
            if not topic.policies.auto_subscriptions:
                raise PenstockError(
                    ErrorKind.SUBSCRIPTION_NOT_FOUND,
                    f"{topic.name} has no subscription {subscription}, and autoSubscriptionCreation is off",
                )
        await topic.refresh()
        mark = await topic.offset_after(options.start, inclusive=options.start_inclusive)
        if not options.durable:
            return self._subscriptions.transient(topic, subscription, mark)
        given = options.subscription_properties
        made, _ = await self._subscriptions.create(topic, subscription, mark, given)
        return made

    def _left(self, consumer: Consumer, attached: Sequence[Subscription], keep_ms: int) -> None:
        drop_unused(attached, keep_ms, self._clock.call_later)
