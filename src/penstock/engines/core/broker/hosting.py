"""Creates the subscriptions of topics, with what they need of the broker."""

from penstock.engines.core.topic.replies import Replies
from penstock.engines.core.topic.topic import Topic
from penstock.engines.shared.dead_letters import DeadLetters
from penstock.engines.subscription import Subscription
from penstock.engines.subscription.cursors import CursorFlusher
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.selection import Keys
from penstock.model.policy import SubscriptionType
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .retention_task import RetentionTask


class Hosting:
    """Builds subscriptions, which all ask the same parts of the broker."""

    def __init__(
        self,
        keys: Keys,
        flusher: CursorFlusher,
        retention: RetentionTask,
        dead_letters: DeadLetters,
        replies: Replies,
        failures: Failures,
        tasks: Tasks,
    ) -> None:
        self._keys = keys
        self._tasks = tasks
        self._parts = flusher, retention, dead_letters, replies, failures

    def build(
        self, topic: Topic, name: str, cursor: OffsetSet, durable: bool, properties: dict[str, str] | None
    ) -> Subscription:
        """A subscription of a topic, within the bounds of the topic's policies."""
        made = Subscription(
            topic,
            name,
            cursor=cursor,
            durable=durable,
            keys=self._keys,
            tasks=self._tasks,
            cursors=topic.store,
            compaction=topic.compaction,
            host=_Host(topic, *self._parts),
            properties=properties,
        )
        topic.bound(made)
        return made


class _Host:
    """What the subscriptions of one topic ask of it and of its broker."""

    def __init__(
        self,
        topic: Topic,
        flusher: CursorFlusher,
        retention: RetentionTask,
        dead_letters: DeadLetters,
        replies: Replies,
        failures: Failures,
    ) -> None:
        self._topic = topic
        self._flusher = flusher
        self._retention = retention
        self.failures = failures
        self.bury = dead_letters.bury
        self.reply = replies.reply
        self.reply_all = replies.reply_all

    def check(self, subscription: Subscription, wanted: SubscriptionType) -> None:
        self._topic.check_consumer(subscription, wanted)

    def moved(self, subscription: Subscription) -> None:
        self._flusher.dirty(subscription)
        self._retention.moved(self._topic, subscription)

    def rewound(self) -> None:
        self._topic.backlog.forget()

    def removed(self, subscription: Subscription) -> None:
        self._topic.subscriptions.pop(subscription.name, None)
        self._retention.moved(self._topic, subscription)
