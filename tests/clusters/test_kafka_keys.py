"""Keys before a real Kafka: one partition for a key, whichever endpoint or native producer publishes it."""

import base64
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import httpx
import pulsar
import pytest
import websocket
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.clusters.test_kafka_producing import broker_before, new_name
from tests.support.kafka_broker import KafkaCluster

import penstock
from penstock.broker.settings import ClusterSettings
from penstock.engines.shared.publishing import partition_of_bytes
from penstock.model.hashing import java_string_hash
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.partitioning import Partitioner
from penstock.testing.server import Address, running

PARTITIONS = 7
KEYS = [
    "order-1",
    "order-2",
    "a",
    "kafka",
    "ключ",
    "😀",
    "123",
    *(f"customer-{number}" for number in range(13)),
]
BYTES = [
    b"\xff\x00\x01",
    b"\x00\x00\x00\x00\x07\x02k",
    b"\x80" * 40,
]  # none of them is UTF-8, but for the second
PER_KEY = 10

Publish = Callable[[Address, str, Sequence[str]], None]


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    own = f"__{uuid4().hex[:10]}"
    with running(engine=ClusterSettings(url=kafka_cluster.service_url, documents_topic=own)) as address:
        yield address


@pytest.fixture
def topic(server: Address) -> str:
    name = f"keys-{uuid4().hex[:10]}"
    path = f"{server.url}/admin/v2/persistent/public/default/{name}/partitions"
    assert httpx.put(path, json=PARTITIONS, timeout=60).status_code == 204
    return name


@pytest.fixture
def client(server: Address) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


