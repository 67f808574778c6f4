"""The broker that the other tests stand before is a real one, and can be killed and started again."""

import signal
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.kafka_broker import KafkaCluster, standalone


def test_a_record_goes_through_a_real_kafka(kafka_cluster: KafkaCluster) -> None:
    topic = f"record-{uuid4().hex[:12]}"
    _create(kafka_cluster, topic)
    _produce(kafka_cluster, topic, b"one")
    assert _first(kafka_cluster, topic) == b"one"


def test_a_broker_that_was_killed_starts_again_with_its_records(tmp_path: Path) -> None:
    with standalone(tmp_path) as cluster:
        _create(cluster, "kept")
        _produce(cluster, "kept", b"one")
        cluster.kill(signal.SIGKILL)
        cluster.restart()
        assert _first(cluster, "kept") == b"one"


def _create(cluster: KafkaCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})  # what it was asked for ends with it
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)


def _produce(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, value, on_delivery=lambda error, record: failed.append(error))
    assert producer.flush(60) == 0
    assert failed == [None]


def _first(cluster: KafkaCluster, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "tests", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        record = consumer.poll(60)
        assert record is not None
        assert record.error() is None
        return record.value()
    finally:
        consumer.close()
