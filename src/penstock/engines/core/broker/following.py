"""Consumers of topics that come later, or grow: those that named them, and those of a pattern."""

from collections.abc import Callable, Sequence

from penstock.broker.delivery import Budget
from penstock.broker.watches import WatchTopics
from penstock.engines.core.topic.topic import Topic
from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.later_topics import LaterTopics
from penstock.model.names import NamespaceName, TopicName
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .consumers import Consumers
from .subscriptions import RunningSubscriptions
from .topics import Topics


class FollowingConsumers(Consumers[Topic, Subscription]):
    """`Consumers` that join the topics and partitions that come later."""

    def __init__(
        self,
        topics: Topics,
        subscriptions: RunningSubscriptions[Topic, Subscription],
        clock: Clock,
        tasks: Tasks,
        watch: WatchTopics,
        new_name: Callable[[str], str],
    ) -> None:
        super().__init__(topics.all_of, subscriptions, clock, new_name)
        self._topics = topics
        self._later = LaterTopics(topics, watch, tasks, self._join)
        topics.listeners.add(self._topic_changed)

    def _check(self, options: ConsumerOptions) -> None:
        """Raise TOPIC_NOT_FOUND for dead letters that would find no namespace."""
        if options.dead_letter is not None and options.dead_letter.topic:
            target = TopicName.parse(options.dead_letter.topic)
            if not self._topics.has_namespace(target):
                raise self._topics.missing(target)

    def _subscribed(self, consumer: Consumer, names: Sequence[TopicName]) -> None:
        if any(self._topics.exists(name) and self._topics.partitions(name) for name in names):
            self._later.add(consumer, names)  # partitions may be added

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

    async def _join(self, consumer: Consumer, name: TopicName) -> None:
        ledgers = {s.topic.ledger for s in consumer.attached}
        for topic in await self._topics.all_of(name, create=False):
            if topic.ledger not in ledgers and not consumer.closed:
                await self.join(consumer, topic)

    def _left(self, consumer: Consumer, attached: Sequence[Subscription], keep_ms: int) -> None:
        self._later.forget(consumer)
        super()._left(consumer, attached, keep_ms)
