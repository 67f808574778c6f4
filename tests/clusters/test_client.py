"""Our client before a real Pulsar: what it promises before our own server holds there too."""

import datetime
import re
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.support.pulsar_broker import EARLY_MS, PulsarCluster
from tests.support.waiting import until

import penstock
from penstock import (
    Client,
    CompressionType,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    MessageId,
    ProducerAccessMode,
)
from penstock.client.schema import AvroSchema, Integer, Record, String

WAIT_MS = 60_000


class Order(Record):
    number = Integer()


class PricedOrder(Record):
    number = Integer()
    price = Integer(default=7, required=True, required_default=True)


class OtherOrder(Record):
    number = String()


@pytest.fixture(scope="module")
def client(pulsar_cluster: PulsarCluster) -> Iterator[Client]:
    with Client(pulsar_cluster.service_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/client-{uuid4().hex[:12]}"


def admin_path(topic: str) -> str:
    return topic.replace("://", "/")


@pytest.mark.parametrize("compression", [CompressionType.NONE, CompressionType.LZ4, CompressionType.ZSTD])
def test_batches_come_whole_and_in_order(client: Client, topic: str, compression: CompressionType) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, compression_type=compression)
    for number in range(500):
        producer.send_async(b"%d" % number, None)
    producer.flush()
    messages = [consumer.receive(WAIT_MS) for _ in range(500)]
    assert [m.data() for m in messages] == [b"%d" % number for number in range(500)]
    consumer.acknowledge_cumulative(messages[-1])


