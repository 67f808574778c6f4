"""One producer, many schemas (PIP-43)."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.client.aio.lookup import Schemas
from penstock.testing.server import Address


class Reading(penstock.Record):
    sensor = penstock.String(required=True)
    value = penstock.Double()


class ReadingWithUnit(penstock.Record):
    sensor = penstock.String(required=True)
    value = penstock.Double()
    unit = penstock.String(default="C", required_default=True)


ReadingWithUnit.__name__ = "Reading"


class Unrelated(penstock.Record):
    number = penstock.Integer(required=True)


EARLIEST = penstock.InitialPosition.Earliest


@pytest.fixture
def client(server: Address) -> Iterator[penstock.Client]:
    with penstock.Client(server.pulsar, operation_timeout_seconds=30) as client:
        yield client


def test_messages_have_schemas_of_their_own(client: penstock.Client, topic: str) -> None:
    old, new = penstock.AvroSchema(Reading), penstock.AvroSchema(ReadingWithUnit)
    producer = client.create_producer(topic, schema=old, batching_enabled=True)
    consumer = client.subscribe(topic, "sub", schema=new, initial_position=EARLIEST)
    results: list[penstock.Result] = []
    for number in range(3):
        producer.send_async(Reading(sensor="a", value=number), lambda result, _: results.append(result))
        producer.new_message(ReadingWithUnit(sensor="b", value=number, unit="F"), schema=new).send_async(
            lambda result, _: results.append(result)
        )
    producer.flush()
    messages = [consumer.receive(30_000) for _ in range(6)]

    assert results == [penstock.Result.Ok] * 6
    assert [m.int_schema_version() for m in messages] == [0, 1, 0, 1, 0, 1]
    values = [m.value() for m in messages]
    assert [(v.sensor, v.value, v.unit) for v in values] == [
        (sensor, float(number), unit) for number in range(3) for sensor, unit in (("a", "C"), ("b", "F"))
    ]
    entries = {m.message_id().entry_id(): m.int_schema_version() for m in messages}
    assert len(entries) == 6, "a batch holds one version"


def test_an_incompatible_schema_fails_its_message_alone(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=penstock.AvroSchema(Reading), batching_enabled=True)
    consumer = client.subscribe(topic, "sub", schema=penstock.AutoConsumeSchema(), initial_position=EARLIEST)
    results: list[penstock.Result] = []

    def tell(result: penstock.Result, message_id: object) -> None:
        results.append(result)

    producer.send_async(Reading(sensor="a", value=1.0), tell)
    producer.new_message(Unrelated(number=1), schema=penstock.AvroSchema(Unrelated)).send_async(tell)
    producer.send_async(Reading(sensor="b", value=2.0), tell)
    producer.flush()

    assert results.count(penstock.Result.IncompatibleSchema) == 1
    assert results.count(penstock.Result.Ok) == 2
    assert [consumer.receive(30_000).value() for _ in range(2)] == [
        {"sensor": "a", "value": 1.0},
        {"sensor": "b", "value": 2.0},
    ]
    with pytest.raises(penstock.IncompatibleSchema):
        producer.new_message(Unrelated(number=1), schema=penstock.AvroSchema(Unrelated)).send()


def test_multi_schema_can_be_switched_off(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, multi_schema=False)

    with pytest.raises(penstock.InvalidConfiguration, match="multi_schema=False"):
        producer.new_message("text", schema=penstock.StringSchema()).send()


def test_bytes_that_are_encoded_already(client: penstock.Client, topic: str) -> None:
    avro = penstock.AvroSchema(Reading)
    client.create_producer(topic, schema=avro).close()
    producer = client.create_producer(topic, schema=penstock.AutoProduceBytesSchema())
    consumer = client.subscribe(topic, "sub", schema=avro, initial_position=EARLIEST)

    producer.send(avro.encode(Reading(sensor="a", value=1.0)))
    new = penstock.AvroSchema(ReadingWithUnit)
    payload = new.encode(ReadingWithUnit(sensor="b", value=2.0, unit="K"))
    producer.new_message(payload, schema=penstock.AutoProduceBytesSchema(new)).send()

    first, second = consumer.receive(30_000), consumer.receive(30_000)
    assert (first.value().sensor, first.int_schema_version()) == ("a", 0)
    assert (second.value().sensor, second.int_schema_version()) == ("b", 1)
    with pytest.raises(penstock.InvalidMessage):
        producer.send(b"\xff\xff no Avro")


def test_bytes_for_a_topic_without_schema(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=penstock.AutoProduceBytesSchema())
    consumer = client.subscribe(topic, "sub", initial_position=EARLIEST)
    producer.send(b"anything")

    assert consumer.receive(30_000).int_schema_version() == -1


@pytest.mark.parametrize("encoding", list(penstock.KeyValueEncodingType))
def test_pairs(client: penstock.Client, topic: str, encoding: penstock.KeyValueEncodingType) -> None:
    schema = penstock.KeyValueSchema(penstock.StringSchema(), penstock.AvroSchema(Reading), encoding)
    producer = client.create_producer(topic, schema=schema)
    consumer = client.subscribe(topic, "sub", schema=schema, initial_position=EARLIEST)
    reading = Reading(sensor="a", value=1.5)
    producer.send(("key", reading))
    producer.send(("key", None))

    message = consumer.receive(30_000)
    assert message.value() == ("key", reading)
    assert bool(message.partition_key()) is (encoding is penstock.KeyValueEncodingType.SEPARATED)
    assert consumer.receive(30_000).value() == ("key", None)


def test_null_values(client: penstock.Client, topic: str) -> None:
    producer = client.create_producer(topic, schema=penstock.StringSchema())
    consumer = client.subscribe(topic, "sub", schema=penstock.StringSchema(), initial_position=EARLIEST)
    producer.send(None, partition_key="k")

    message = consumer.receive(30_000)
    assert message.has_null_value()
    assert message.value() is None


def test_a_schema_that_does_not_fit_the_topic(client: penstock.Client, topic: str) -> None:
    client.create_producer(topic, schema=penstock.AvroSchema(Reading))

    with pytest.raises(penstock.IncompatibleSchema):
        client.create_producer(topic, schema=penstock.AvroSchema(Unrelated))
    with pytest.raises(penstock.IncompatibleSchema):
        client.subscribe(topic, "sub", schema=penstock.AvroSchema(Unrelated))


@pytest.mark.parametrize(
    ("kind", "value"), [("INT32", 42), ("INT64", -1), ("DOUBLE", 1.5), ("BOOLEAN", True), ("STRING", "text")]
)
def test_primitives(client: penstock.Client, topic: str, kind: str, value: object) -> None:
    schema = penstock.PrimitiveSchema(kind)
    producer = client.create_producer(topic, schema=schema)
    consumer = client.subscribe(topic, "sub", schema=schema, initial_position=EARLIEST)
    producer.send(value)

    assert consumer.receive(30_000).value() == value


def test_a_schema_that_cannot_be_fetched_yet_is_said_once(
    client: penstock.Client, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask, left = Schemas.version, [3]

    async def version(self: Schemas, *given: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise penstock.Timeout("no answer")
        return await ask(self, *given)

    producer = client.create_producer(topic, schema=penstock.AvroSchema(Reading))
    producer.send(Reading(sensor="a", value=1.0))
    monkeypatch.setattr(Schemas, "version", version)
    with caplog.at_level(logging.INFO, logger="penstock.client"):
        consumer = client.subscribe(
            topic, "sub", schema=penstock.AvroSchema(ReadingWithUnit), initial_position=EARLIEST
        )
        assert consumer.receive(30_000).value().unit == "C"
    lines = [one.getMessage() for one in caplog.records if one.name == "penstock.client"]
    assert [("cannot be fetched" in line, "was fetched" in line) for line in lines] == [
        (True, False),
        (False, True),
    ]
