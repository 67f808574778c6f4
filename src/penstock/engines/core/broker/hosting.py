"""What the subscriptions that run in this process ask of the broker."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply
from penstock.engines.core.topic.served import ServedTopic
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.engines.subscription.receiver import Receiver
from penstock.engines.subscription.selection import Keys
from penstock.model.policy import SubscriptionType
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

T = TypeVar("T", bound=ServedTopic)
S = TypeVar("S", bound=Subscription)


class Replies(Protocol):
    """The destination of replies to requests (PIP-371)."""

    async def reply(self, source: Subscription, consumer: Receiver | None, reply: Reply) -> Outcome:
        """As `subscription.Host.reply`."""

    def reply_all(
        self, source: Subscription, consumer: Receiver | None, replies: Sequence[Reply]
    ) -> Sequence[Reply]:
        """As `subscription.Host.reply_all`."""


class Means(NamedTuple):
    """What all subscriptions use."""

    keys: Keys
    flusher: CursorFlusher
    bury: Callable[..., Coroutine[Any, Any, None]]  # publishes a dead letter
    replies: Replies
    failures: Failures
    tasks: Tasks


class Host(Generic[T, S]):
    """`subscription.Host`: what the subscriptions of one topic ask of it and of its broker."""

    def __init__(
        self, topic: T, means: Means, moved: Callable[[T, S], None], removed: Callable[[T, S], None]
    ) -> None:
        self._topic = topic
        self._dirty = means.flusher.dirty
        self._moved = moved
        self._removed = removed
        self.failures = means.failures
        self.bury = means.bury
        self.reply = means.replies.reply
        self.reply_all = means.replies.reply_all

    def check(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        self._topic.check_consumer(subscription, wanted)

    def moved(self, subscription: S) -> None:
        self._dirty(subscription)
        self._moved(self._topic, subscription)

    def rewound(self) -> None:
        self._topic.rewound()

    def removed(self, subscription: S) -> None:
        self._removed(self._topic, subscription)
