"""What a mirror made of a service: its topics are in another cluster, with other ids and offsets. No message is missed there.

One broker is both clusters, one after the other: the topics are read, deleted, created again, and written as a mirror writes them.
"""

from pathlib import Path
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic, ResourceType
from tests.support.kafka_broker import KafkaCluster
from tests.support.service import WAIT_S, admin, flags_before, service, take
from tests.support.waiting import until

MISFITS = "penstock_kafka_cursor_misfits_total"
POLICY = "/admin/v2/namespaces/public/default/maxConsumersPerTopic"
KEPT = 4  # messages that the mirror has: older ones had been deleted before it began


class Mirror:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._own = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self._admin = AdminClient(self._own)

    def topics(self, prefix: str) -> list[str]:
        return [name for name in self._admin.list_topics(timeout=WAIT_S).topics if name.startswith(prefix)]

    def copy(self, topic: str, newest: int | None = None) -> None:
        """Have a topic be a copy of itself: all of its records, or only the newest ones."""
        shown = self._admin.list_topics(topic, WAIT_S).topics[topic]
        found = {partition: self._read(topic, partition) for partition in shown.partitions}
        config = self._config(topic)
        self._admin.delete_topics([topic])[topic].result(WAIT_S)
        until(lambda: topic not in self._admin.list_topics(timeout=WAIT_S).topics)
        made = NewTopic(topic, len(found), 1, config=config)
        self._admin.create_topics([made])[topic].result(WAIT_S)
        producer = Producer(self._own)
        until(lambda: len(producer.list_topics(topic, WAIT_S).topics[topic].partitions) == len(found))
        for partition, records in found.items():
            for record in records if newest is None else records[-newest:]:
                producer.produce(
                    topic, record.value(), record.key(), partition, headers=record.headers() or []
                )
        assert producer.flush(WAIT_S) == 0

    def _config(self, topic: str) -> dict[str, str]:
        """What is set for the topic itself."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = self._admin.describe_configs([resource])[resource].result(WAIT_S).values()
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {entry.name: entry.value for entry in entries if entry.source == own}

    def _read(self, topic: str, partition: int) -> list[Message]:
        own = {"group.id": "mirror", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer(self._own | own)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found = []
        while True:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is not None:  # the end
                consumer.close()
                return found
            found.append(message)


def test_a_service_goes_on_at_a_mirror(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    flags, topic = flags_before(kafka_cluster), f"t{uuid4().hex[:10]}"
    documents = next(flag.partition("=")[2] for flag in flags if "documents_topic" in flag)
    mirror = Mirror(kafka_cluster)
    with service(tmp_path, flags, 1) as here:
        here.ask(0, "PUT", admin(topic), 204)
        for subscription in ("s", "done"):
            here.ask(0, "PUT", admin(topic, f"/subscription/{subscription}"), 204, json="earliest")
        here.publish(0, topic, *map(str, range(10)))
        with here.consumer(0, topic) as socket:
            assert take(socket, 7) == list(map(str, range(7)))
            until(lambda: here.backlog(0, topic) == 3)
        here.ask(0, "POST", admin(topic, "/subscription/done/skip_all"), 204)
        here.ask(0, "POST", POLICY, 204, json=1234)

    mirror.copy(topic, KEPT)
    for name in mirror.topics(documents):
        mirror.copy(name)

    with service(tmp_path, flags, 1) as there:
        assert there.ask(0, "GET", POLICY) == 1234
        there.publish(0, topic, "new")  # the cursors would fit by their offsets alone once the log is as long
        kept = [*map(str, range(10 - KEPT, 10)), "new"]
        for subscription in ("s", "done"):
            with there.consumer(0, topic, subscription=subscription) as socket:
                assert take(socket, len(kept)) == kept
        reasons = there.figures(MISFITS, topic)
        assert {label.split("'")[3]: count for label, count in reasons.items() if count} == {"recreated": 2}
        lines = [line for line in there.nodes[0].log.splitlines() if "a cursor does not fit its log" in line]
        assert len(lines) == 2
        assert all(topic in line and '"begins_at":0' in line for line in lines)
        until(lambda: there.backlog(0, topic) == 0)
    with service(tmp_path, flags, 1) as again, again.consumer(0, topic) as socket:
        again.publish(0, topic, "last")
        assert take(socket, 1) == ["last"]
        assert again.sum(MISFITS) == 0