def test_a_message_larger_than_the_broker_takes_goes_in_chunks(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    large = bytes(range(256)) * 40_000
    producer.send(large)
    assert consumer.receive(WAIT_MS).data() == large


def test_a_batch_that_the_broker_refuses_fails_alone(
    client: Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=60_000)
    path = f"{admin_path(topic)}/maxMessageSize"
    pulsar_cluster.admin("POST", path, json=1000)
    until(lambda: pulsar_cluster.admin("GET", path).text == "1000")
    results: dict[str, Any] = {}

    def send(name: str, size: int) -> None:
        producer.send_async(b"x" * size, lambda result, _id: results.setdefault(name, result))

    for number in range(3):
        send(f"large {number}", 500)
    producer.flush()
    send("small", 10)
    producer.flush()
    refused = penstock.Result.NotAllowedError
    assert results == {**{f"large {number}": refused for number in range(3)}, "small": penstock.Result.Ok}


def test_keys_keep_their_order_over_partitions(
    client: Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    pulsar_cluster.admin("PUT", f"{admin_path(topic)}/partitions", json=3)
    consumer = client.subscribe(topic, "s", ConsumerType.KeyShared)
    producer = client.create_producer(topic)
    for number in range(60):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 7}")
    producer.flush()
    found: dict[str, list[int]] = {}
    for _ in range(60):
        message = consumer.receive(WAIT_MS)
        found.setdefault(message.partition_key(), []).append(int(message.data()))
        consumer.acknowledge(message)
    assert found == {f"k{key}": list(range(key, 60, 7)) for key in range(7)}


def test_each_message_is_read_by_its_own_schema_version(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", schema=AvroSchema(PricedOrder))
    producer = client.create_producer(topic)
    producer.new_message(Order(number=1), schema=AvroSchema(Order)).send()
    producer.new_message(PricedOrder(number=2, price=3), schema=AvroSchema(PricedOrder)).send()
    messages = [consumer.receive(WAIT_MS) for _ in range(2)]
    assert [(m.value().number, m.value().price) for m in messages] == [(1, 7), (2, 3)]
    assert len({m.schema_version() for m in messages}) == 2


def test_the_clusters_compatibility_counts(client: Client, topic: str) -> None:
    client.create_producer(topic, schema=AvroSchema(Order)).send(Order(number=1))
    with pytest.raises(penstock.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(OtherOrder))


def test_what_is_negatively_acknowledged_comes_again(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(5):
        producer.send(b"%d" % number)
    messages = [consumer.receive(WAIT_MS) for _ in range(5)]
    for message in messages:
        if message.data() == b"2":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    again = consumer.receive(WAIT_MS)
    assert (again.data(), again.redelivery_count()) == (b"2", 1)


def test_dead_letters_go_to_their_topic(client: Client, topic: str) -> None:
    policy = ConsumerDeadLetterPolicy(2)
    consumer = client.subscribe(
        topic, "s", ConsumerType.Shared, negative_ack_redelivery_delay_ms=50, dead_letter_policy=policy
    )
    letters = client.subscribe(f"{topic}-s-DLQ", "letters")
    client.create_producer(topic).send(b"bad")
    for _ in range(3):
        consumer.negative_acknowledge(consumer.receive(WAIT_MS))
    assert letters.receive(WAIT_MS).data() == b"bad"


def test_a_delayed_message_comes_when_it_is_due(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", ConsumerType.Shared)
    producer = client.create_producer(topic)
    sent = time.time()
    producer.send(b"late", deliver_after=datetime.timedelta(seconds=3))
    producer.send(b"now")
    came = {consumer.receive(WAIT_MS).data(): time.time() for _ in range(2)}
    assert set(came) == {b"now", b"late"}
    assert came[b"late"] >= sent + 3 - EARLY_MS / 1000


def test_a_seek_and_readers_begin_where_they_are_told(client: Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"%d" % number) for number in range(10)]
    consumer.seek(ids[4])
    assert consumer.receive(WAIT_MS).data() == b"5"
    consumer.seek(MessageId.earliest)
    assert consumer.receive(WAIT_MS).data() == b"0"
    reader = client.create_reader(topic, ids[6])
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS).data())
    assert found == [b"7", b"8", b"9"]
    inclusive = client.create_reader(topic, ids[6], start_message_id_inclusive=True)
    assert inclusive.read_next(WAIT_MS).data() == b"6"


def test_a_pattern_finds_topics_that_come_later(client: Client, topic: str) -> None:
    client.create_producer(f"{topic}-1").send(b"before")
    consumer = client.subscribe(
        re.compile(re.escape(topic) + "-.*"),
        "s",
        pattern_auto_discovery_period=1,
        initial_position=penstock.InitialPosition.Earliest,
    )
    assert consumer.receive(WAIT_MS).data() == b"before"
    client.create_producer(f"{topic}-2").send(b"after")
    assert consumer.receive(WAIT_MS).data() == b"after"


def test_nothing_is_lost_or_doubled_while_the_broker_unloads_the_topic(
    client: Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    count, unloads = 3000, 3
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    reached = [threading.Event() for _ in range(unloads)]

    def publish() -> None:
        for number in range(count):
            producer.send_async(b"%d" % number, None)
            if number % (count // unloads) == count // unloads // 2:
                reached[number * unloads // count].set()
                producer.flush()
        producer.flush()

    publishing = threading.Thread(target=publish)
    publishing.start()
    for event in reached:
        event.wait()
        pulsar_cluster.admin("PUT", f"{admin_path(topic)}/unload")
    publishing.join()
    seen: list[int] = []
    while len(set(seen)) < count:
        message = consumer.receive(WAIT_MS)
        seen.append(int(message.data()))
        consumer.acknowledge(message)
    firsts = list(dict.fromkeys(seen))
    assert firsts == list(range(count))


def test_a_producer_that_is_fenced_or_whose_topic_ends_says_so(
    client: Client, topic: str, pulsar_cluster: PulsarCluster
) -> None:
    first = client.create_producer(topic, access_mode=ProducerAccessMode.Exclusive)
    with pytest.raises(penstock.ProducerBusy):
        client.create_producer(topic)
    second = client.create_producer(topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
    second.send(b"1")
    with pytest.raises(penstock.ProducerFenced):
        first.send(b"2")
    pulsar_cluster.admin("POST", f"{admin_path(topic)}/terminate")
    with pytest.raises(penstock.TopicTerminated):
        second.send(b"3")


def test_a_request_is_refused_where_the_broker_does_not_know_requests(client: Client, topic: str) -> None:
    with pytest.raises(penstock.OperationNotSupported):
        client.create_producer(topic).request(b"?", timeout_ms=1000)
