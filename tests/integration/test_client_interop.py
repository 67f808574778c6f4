"""This client and the official one on the same topics, each way."""

from collections.abc import Iterator
from typing import Any

import pulsar
import pulsar.schema
import pytest
from tests.support.waiting import received_by

import penstock
from penstock.testing.server import Address


@pytest.fixture(scope="module")
def ours(server: Address) -> Iterator[penstock.Client]:
    with penstock.Client(server.pulsar) as client:
        yield client


@pytest.fixture(scope="module")
def theirs(server: Address) -> Iterator[Any]:
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


class OurReading(penstock.Record):
    sensor = penstock.String(required=True)
    value = penstock.Double()
    tags = penstock.Array(penstock.String())
    counts = penstock.Map(penstock.Integer())


class TheirReading(pulsar.schema.Record):
    sensor = pulsar.schema.String(required=True)
    value = pulsar.schema.Double()
    tags = pulsar.schema.Array(pulsar.schema.String())
    counts = pulsar.schema.Map(pulsar.schema.Integer())


TheirReading.__name__ = OurReading.__name__ = "Reading"

KINDS = [kind.name for kind in penstock.CompressionType]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batching", [False, True])
def test_we_write_they_read(ours: Any, theirs: Any, topic: str, kind: str, batching: bool) -> None:
    producer = ours.create_producer(
        topic, batching_enabled=batching, compression_type=penstock.CompressionType[kind]
    )
    for number in range(20):
        producer.send_async(b"%d" % number * 20, None, properties={"n": str(number)}, partition_key="k")
    producer.flush()
    reader = theirs.create_reader(topic, pulsar.MessageId.earliest)
    messages = [reader.read_next(30_000) for _ in range(20)]

    assert [m.data() for m in messages] == [b"%d" % number * 20 for number in range(20)]
    assert [m.properties() for m in messages] == [{"n": str(number)} for number in range(20)]
    assert {m.partition_key() for m in messages} == {"k"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batching", [False, True])
def test_they_write_we_read(ours: Any, theirs: Any, topic: str, kind: str, batching: bool) -> None:
    producer = theirs.create_producer(
        topic, batching_enabled=batching, compression_type=pulsar.CompressionType.__members__[kind]
    )
    for number in range(20):
        producer.send_async(
            b"%d" % number * 20, lambda *_: None, properties={"n": str(number)}, event_timestamp=number + 1
        )
    producer.flush()
    reader = ours.create_reader(topic, penstock.MessageId.earliest)
    messages = [reader.read_next(30_000) for _ in range(20)]

    assert [m.data() for m in messages] == [b"%d" % number * 20 for number in range(20)]
    assert [m.properties() for m in messages] == [{"n": str(number)} for number in range(20)]
    assert [m.event_timestamp() for m in messages] == list(range(1, 21))


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_schemas_both_ways(ours: Any, theirs: Any, topic: str, kind: str) -> None:
    our_schema, their_schema = getattr(penstock, kind)(OurReading), getattr(pulsar.schema, kind)(TheirReading)
    values: dict[str, Any] = {"sensor": "a", "value": 1.5, "tags": ["x", "y"], "counts": {"n": 1}}
    our_consumer = ours.subscribe(topic, "ours", schema=our_schema)
    their_consumer = theirs.subscribe(topic, "theirs", schema=their_schema)
    ours.create_producer(topic, schema=our_schema).send(OurReading(**values))
    theirs.create_producer(topic, schema=their_schema).send(TheirReading(**values))
    seen_by_us = [our_consumer.receive(30_000) for _ in range(2)]
    seen_by_them = [their_consumer.receive(30_000) for _ in range(2)]

    assert [m.value() for m in seen_by_us] == [OurReading(**values)] * 2
    assert [m.value() for m in seen_by_them] == [TheirReading(**values)] * 2
    assert {m.int_schema_version() for m in seen_by_us} == {0}, "the definitions are the same"


def test_strings(ours: Any, theirs: Any, topic: str) -> None:
    their_consumer = theirs.subscribe(topic, "theirs", schema=pulsar.schema.StringSchema())
    our_consumer = ours.subscribe(topic, "ours", schema=penstock.StringSchema())
    ours.create_producer(topic, schema=penstock.StringSchema()).send("grüße")
    theirs.create_producer(topic, schema=pulsar.schema.StringSchema()).send("grüße")

    assert [their_consumer.receive(30_000).value() for _ in range(2)] == ["grüße"] * 2
    assert [our_consumer.receive(30_000).value() for _ in range(2)] == ["grüße"] * 2


def test_chunks_both_ways(ours: Any, theirs: Any, topic: str) -> None:
    large = bytes(range(256)) * 24 * 1024
    our_consumer = ours.subscribe(topic, "ours")
    their_consumer = theirs.subscribe(topic, "theirs")
    ours.create_producer(topic, chunking_enabled=True).send(large)
    theirs.create_producer(topic, chunking_enabled=True).send(large)

    assert [our_consumer.receive(30_000).data() == large for _ in range(2)] == [True, True]
    assert [their_consumer.receive(30_000).data() == large for _ in range(2)] == [True, True]


def test_a_shared_subscription_is_shared(ours: Any, theirs: Any, topic: str) -> None:
    our_consumer = ours.subscribe(topic, "sub", penstock.ConsumerType.Shared, receiver_queue_size=1)
    their_consumer = theirs.subscribe(topic, "sub", pulsar.ConsumerType.Shared, receiver_queue_size=1)
    producer = ours.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number)
    seen = [set(), set()]  # type: ignore[var-annotated]
    consumers = (our_consumer, their_consumer)
    for at, message in received_by(consumers, 20):
        seen[at].add(message.data())
        consumers[at].acknowledge(message)

    assert seen[0] | seen[1] == {b"%d" % number for number in range(20)}
    assert not seen[0] & seen[1]


def test_message_ids_are_each_others(ours: Any, theirs: Any, topic: str) -> None:
    ids = [ours.create_producer(topic).send(b"%d" % number) for number in range(4)]
    their_id = pulsar.MessageId.deserialize(ids[1].serialize())
    reader = theirs.create_reader(topic, their_id)
    message = reader.read_next(30_000)
    our_id = penstock.MessageId.deserialize(message.message_id().serialize())

    assert message.data() == b"2"
    assert our_id == ids[2]
    assert ours.create_reader(topic, our_id).read_next(30_000).data() == b"3"
    assert str(our_id) == str(message.message_id())
