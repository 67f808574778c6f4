"""The subscriptions of the topics that are open here: made, found and let go."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.engines.shared.replies import Replies
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.receiver import Receiver
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.policy import SubscriptionType
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

from .groups import Groups
from .subscription import GroupSubscription
from .topic import KafkaTopic

Bury = Callable[..., Coroutine[Any, Any, None]]


class _Host:
    """What the subscriptions of one topic need of it."""

    def __init__(self, topic: KafkaTopic, hosting: "Hosting") -> None:
        self._topic = topic
        self._hosting = hosting
        self.failures = hosting.failures
        self.bury = hosting.bury
        self.reply = hosting.reply
        self.reply_all = hosting.reply_all

    def check(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        check_type(self._topic, wanted)
        policies, own = self._topic.policies, len(subscription.consumers)
        _check_room(policies.max_consumers_per_subscription, own, f"subscription {subscription.name}")
        every = sum(len(one.consumers) for one in self._topic.subscriptions.values())
        _check_room(policies.max_consumers, every, f"topic {self._topic.name}")

    def moved(self, subscription: Subscription) -> None:
        self._hosting.flusher.dirty(subscription)

    def rewound(self) -> None:
        """Nothing is kept of the backlog."""

    def removed(self, subscription: Subscription) -> None:
        found = self._topic.subscriptions
        if found.get(subscription.name) is subscription:
            del found[subscription.name]
        if isinstance(subscription, GroupSubscription):
            self._hosting.groups.forget(subscription)


class Hosting:
    """Makes subscriptions. `bury` publishes a dead letter."""

    def __init__(
        self,
        groups: Groups,
        flusher: CursorFlusher,
        tasks: Tasks,
        bury: Bury,
        replies: Replies,
        failures: Failures,
    ) -> None:
        self.groups = groups
        self.flusher = flusher
        self.bury = bury
        self._replies = replies
        self.failures = failures
        self._tasks = tasks

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """As `subscription.Host.reply`."""
        source.answers.check_out(reply.request_id, consumer)
        entry = await source.topic.entry(reply.request_id.entry)
        return await self._replies.reply(entry, source.topic.name, reply)

    def reply_all(
        self, subscription: Subscription, consumer: object, replies: Sequence[Any]
    ) -> Sequence[Any]:
        """None can be given at once."""
        return replies

    def durable(
        self, topic: KafkaTopic, name: str, properties: dict[str, str] | None = None
    ) -> GroupSubscription:
        """The subscription of one log that is a consumer group; made unless it is known here."""
        found = topic.subscriptions.get(name)
        if isinstance(found, GroupSubscription):
            return found
        if found is not None:
            raise PenstockError(
                ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} has consumers that are not durable"
            )
        made = GroupSubscription(
            topic,
            name,
            keys=wire.keys,
            tasks=self._tasks,
            cursors=self.groups,
            host=_Host(topic, self),
            membership=self.groups,
            properties=properties,
        )
        topic.bound(made)
        topic.subscriptions[name] = made
        self.groups.know(made)
        return made

    def transient(self, topic: KafkaTopic, name: str, mark: int) -> Subscription:
        """A subscription that ends with its consumers: it is of no group, and stands in memory."""
        found = topic.subscriptions.get(name)
        if isinstance(found, Subscription) and not found.durable:
            return found
        if found is not None:
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} is durable")
        made = TransientSubscription(
            topic,
            name,
            cursor=OffsetSet(mark),
            durable=False,
            keys=wire.keys,
            tasks=self._tasks,
            cursors=self.groups,
            compaction=Compaction(),
            host=_Host(topic, self),
        )
        topic.bound(made)
        topic.subscriptions[name] = made
        topic.followers.add(made.wake)
        return made


class TransientSubscription(Subscription):
    """A subscription in memory; it follows its log as long as it is there."""

    topic: KafkaTopic

    def close(self) -> None:
        self.topic.followers.discard(self.wake)
        super().close()


def check_type(topic: KafkaTopic, wanted: SubscriptionType) -> None:
    """Raise BAD_PARAMETER where policies do not enable a type of subscription."""
    enabled = topic.policies.subscription_types
    if enabled and wanted not in enabled:
        names = ", ".join(one.value for one in enabled)
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"topic {topic.name} enables subscriptions of the types {names}, not {wanted.value}",
        )


def _check_room(most: int, count: int, what: str) -> None:
    if 0 < most <= count:
        raise PenstockError(ErrorKind.CONSUMER_BUSY, f"{what} has {count} consumers: no more are allowed")
