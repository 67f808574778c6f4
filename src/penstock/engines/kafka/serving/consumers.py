"""Consumers of the subscriptions that this process serves: each of one topic or partition."""

from collections.abc import Callable, Sequence

from penstock.engines.attached.link import Moved
from penstock.engines.core.broker.consumers import Consumers
from penstock.engines.kafka.topic import KafkaTopic
from penstock.engines.kafka.topics import KafkaTopics
from penstock.engines.subscription import Consumer
from penstock.model.names import TopicName
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


class ServedConsumers(Consumers[KafkaTopic, ServedSubscription]):
    """What links within this process, and the links of other processes, subscribe at: with one topic without partitions, or one
    partition. `subscribe` raises `Moved` if another process owns it and the consumer is durable."""

    kind = ServedConsumer

    def __init__(
        self,
        topics: KafkaTopics,
        subscriptions: ServedSubscriptions,
        clock: Clock,
        new_name: Callable[[str], str],
    ) -> None:
        async def logs_of(name: TopicName) -> Sequence[KafkaTopic]:
            # Whoever asks has created it. One that was deleted does not come back because its consumers connect again.
            return [await topics.get_for_process(name)]

        super().__init__(logs_of, subscriptions, clock, new_name)
