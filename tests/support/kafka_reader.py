"""What a Kafka cluster has, read with Kafka's own client."""

from collections import Counter
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.engines.kafka.cursors import cursor_of
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.kafka.naming import ledger_of

from .cluster_load import Place
from .waiting import until

ASK_S: Final = 60.0


class KafkaReader:
    """`cluster_load.Reader`: topics of `public/default`, by their own names."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def messages(self, path: str) -> list[tuple[str, Place]]:
        topic = path.rpartition("/")[2]
        described = self._admin.describe_topics(TopicCollection([topic]))[topic].result(ASK_S)
        settings = {"bootstrap.servers": self._bootstrap, "group.id": "nobody", "log_level": 0}
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition(topic, one.id, 0) for one in described.partitions])
            found: list[Any] = []
            ends = 0
            while ends < len(described.partitions):
                message = consumer.poll(ASK_S)
                assert message is not None, f"{path} cannot be read"
                if message.error() is None:
                    found.append(message)
                else:  # the end of a partition
                    ends += 1
        finally:
            consumer.close()
        topic_id = str(described.topic_id)
        return [
            (one.value().decode(), (ledger_of(topic_id, one.partition()), one.offset(), -1)) for one in found
        ]

    def left(self, path: str, subscription: str, sure: Counter[str]) -> Counter[str]:
        messages = self.messages(path)
        places = sorted({at[0] for _, at in messages})
        committed = self.committed(path, subscription)
        done = {place: committed[partition] for partition, place in enumerate(places)}
        return Counter(value for value, at in messages if not _acknowledged(done[at[0]], at[1]))

    def committed(self, path: str, subscription: str) -> dict[int, Committed]:
        """What the group of a subscription has committed, by partition."""
        topic = path.rpartition("/")[2]
        asked = [ConsumerGroupTopicPartitions(subscription)]
        found = self._admin.list_consumer_group_offsets(asked)[subscription].result(ASK_S)
        return {
            one.partition: Committed(one.offset, one.metadata or "")
            for one in found.topic_partitions
            if one.topic == topic
        }

    def lag(self, path: str, subscription: str) -> int:
        """How many messages a subscription has not acknowledged."""
        return self.left(path, subscription, Counter()).total()

    def members(self, group: str) -> int:
        """How many processes are in a group."""
        found = self._admin.describe_consumer_groups([group])[group].result(ASK_S)
        return len(found.members)

    def without_members(self, group: str) -> None:
        """Wait until nobody is in a group."""
        until(lambda: self.members(group) == 0)


def _acknowledged(committed: Committed, offset: int) -> bool:
    cursor = cursor_of(committed)
    assert cursor is not None
    return offset < cursor.mark or any(first <= offset <= last for first, last in cursor.ranges)
