"""Pulsar's official client on Kafka's topics: what its batches, chunks and schemas become."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer, TopicPartition
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from pulsar.schema import AvroSchema, JsonSchema, Record, String
from tests.support.kafka_broker import KafkaCluster

import penstock
from penstock.broker.settings import ClusterSettings
from penstock.testing.server import Address, running

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    engine = ClusterSettings(
        url=kafka_cluster.service_url, learned_ms=0, documents_topic=f"__{uuid4().hex[:10]}"
    )
    with running(engine=engine) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[pulsar.Client]:
    made = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield made
    made.close()


@pytest.fixture
def topic(server: Address) -> str:
    name = f"binary-{uuid4().hex[:10]}"
    path = f"{server.url}/admin/v2/persistent/public/default/{name}"
    assert httpx.put(path, timeout=60).status_code == 204
    return name


def subscribe(client: pulsar.Client, topic: str, **more: object) -> pulsar.Consumer:
    return client.subscribe(
        topic,
        f"s-{topic}",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        **more,
    )


@pytest.mark.parametrize(
    "compression",
    [
        pulsar.CompressionType.NONE,
        pulsar.CompressionType.LZ4,
        pulsar.CompressionType.ZLib,
        pulsar.CompressionType.ZSTD,
        pulsar.CompressionType.SNAPPY,
    ],
)
def test_messages_of_a_batch_are_acknowledged_one_by_one(
    client: pulsar.Client, topic: str, compression: pulsar.CompressionType
) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
        batching_max_messages=10,
        compression_type=compression,
    )
    for number in range(10):
        producer.send_async(b"%d" % number * 100, lambda *_: None, properties={"n": str(number)})
    producer.flush()
    consumer = subscribe(client, topic)
    for number in range(10):
        message = consumer.receive(WAIT_MS)
        assert (message.data(), message.properties()) == (b"%d" % number * 100, {"n": str(number)})
        if number % 2:
            consumer.acknowledge(message)
    consumer.close()
    again = subscribe(client, topic)
    assert [again.receive(WAIT_MS).properties()["n"] for _ in range(5)] == ["0", "2", "4", "6", "8"]


def test_a_message_in_chunks(client: pulsar.Client, topic: str) -> None:
    big = bytes(range(256)) * 4096 * 6  # above the 5 MiB of one message
    consumer = subscribe(client, topic)
    producer = client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
    producer.send(big)
    message = consumer.receive(WAIT_MS)
    assert message.data() == big
    consumer.acknowledge(message)


def _keys(folder: Path) -> pulsar.CryptoKeyReader:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "private").write_bytes(private)
    (folder / "public").write_bytes(public)
    return pulsar.CryptoKeyReader(str(folder / "public"), str(folder / "private"))


def test_an_encrypted_message_is_opened_by_its_receiver_alone(
    client: pulsar.Client, topic: str, tmp_path: Path, kafka_cluster: KafkaCluster
) -> None:
    keys = _keys(tmp_path)
    producer = client.create_producer(
        topic, encryption_key="k", crypto_key_reader=keys, compression_type=pulsar.CompressionType.LZ4
    )
    producer.send(b"a secret", properties={"a": "b"})
    consumer = subscribe(client, topic, crypto_key_reader=keys)
    message = consumer.receive(WAIT_MS)
    assert (message.data(), message.properties()) == (b"a secret", {"a": "b"})
    consumer.acknowledge(message)
    plain = Consumer({"bootstrap.servers": kafka_cluster.bootstrap, "group.id": "tests", "log_level": 0})
    plain.assign([TopicPartition(topic, 0, 0)])
    record = plain.poll(60)
    plain.close()
    assert record is not None
    assert b"a secret" not in record.value()
    assert "penstock-entry" in dict(record.headers())


class New(Record):  # type: ignore[misc]
    a = String()
    b = String()


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_schemas_of_the_producer_are_its_messages(client: pulsar.Client, topic: str, kind: type) -> None:
    producer = client.create_producer(topic, schema=kind(New))
    producer.send(New(a="x", b="y"))
    consumer = subscribe(client, topic, schema=kind(New))
    message = consumer.receive(WAIT_MS)
    assert (message.value().a, message.value().b) == ("x", "y")
    consumer.acknowledge(message)


def test_a_reader_and_a_seek(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"%d" % number) for number in range(5)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert [reader.read_next(WAIT_MS).data() for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert not reader.has_message_available()
    reader.seek(ids[2])
    assert reader.read_next(WAIT_MS).data() in (b"2", b"3")
    consumer = subscribe(client, topic)
    for number in range(5):
        message = consumer.receive(WAIT_MS)
        assert message.data() == b"%d" % number
        consumer.acknowledge(message)
    consumer.seek(pulsar.MessageId.earliest)
    assert consumer.receive(WAIT_MS).data() == b"0"


async def test_requests_of_our_own_client_get_their_replies(server: Address, topic: str) -> None:
    async def listener(consumer: penstock.aio.Consumer, message: penstock.Message) -> None:
        await consumer.acknowledge(message, reply=b"re: " + message.data())

    async with penstock.aio.Client(server.pulsar) as client:
        await client.subscribe(topic, "servers", message_listener=listener)
        producer = await client.create_producer(topic, batching_enabled=True)
        asked = (producer.request(b"%d" % number, timeout_ms=WAIT_MS) for number in range(10))
        replies = await asyncio.gather(*asked)
    assert [one.reply_content for one in replies] == [b"re: %d" % number for number in range(10)]
