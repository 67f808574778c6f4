"""The consumers of the subscriptions that run in this process."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic

from penstock.broker.delivery import Budget
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.later_topics import drop_unused
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName, check_subscription
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock

from .hosting import S, T
from .subscriptions import RunningSubscriptions


class Consumers(Generic[T, S]):
    """Attaches consumers. `logs_of` opens the logs of a topic, and `new_name` makes a name for consumers that bring none."""

    kind: type[Consumer] = Consumer

    def __init__(
        self,
        logs_of: Callable[[TopicName], Awaitable[Sequence[T]]],
        subscriptions: RunningSubscriptions[T, S],
        clock: Clock,
        new_name: Callable[[str], str],
    ) -> None:
        self._logs_of = logs_of
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
    ) -> Consumer:
        """As `Broker.subscribe`. Raises why this process does not run the subscription of one of the topics."""
        check_subscription(subscription)
        self._check(options)
        called = options.name or self._new_name("consumer")
        consumer = self.kind(called, subscription, options, budget, self._clock.now_ms(), left=self._left)
        try:
            for name in names:
                await self._attach_all(consumer, await self._logs_of(name), unique_name=unique_name)
        except BaseException:
            await consumer.leave()
            raise
        self._subscribed(consumer, names)
        return consumer

    def _check(self, options: ConsumerOptions) -> None:
        """Raise why there can be no such consumer."""

    def _subscribed(self, consumer: Consumer, names: Sequence[TopicName]) -> None:
        """A consumer is attached to all that there is of these topics."""

    async def _attach_all(self, consumer: Consumer, topics: Sequence[T], *, unique_name: bool) -> None:
        options, name = consumer.options, consumer.subscription
        found = [await self._find(topic, consumer) for topic in topics]
        # A partition without a subscription that the others have came later: none of it was seen.
        known = any(one is not None for one in found)
        if options.durable and not known and not topics[0].policies.auto_subscriptions:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_NOT_FOUND,
                f"{topics[0].name} has no subscription {name}, and autoSubscriptionCreation is off",
            )
        # An id says nothing of the other partitions: they begin with what there is.
        named = {topic.ledger for topic in topics} & {options.start.ledger}
        for topic, source in zip(topics, found, strict=True):
            from_start = known or (bool(named) and topic.ledger not in named)
            if source is None or source.deleted:  # since the request began
                source = await self._make(topic, consumer, from_start=from_start)
            self._attach(consumer, topic, source, unique_name=unique_name)

    async def join(self, consumer: Consumer, topic: T) -> None:
        """Attach a consumer to a log that came later: from its beginning, so that no message is missed."""
        source = await self._find(topic, consumer) or await self._make(topic, consumer, from_start=True)
        self._attach(consumer, topic, source)

    def _is_durable(self, topic: T, consumer: Consumer) -> bool:
        return consumer.options.durable and topic.name.persistent

    async def _find(self, topic: T, consumer: Consumer) -> Subscription | None:
        if self._is_durable(topic, consumer):
            return await self._subscriptions.find(topic, consumer.subscription)
        found = topic.served.get(consumer.subscription)
        return None if found is None or found.durable else found

    async def _make(self, topic: T, consumer: Consumer, *, from_start: bool) -> Subscription:
        options, name = consumer.options, consumer.subscription
        topic.check_type(options.type)
        await topic.refresh()
        mark = topic.first_offset
        if not from_start:
            mark = await topic.offset_after(options.start, inclusive=options.start_inclusive)
        given = options.subscription_properties
        if not self._is_durable(topic, consumer):
            return self._subscriptions.transient(topic, name, mark, given)
        made, _ = await self._subscriptions.create(topic, name, mark, given)
        return made

    def _attach(
        self, consumer: Consumer, topic: T, source: Subscription, *, unique_name: bool = False
    ) -> None:
        # While the subscription was made the consumer may have gone, the topic too, or another call may have attached the consumer.
        try:
            topic.check_there()
            if not consumer.closed and consumer not in source.consumers:
                source.add(consumer, unique_name=unique_name)
        finally:
            # One that never had a consumer is ended by none that leaves.
            if not source.durable and source.type is None:
                source.drop_unused()

    def _left(self, consumer: Consumer, attached: Sequence[Subscription], keep_ms: int) -> None:
        drop_unused(attached, keep_ms, self._clock.call_later)
