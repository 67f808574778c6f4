"""Topics that change under their subscriptions, by Kafka's own tools: nothing is skipped."""

from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.support.kafka_broker import KafkaCluster
from tests.support.service import WAIT_S, Service, admin, closed, take
from tests.support.waiting import until

MISFITS = "penstock_kafka_cursor_misfits_total"


class Native:
    """Kafka's own clients."""

    def __init__(self, cluster: KafkaCluster) -> None:
        own = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
        self.admin = AdminClient(own)
        self.cluster = cluster
        self.producer = Producer(own | {"topic.metadata.refresh.interval.ms": 100})

    def create(self, topic: str, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_S)

    def recreate(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(WAIT_S)
        until(lambda: topic not in self.admin.list_topics(timeout=WAIT_S).topics)
        self.create(topic)
        until(lambda: topic in self.admin.list_topics(timeout=WAIT_S).topics)

    def grow(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WAIT_S)

    def committed(self, group: str, topic: str) -> int:
        """The position of a consumer group in partition 0; -1 if there is none."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
        try:
            found = self.admin.list_consumer_group_offsets([wanted])[group].result(WAIT_S)
        except KafkaException:  # there is no such group
            return -1
        return int(found.topic_partitions[0].offset)

    def commit(self, group: str, topic: str, offset: int) -> None:
        changed = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])
        self.admin.alter_consumer_group_offsets([changed])[group].result(WAIT_S)

    def publish(self, topic: str, *values: str, partition: int = 0) -> None:
        until(lambda: partition in self.producer.list_topics(topic, WAIT_S).topics[topic].partitions)
        for value in values:
            self.producer.produce(topic, value.encode(), partition=partition)
        assert self.producer.flush(WAIT_S) == 0


@pytest.fixture
def native(kafka_cluster: KafkaCluster) -> Native:
    return Native(kafka_cluster)


@pytest.fixture
def topic(native: Native) -> str:
    name = f"t{uuid4().hex[:10]}"
    native.create(name)
    return name


def test_a_topic_is_made_again_under_a_consumer(kafka_service: Service, native: Native, topic: str) -> None:
    at = 1
    before = kafka_service.sum(MISFITS)
    with kafka_service.consumer(at, topic) as socket:
        kafka_service.publish(0, topic, "old 0", "old 1")
        assert take(socket, 2) == ["old 0", "old 1"]
        until(lambda: kafka_service.backlog(at, topic) == 0)
        native.recreate(topic)
        values = [f"new {number}" for number in range(5)]  # more than before: the cursor seems to fit
        native.publish(topic, *values)
        assert closed(socket)
    # It asks for new messages only, as before: its subscription exists, and begins where no message is missed.
    with kafka_service.consumer((at + 1) % 3, topic) as socket:
        assert take(socket, 5) == values
    until(lambda: kafka_service.backlog(at, topic) == 0)
    reasons = {label for label, count in kafka_service.figures(MISFITS, topic).items() if count}
    assert kafka_service.sum(MISFITS) > before
    assert any("recreated" in label for label in reasons)


def test_a_topic_is_made_again_while_nobody_has_it(
    kafka_service: Service, native: Native, topic: str
) -> None:
    kafka_service.ask(0, "PUT", admin(topic, "/subscription/s"), 204, json="earliest")
    native.publish(topic, "old 0", "old 1", "old 2")
    with kafka_service.consumer(0, topic) as socket:
        assert take(socket, 3) == ["old 0", "old 1", "old 2"]
        until(lambda: kafka_service.backlog(0, topic) == 0)
    native.recreate(topic)
    native.publish(topic, "new")
    with kafka_service.consumer(1, topic) as socket:
        assert take(socket, 1) == ["new"]


def test_retention_passes_a_cursor(kafka_service: Service, native: Native, topic: str) -> None:
    native.publish(topic, *map(str, range(10)))
    kafka_service.ask(0, "PUT", admin(topic, "/subscription/s"), 204, json="earliest")
    native.cluster.delete_records(topic, 0, 6)
    for at in range(3):
        until(lambda at=at: kafka_service.backlog(at, topic) == 4)
    with kafka_service.consumer(2, topic) as socket:
        assert take(socket, 4) == ["6", "7", "8", "9"]
    for at in range(3):
        until(lambda at=at: kafka_service.backlog(at, topic) == 0)


def test_commits_that_others_shift_do_not_count(kafka_service: Service, native: Native, topic: str) -> None:
    """A mirror shifts the positions that Kafka's tools see. The subscription is opened again, and has its own cursor."""
    kafka_service.ask(0, "PUT", admin(topic, "/subscription/s"), 204, json="earliest")
    native.publish(topic, *map(str, range(5)))
    with kafka_service.consumer(0, topic) as socket:
        assert take(socket, 2) == ["0", "1"]
        until(lambda: kafka_service.backlog(0, topic) == 3)
    until(lambda: native.committed(f"penstock:{topic}:s", topic) == 2)
    native.commit(f"penstock:{topic}:s", topic, 5)
    kafka_service.ask(1, "PUT", admin(topic, "/unload"), 204)
    with kafka_service.consumer(2, topic) as socket:
        assert take(socket, 3) == ["2", "3", "4"]
    until(lambda: kafka_service.backlog(0, topic) == 0)


def test_partitions_are_added_under_a_consumer(kafka_service: Service, native: Native) -> None:
    topic = f"t{uuid4().hex[:10]}"
    kafka_service.ask(0, "PUT", admin(topic, "/partitions"), 204, json=2)
    with kafka_service.consumer(1, topic) as socket:
        kafka_service.ask(2, "POST", admin(topic, "/partitions"), 204, json=3)
        native.publish(topic, "by REST", partition=2)
        assert take(socket, 1) == ["by REST"]
        native.grow(topic, 4)
        native.publish(topic, "by a tool", partition=3)
        assert take(socket, 1) == ["by a tool"]
    until(lambda: kafka_service.backlog(0, topic) == 0)