def native(
    cluster: KafkaCluster, topic: str, keys: Sequence[bytes], partitioner: str = "murmur2_random"
) -> dict[bytes, int]:
    """Publish a record of each key with librdkafka's own partitioner; returns their partitions."""
    found: dict[bytes, int] = {}
    own = {"bootstrap.servers": cluster.bootstrap, "partitioner": partitioner, "log_level": 0}
    producer = Producer(own)

    def delivered(error: object, message: Any) -> None:
        assert error is None
        found[message.key()] = message.partition()

    for key in keys:
        producer.produce(topic, b"native", key, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert len(found) == len(keys)
    return found


def records(cluster: KafkaCluster, topic: str, count: int) -> list[tuple[int, bytes | None, bytes]]:
    """So many records of all partitions, each partition's in order: partition, key and value."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "tests", "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[Any] = []
    try:
        while len(found) < count:
            more = consumer.consume(count - len(found), 60)
            assert more, f"{len(found)} of {count} records came"
            found += more
    finally:
        consumer.close()
    return [(one.partition(), one.key(), one.value()) for one in found]


def values_of(keys: Sequence[str]) -> list[tuple[str, str]]:
    """Messages in turn over the keys: key and value."""
    return [(key, f"{key}:{number}") for number in range(PER_KEY) for key in keys]


def over_rest(server: Address, topic: str, keys: Sequence[str]) -> None:
    messages = [{"key": key, "value": value} for key, value in values_of(keys)]
    path = f"{server.url}/topics/public/default/{topic}"
    answer = httpx.post(path, json={"messages": messages}, timeout=60)
    assert [one["error"] for one in answer.json()["messageIds"]] == [None] * len(messages)


def over_websocket(server: Address, topic: str, keys: Sequence[str]) -> None:
    where = f"{server.ws}/ws/v2/producer/persistent/public/default/{topic}?batchingEnabled=true"
    producer = websocket.create_connection(where, timeout=60)
    messages = values_of(keys)
    for key, value in messages:
        payload = base64.b64encode(value.encode()).decode()
        producer.send(json.dumps({"payload": payload, "key": key}))
    for _ in messages:
        assert json.loads(producer.recv())["result"] == "ok"
    producer.close()


def by_request(server: Address, topic: str, keys: Sequence[str]) -> None:
    """Nobody replies, and the requests stay all the same."""
    path = f"{server.url}/topics/public/default/{topic}/request"
    with httpx.Client(timeout=60) as client:
        for key, value in values_of(keys):
            body = {"messages": [{"key": key, "value": value}]}
            assert client.post(path, params={"timeout": 1}, json=body).status_code == 504


def over_binary(**options: Any) -> Publish:
    def publish(server: Address, topic: str, keys: Sequence[str]) -> None:
        client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer(topic, **options)
        results: list[pulsar.Result] = []
        for key, value in values_of(keys):
            producer.send_async(value.encode(), lambda got, _: results.append(got), partition_key=key)
        producer.flush()
        assert results == [pulsar.Result.Ok] * PER_KEY * len(keys)
        client.close()

    return publish


def by_sdk(server: Address, topic: str, keys: Sequence[str]) -> None:
    with penstock.Client(server.pulsar) as client:
        producer = client.create_producer(topic, batching_enabled=True)
        for key, value in values_of(keys):
            producer.send_async(value.encode(), None, partition_key=key)
        producer.flush()
        producer.close()


WAYS: Mapping[str, tuple[Publish, Sequence[str]]] = {
    "rest": (over_rest, KEYS),
    "websocket": (over_websocket, KEYS),
    "request": (by_request, KEYS[:3]),
    "binary": (over_binary(batching_enabled=False), KEYS),
    "binary batches": (over_binary(batching_enabled=True, batching_max_publish_delay_ms=60_000), KEYS),
    "binary batches by key": (
        over_binary(batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased),
        KEYS,
    ),
    "binary compressed": (
        over_binary(
            batching_enabled=True,
            batching_max_publish_delay_ms=60_000,
            compression_type=pulsar.CompressionType.ZSTD,
        ),
        KEYS,
    ),
    "client": (by_sdk, KEYS),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_key_has_the_partition_and_the_order_that_a_native_producer_gives_it(
    server: Address, kafka_cluster: KafkaCluster, topic: str, way: str
) -> None:
    publish, keys = WAYS[way]
    wanted = native(kafka_cluster, topic, [key.encode() for key in keys])
    publish(server, topic, keys)
    found = defaultdict(list)
    for partition, key, value in records(kafka_cluster, topic, (PER_KEY + 1) * len(keys)):
        assert key is not None
        assert partition == wanted[key], key
        if value != b"native":
            found[key.decode()].append(value.decode())
    assert found == {key: [f"{key}:{number}" for number in range(PER_KEY)] for key in keys}


async def test_bytes_of_keys_are_hashed_and_not_their_base64(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        await broker.topics.create(name, PARTITIONS)
        wanted = native(kafka_cluster, name.local, BYTES)
        producer = await broker.producer(name)
        results = await producer.publish(
            [
                OutMessage(payload=b"x", key=base64.b64encode(key).decode(), key_is_base64=True)
                for key in BYTES
            ]
        )
        assert [one.partition for one in results if isinstance(one, MessageId)] == [
            wanted[key] for key in BYTES
        ]


@pytest.mark.parametrize(
    ("ours", "theirs"), [("murmur2", "murmur2"), ("crc32", "consistent"), ("fnv1a", "fnv1a")]
)
async def test_partitioners_are_those_of_native_producers(
    kafka_cluster: KafkaCluster, ours: Any, theirs: str
) -> None:
    async with broker_before(kafka_cluster, engine={"partitioner": ours}) as broker:
        name = new_name()
        await broker.topics.create(name, PARTITIONS)
        keys = [key.encode() for key in KEYS] + BYTES
        wanted = native(kafka_cluster, name.local, keys, theirs)
        assert {key: partition_of_bytes(Partitioner(ours), key, PARTITIONS) for key in keys} == wanted
        producer = await broker.producer(name)
        results = await producer.publish([OutMessage(payload=b"x", key=key) for key in KEYS])
        assert [one.partition for one in results if isinstance(one, MessageId)] == [
            wanted[key.encode()] for key in KEYS
        ]


def test_with_pulsars_hash_what_clients_choose_stays(kafka_cluster: KafkaCluster) -> None:
    own = f"__{uuid4().hex[:10]}"
    engine = ClusterSettings(url=kafka_cluster.service_url, documents_topic=own, partitioner="java")
    with running(engine=engine) as server:
        name = f"keys-{uuid4().hex[:10]}"
        path = f"{server.url}/admin/v2/persistent/public/default/{name}/partitions"
        assert httpx.put(path, json=PARTITIONS, timeout=60).status_code == 204
        over_rest(server, name, KEYS)
        by_sdk(server, name, KEYS)
        for partition, key, _ in records(kafka_cluster, name, 2 * PER_KEY * len(KEYS)):
            assert key is not None
            assert partition == java_string_hash(key.decode()) % PARTITIONS


def test_a_hashing_scheme_that_a_producer_names_is_used(
    server: Address, kafka_cluster: KafkaCluster, topic: str
) -> None:
    where = f"{server.ws}/ws/v2/producer/persistent/public/default/{topic}?hashingScheme=JavaStringHash"
    producer = websocket.create_connection(where, timeout=60)
    for key in KEYS:
        producer.send(json.dumps({"payload": "", "key": key}))
        assert json.loads(producer.recv())["result"] == "ok"
    producer.close()
    found = {key: partition for partition, key, _ in records(kafka_cluster, topic, len(KEYS))}
    assert found == {key.encode(): java_string_hash(key) % PARTITIONS for key in KEYS}


def test_a_producer_that_chooses_partitions_itself_says_so(
    server: Address, client: pulsar.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    official = client.create_producer(f"{topic}-partition-3", properties={"penstock.partitioner": "client"})
    for key in KEYS:
        official.send(b"x", partition_key=key)
    with penstock.Client(server.pulsar) as own:
        routed = own.create_producer(
            topic,
            message_routing_mode=penstock.PartitionsRoutingMode.CustomPartition,
            message_router=lambda message, count: 3,
        )
        for key in KEYS:
            routed.send(b"x", partition_key=key)
        routed.close()
    assert {partition for partition, _, _ in records(kafka_cluster, topic, 2 * len(KEYS))} == {3}


def test_messages_without_keys_stay_where_a_client_sends_them(
    client: pulsar.Client, kafka_cluster: KafkaCluster, topic: str
) -> None:
    producer = client.create_producer(f"{topic}-partition-5")
    for _ in range(10):
        producer.send(b"x")
    assert {partition for partition, _, _ in records(kafka_cluster, topic, 10)} == {5}


def test_the_clients_ids_name_the_partition(server: Address, topic: str) -> None:
    """Those of official clients name the one that they sent to."""
    with penstock.Client(server.pulsar) as client:
        producer = client.create_producer(topic)
        for key in KEYS:
            placed = producer.send(key.encode(), partition_key=key)
            number = partition_of_bytes(Partitioner.MURMUR2, key.encode(), PARTITIONS)
            assert placed.partition() == number
            assert placed.topic_name() == f"persistent://public/default/{topic}-partition-{number}"
            reader = client.create_reader(placed.topic_name(), placed, start_message_id_inclusive=True)
            assert reader.read_next(60_000).data() == key.encode()
            reader.close()
        producer.close()


def test_a_topic_that_grows_has_keys_where_native_producers_have_them(
    server: Address, client: pulsar.Client, kafka_cluster: KafkaCluster
) -> None:
    name = f"keys-{uuid4().hex[:10]}"
    path = f"{server.url}/admin/v2/persistent/public/default/{name}/partitions"
    assert httpx.put(path, json=2, timeout=60).status_code == 204
    producer = client.create_producer(name)  # which does not know of the others
    producer.send(b"before", partition_key="a")
    assert httpx.post(path, json=PARTITIONS, timeout=60).status_code == 204
    wanted = native(kafka_cluster, name, [key.encode() for key in KEYS])
    for key in KEYS:
        producer.send(b"after", partition_key=key)
    every = records(kafka_cluster, name, 2 * len(KEYS) + 1)
    assert {key: partition for partition, key, value in every if value == b"after"} == wanted
