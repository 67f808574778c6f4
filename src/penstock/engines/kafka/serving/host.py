"""What the subscriptions of one topic that run in this process ask of it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.shared.replies import Replies
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import SubscriptionType
from penstock.runtime.failures import Failures

from .subscription import ServedSubscription

Bury = Callable[..., Coroutine[Any, Any, None]]


class Means(NamedTuple):
    """What all subscriptions of this process use."""

    flusher: CursorFlusher
    replies: Replies
    failures: Failures
    bury: Bury  # publishes a dead letter


class TopicHost:
    """`subscription.Host` of the subscriptions of one topic. `removed` is called with one that was deleted."""

    def __init__(self, topic: KafkaTopic, means: Means, removed: Callable[[Subscription], None]) -> None:
        self._topic = topic
        self._means = means
        self.removed = removed
        self.failures = means.failures
        self.bury = means.bury

    def check(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        self._topic.check_type(wanted)
        policies, own = self._topic.policies, len(subscription.consumers)
        _check_room(policies.max_consumers_per_subscription, own, f"subscription {subscription.name}")
        every = sum(len(one.consumers) for one in self._topic.served.values())
        _check_room(policies.max_consumers, every, f"topic {self._topic.name}")

    def moved(self, subscription: Subscription) -> None:
        assert isinstance(subscription, ServedSubscription)
        if not subscription.ended:
            self._means.flusher.dirty(subscription)

    def rewound(self) -> None:
        """The backlog is not cached."""

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        source.answers.check_out(reply.request_id, consumer)
        entry = await source.topic.entry(reply.request_id.entry)
        return await self._means.replies.reply(entry, source.topic.name, reply)

    def reply_all(
        self, subscription: Subscription, consumer: Receiver | None, replies: Sequence[Reply]
    ) -> Sequence[Reply]:
        """Each reply is looked at by `reply`: it may be for another process."""
        return replies


def _check_room(most: int, count: int, what: str) -> None:
    if 0 < most <= count:
        raise PenstockError(ErrorKind.CONSUMER_BUSY, f"{what} has {count} consumers: no more are allowed")
