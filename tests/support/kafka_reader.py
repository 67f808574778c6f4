"""What a Kafka cluster has, read with Kafka's own client."""

import json
import subprocess
import sys
from collections import Counter
from typing import Final

from confluent_kafka import Consumer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.engines.kafka.cursors import cursor_of
from penstock.engines.kafka.driver.groups import Committed
from penstock.engines.kafka.naming import ledger_of

from .cluster_load import Place
from .waiting import until

ASK_S: Final = 60.0

# All records of a topic. A process of its own: what librdkafka does there cannot harm the tests.
READ: Final = """
import json, os, sys
from confluent_kafka import Consumer, TopicPartition
bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
consumer = Consumer({**settings, "log_level": 0, "enable.partition.eof": True})
consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
found, ends = [], 0
while ends < count:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        found.append((message.partition(), message.offset(), message.value().decode()))
    elif message is not None and message.error().code() == -191:  # the end of a partition
        ends += 1
print(json.dumps(found), flush=True)
os._exit(0)
"""


class KafkaReader:
    """`cluster_load.Reader`: topics of `public/default`, by their own names."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def messages(self, path: str) -> list[tuple[str, Place]]:
        topic = path.rpartition("/")[2]
        described = self._admin.describe_topics(TopicCollection([topic]))[topic].result(ASK_S)
        arguments = (self._bootstrap, topic, str(len(described.partitions)))
        done = subprocess.run(
            [sys.executable, "-c", READ, *arguments],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=True,
        )
        found: list[tuple[int, int, str]] = json.loads(done.stdout)
        topic_id = str(described.topic_id)
        return [(value, (ledger_of(topic_id, partition), offset, -1)) for partition, offset, value in found]

    def left(self, path: str, subscription: str, sure: Counter[str]) -> Counter[str]:
        messages = self.messages(path)
        places = sorted({at[0] for _, at in messages})
        committed = self.committed(path, subscription)
        done = {place: committed.get(partition) for partition, place in enumerate(places)}
        return Counter(value for value, at in messages if not _acknowledged(done[at[0]], at[1]))

    def committed(self, path: str, subscription: str) -> dict[int, Committed]:
        """What the group of a subscription has committed, by partition."""
        topic = path.rpartition("/")[2]
        settings = {"bootstrap.servers": self._bootstrap, "group.id": subscription, "log_level": 0}
        consumer = Consumer(
            settings
        )  # not the administrator, which librdkafka lets crash while a coordinator starts
        try:
            partitions = consumer.list_topics(topic, timeout=ASK_S).topics[topic].partitions
            found = consumer.committed([TopicPartition(topic, one) for one in partitions], timeout=ASK_S)
        finally:
            consumer.close()
        return {
            one.partition: Committed(one.offset, one.metadata or "")
            for one in found
            if one.error is None and one.offset >= 0
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


def _acknowledged(committed: Committed | None, offset: int) -> bool:
    if committed is None:
        return False
    cursor = cursor_of(committed)
    assert cursor is not None
    return offset < cursor.mark or any(first <= offset <= last for first, last in cursor.ranges)
