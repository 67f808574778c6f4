"""The logs that the endpoint shows: those of the persistent topics of public/default."""

from penstock.engines.embedded.broker import Broker
from penstock.engines.embedded.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import DEFAULT_NAMESPACE, TopicName

from .blocks import Blocks
from .positions import LogPositions


class Logs:
    """The positions of every log that is open. Their points are small; their blocks share one bound."""

    def __init__(self, broker: Broker, blocks: Blocks | None = None) -> None:
        self._broker = broker
        self._blocks = blocks or Blocks()
        self._logs: dict[int, LogPositions] = {}
        broker.topics.watchers.append(self._watch)
        for topic in broker.topics.open_topics:
            self._watch(topic)

    def _watch(self, topic: Topic) -> None:
        """Logs that no client reads here are followed, too, as a trim would take their positions with it."""
        if not topic.name.persistent or topic.name.namespace_name != DEFAULT_NAMESPACE:
            return
        made = self._logs[topic.ledger] = LogPositions(topic, self._blocks)

        async def deleted() -> None:
            del self._logs[topic.ledger]
            await made.forget()

        topic.before_trim.append(made.before_trim)
        topic.after_delete.append(deleted)

    def names(self) -> list[TopicName]:
        """The topics, sorted."""
        return self._broker.topics.names(DEFAULT_NAMESPACE, "persistent")

    def partitions(self, name: TopicName) -> int:
        """How many partitions a topic has, one where it is not partitioned; raises TOPIC_NOT_FOUND."""
        return self._broker.topics.partitions(name) or 1

    async def get(self, name: TopicName, partition: int) -> LogPositions:
        """The log of a partition; raises TOPIC_NOT_FOUND, PARTITION_NOT_FOUND."""
        check_partition(name, partition, self.partitions(name))
        partitioned = self._broker.topics.partitions(name) > 0
        topic = await self._broker.topics.get(
            name.of_partition(partition) if partitioned else name, create=False
        )
        found = self._logs.get(topic.ledger)
        if found is None:
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"{name} was deleted")
        return found


def check_partition(name: TopicName, partition: int, count: int) -> None:
    """Raise PARTITION_NOT_FOUND unless there is such a partition."""
    if partition >= count:
        raise PenstockError(
            ErrorKind.PARTITION_NOT_FOUND, f"{name} has no partition {partition}: there are {count}"
        )
