"""What a Kafka cluster has, read with Kafka's own client: messages, and the journal of cursors."""

import json
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from typing import Any, Final

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.driver.shared_log import JournalRecord
from penstock.engines.kafka.internal import CURSORS, SLOTS_COUNT
from penstock.engines.kafka.naming import ledger_of
from penstock.engines.kafka.serving.state import JournalState
from penstock.engines.subscription.offsets import OffsetSet

from .cluster_load import Place

ASK_S: Final = 60.0

# All records of a topic: partition, offset, key, value, headers. It runs in its own process: errors of librdkafka there cannot harm
# the tests.
READ: Final = """
import json, os, sys
from base64 import b64encode
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False}
consumer = Consumer({**settings, "log_level": 0, "enable.partition.eof": True})
consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(count)])
text = lambda data: b64encode(data or b"").decode()
found, ends = [], 0
while ends < count:
    message = consumer.poll(1)
    if message is not None and message.error() is None:
        headers = [(name, text(value)) for name, value in message.headers() or ()]
        found.append((message.partition(), message.offset(), text(message.key()), text(message.value()), headers))
    elif message is not None and message.error().code() == -191:  # the end of a partition
        ends += 1
print(json.dumps(found), flush=True)
os._exit(0)
"""


class KafkaReader:
    """`cluster_load.Reader`: topics of `public/default`, by their own names. `service` is the service's topic of documents."""

    def __init__(self, bootstrap: str, service: str = ClusterSettings().documents_topic) -> None:
        self._bootstrap = bootstrap
        self._service = service
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def messages(self, path: str) -> list[tuple[str, Place]]:
        topic = path.rpartition("/")[2]
        described = self._described(topic)
        topic_id = str(described.topic_id)
        return [
            (b64decode(value).decode(), (ledger_of(topic_id, partition), offset, -1))
            for partition, offset, _, value, _ in self._records(topic, len(described.partitions))
        ]

    def left(self, path: str, subscription: str, sure: Counter[str]) -> Counter[str]:
        topic_id = str(self._described(path.rpartition("/")[2]).topic_id)
        cursors = self.cursors(path, subscription)
        done = {ledger_of(topic_id, partition): cursor for partition, cursor in cursors.items()}
        return Counter(
            value for value, at in self.messages(path) if not _acknowledged(done.get(at[0]), at[1])
        )

    def cursors(self, path: str, subscription: str) -> dict[int, OffsetSet]:
        """What a subscription has acknowledged durably, by partition; none for those without it."""
        topic = path.rpartition("/")[2]
        described = self._described(topic)
        state = self._journal()
        found: dict[int, OffsetSet] = {}
        for partition in range(len(described.partitions)):
            stored = state.cursors_of(topic, partition).get(subscription)
            if stored is not None and stored.topic_id == str(described.topic_id):
                found[partition] = stored.offsets()
        return found

    def lag(self, path: str, subscription: str) -> int:
        """How many messages a subscription has not acknowledged."""
        return self.left(path, subscription, Counter()).total()

    def _journal(self) -> JournalState:
        state = JournalState(SLOTS_COUNT)
        for _, offset, key, value, headers in self._records(self._service + CURSORS, 1):
            given = [(name, b64decode(text)) for name, text in headers]
            state.apply(JournalRecord(offset, b64decode(key), b64decode(value), given))
        return state

    def _described(self, topic: str) -> Any:
        return self._admin.describe_topics(TopicCollection([topic]))[topic].result(ASK_S)

    def _records(self, topic: str, partitions: int) -> list[tuple[int, int, str, str, list[tuple[str, str]]]]:
        done = subprocess.run(
            [sys.executable, "-c", READ, self._bootstrap, topic, str(partitions)],
            capture_output=True,
            text=True,
            timeout=ASK_S,
            check=True,
        )
        found: list[tuple[int, int, str, str, list[tuple[str, str]]]] = json.loads(done.stdout)
        return found


def _acknowledged(cursor: OffsetSet | None, offset: int) -> bool:
    return cursor is not None and cursor.mask(offset, 1) == 1
