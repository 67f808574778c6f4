"""Publishing to a real Kafka: answers are ids of records, and Kafka's own clients read what was written."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.stored import stored

from penstock.broker.producer import Item
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ProducerOptions
from penstock.runtime.clock import LoopClock
from penstock.wire import entry as wire
from penstock.wire.contents import compressed
from penstock.wire.entry import admit
from penstock.wire.pulsar_pb2 import ZSTD


@asynccontextmanager
async def broker_before(
    cluster: KafkaCluster, *, engine: Mapping[str, Any] | None = None, **own: Any
) -> AsyncIterator[KafkaBroker]:
    """A broker of this process before the cluster."""
    settings = ClusterSettings(
        url=cluster.service_url, documents_topic=f"__penstock-{uuid4().hex[:8]}", **(engine or {})
    )
    broker = KafkaBroker(settings, BrokerSettings(**own), LoopClock())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


def new_name() -> TopicName:
    """Of a topic of the test's own."""
    return TopicName.of("persistent", "public", "default", f"produce-{uuid4().hex[:12]}")


async def consumed(cluster: KafkaCluster, topic: str, count: int, partition: int = 0) -> Sequence[Any]:
    """Records, as a client of Kafka's sees them."""

    def consume() -> Sequence[Any]:
        own = {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
        consumer = Consumer(own)
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[Any] = []
        while len(found) < count:
            found += consumer.consume(count - len(found), 60)
        consumer.close()
        return found

    return await asyncio.to_thread(consume)


async def test_kafka_reads_what_was_published(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        producer = await broker.producer(name)
        results = await producer.publish(
            [
                OutMessage(payload=b"plain"),
                OutMessage(payload=b"keyed", key="k", properties={"color": "blue"}),
                OutMessage(payload=b"", null_value=True, key="k"),
            ]
        )
        log = await broker.topics.get(name)
        assert results == [MessageId(log.ledger, offset, -1) for offset in range(3)]
        plain, keyed, null = await consumed(kafka_cluster, name.local, 3)
        assert (plain.key(), plain.value(), plain.headers()) == (None, b"plain", None)
        assert (keyed.key(), keyed.value(), keyed.headers()) == (b"k", b"keyed", [("color", b"blue")])
        assert (null.key(), null.value()) == (b"k", None)
        assert producer.published == 3
        assert (log.rate_in.messages, log.rate_in.bytes) == (3, 5 + 15 + 1)
        assert log.write_latency is not None


async def test_every_field_of_a_message_comes_back(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        producer = await broker.producer(name, ProducerOptions(name="writer"))
        await producer.publish(
            [
                OutMessage(
                    payload=b"body",
                    key="AP8=",
                    key_is_base64=True,
                    ordering_key=b"\x00\x01",
                    properties={"a": "ä", "penstock-own": "mine", "": "unnamed"},
                    event_time=1234,
                    sequence_id=77,
                    schema_version=3,
                    replicate_to=["east", "west"],
                )
            ]
        )
        (found,) = await stored(broker, name)
        assert (found.payload, found.key, found.key_is_base64) == (b"body", "AP8=", True)
        assert (found.ordering_key, found.event_time, found.schema_version) == (b"\x00\x01", 1234, 3)
        assert found.properties == {"a": "ä", "penstock-own": "mine", "": "unnamed"}
        assert (found.producer_name, found.sequence_id) == ("writer", 77)
        assert found.replicate_to == ["east", "west"]
        assert abs(found.publish_time - LoopClock().now_ms()) < 3_600_000


async def test_messages_go_to_partitions_by_number_and_by_key(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        await broker.topics.create(name, 3)
        producer = await broker.producer(name)
        results = await producer.publish(
            [OutMessage(payload=b"a", partition=2), OutMessage(payload=b"b", partition=5)]
            + [OutMessage(payload=b"c", key="same") for _ in range(5)]
        )
        assert isinstance(results[0], MessageId)
        assert results[0].partition == 2
        assert isinstance(results[1], PenstockError)
        assert results[1].kind is ErrorKind.PARTITION_NOT_FOUND
        assert len({one.partition for one in results[2:] if isinstance(one, MessageId)}) == 1
        placed = await producer.publish_plain(["text"], None, 1)
        assert (placed.topic.name.partition, placed.offset, placed.count) == (1, placed.entry_id, 1)


async def test_a_bad_message_fails_alone(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster, max_message_bytes=2 << 20) as broker:
        producer = await broker.producer(new_name())
        results = await producer.publish(
            [
                OutMessage(payload=b"x" * (3 << 20)),  # more than this server takes
                OutMessage(payload=b"one"),
                OutMessage(
                    payload=bytes(range(256)) * (6 << 10), key="big"
                ),  # more than Kafka takes, at first
                OutMessage(payload=b"two", properties={"a": "\ud800"}),
                OutMessage(payload=b"three"),
            ]
        )
        kinds = [one.kind if isinstance(one, PenstockError) else None for one in results]
        assert kinds[0] is ErrorKind.TOO_LARGE
        assert kinds[1] is None
        assert kinds[2] in (None, ErrorKind.TOO_LARGE)  # compressed, it may fit
        assert kinds[3] is ErrorKind.BAD_ENCODING
        assert kinds[4] is None


async def test_calls_at_once_keep_their_order(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        producer = await broker.producer(name)
        calls = [producer.publish([OutMessage(payload=b"%d" % number)]) for number in range(500)]
        results = [one for (one,) in await asyncio.gather(*calls)]
        assert [one.entry for one in results if isinstance(one, MessageId)] == list(range(500))
        assert [message.payload for message in await stored(broker, name)] == [b"%d" % n for n in range(500)]


async def test_entries_of_clients_become_records(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        producer = await broker.producer(name)
        messages = [OutMessage(payload=b"m%d" % n, key=f"k{n}") for n in range(3)]
        batch = wire.encode(messages, producer="p", sequence_id=5, publish_time=99, schema_version=1)
        sealed = sealed_entry()
        entries = [admit(compressed(batch.data, ZSTD)), sealed]
        first, second = await producer.publish_entries([Item(entry) for entry in entries])
        assert isinstance(first, MessageId)
        assert isinstance(second, MessageId)
        assert (first.entry, second.entry) == (0, 3)
        *three, kept = await stored(broker, name)
        assert [(one.payload, one.key, one.schema_version) for one in three] == [
            (b"m%d" % n, f"k{n}", 1) for n in range(3)
        ]
        assert {one.publish_time for one in three} == {99}
        assert kept.encryption is not None
        log = await broker.topics.get(name)
        assert (await log.entry(3)).data == sealed.data
        last = await consumed(kafka_cluster, name.local, 4)
        assert last[3].value() == b"secret"


def sealed_entry() -> NewEntry:
    """An entry that only its receiver can open."""
    encryption = Encryption((EncryptionKey("owner", b"key"),), b"param", "", "LZ4", 100, 2)
    return wire.encode(
        [OutMessage(payload=b"secret", encryption=encryption, key="k")],
        producer="p",
        sequence_id=1,
        publish_time=5,
        schema_version=None,
    )


async def test_records_of_other_producers_are_messages(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        await broker.topics.create(name, 0)
        kafka_cluster.tool(
            "org.apache.kafka.tools.ConsoleProducer",
            "--topic",
            name.local,
            "--property",
            "parse.key=true",
            "--property",
            "parse.headers=true",
            stdin="h:v\tkey\tvalue\n",
        )
        (found,) = await stored(broker, name)
        assert (found.key, found.payload, found.properties) == ("key", b"value", {"h": "v"})
        assert found.publish_time > 0


async def test_a_producer_has_its_name_alone(kafka_cluster: KafkaCluster) -> None:
    async with broker_before(kafka_cluster) as broker:
        name = new_name()
        producer = await broker.producer(name, ProducerOptions(name="one"))
        with pytest.raises(PenstockError) as caught:
            await broker.producer(name, ProducerOptions(name="one"))
        assert caught.value.kind is ErrorKind.PRODUCER_BUSY
        producer.close()
        (await broker.producer(name, ProducerOptions(name="one"))).close()


async def test_publishing_goes_on_when_the_broker_comes_back(tmp_path: Path) -> None:
    with standalone(tmp_path) as cluster:
        async with broker_before(cluster) as broker:
            name = new_name()
            producer = await broker.producer(name)
            await producer.publish([OutMessage(payload=b"before")])
            cluster.kill(signal.SIGKILL)
            publishing = asyncio.create_task(producer.publish([OutMessage(payload=b"while")]))  # noqa: TID251 # awaited below
            await asyncio.to_thread(cluster.restart)
            (result,) = await publishing
            found = [message.payload for message in await stored(broker, name)]
            if isinstance(result, MessageId):
                assert found == [b"before", b"while"]
            else:  # a machine so busy that the broker took longer than a record waits
                assert result.kind is ErrorKind.UNAVAILABLE
            (after,) = await producer.publish([OutMessage(payload=b"after")])
            assert isinstance(after, MessageId)
