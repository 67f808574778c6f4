"""Schemas over Pulsar's protocol, both ways, as the official client does them."""

from collections.abc import Iterator
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema
from tests.support.binary import TIMEOUT_MS, Pulsar, pulsar_server


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server() as made:
        yield made


class Flight(Record):  # type: ignore[misc]
    carrier = String(required=True)
    number = Integer(required=True)


LaterFlight = type(  # of the same name: Avro compares records by it
    "Flight",
    (Record,),
    {
        "carrier": String(required=True),
        "number": Integer(required=True),
        "context": String(default="?", required=True, required_default=True),
    },
)


class Hotel(Record):  # type: ignore[misc]
    beds = Integer(required=True)


def versions(server: Pulsar, topic: str) -> list[dict[str, Any]]:
    path = "/admin/v2/schemas/" + topic.split("://")[1] + "/schemas"
    answer = server.http.get(path)
    return list(answer.json()["getSchemaResponses"]) if answer.status_code == 200 else []


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_records(server: Pulsar, kind: Any) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, schema=kind(Flight))
    producer = server.client.create_producer(topic, schema=kind(Flight))
    producer.send(Flight(carrier="UA", number=1545))
    message = consumer.receive(TIMEOUT_MS)
    assert (message.value().carrier, message.value().number) == ("UA", 1545)
    found = versions(server, topic)
    assert [v["type"] for v in found] == [kind.__name__.removesuffix("Schema").upper()]


def test_texts_and_bytes(server: Pulsar) -> None:
    topic = server.topic()
    consumer = server.subscribe(topic, schema=StringSchema())
    server.client.create_producer(topic, schema=StringSchema()).send("ünïcode")
    assert consumer.receive(TIMEOUT_MS).value() == "ünïcode"
    assert [v["type"] for v in versions(server, topic)] == ["STRING"]
    plain = server.topic()
    consumer = server.subscribe(plain, schema=BytesSchema())
    server.client.create_producer(plain, schema=BytesSchema()).send(b"\x00\xff")
    assert consumer.receive(TIMEOUT_MS).value() == b"\x00\xff"
    assert versions(server, plain) == []


def test_a_schema_that_does_not_fit_is_refused(server: Pulsar) -> None:
    topic = server.topic()
    server.client.create_producer(topic, schema=AvroSchema(Flight)).send(Flight(carrier="UA", number=1))
    with pytest.raises(pulsar.IncompatibleSchema):
        server.client.create_producer(topic, schema=AvroSchema(Hotel))
    with pytest.raises(pulsar.IncompatibleSchema):
        server.client.create_producer(topic, schema=StringSchema())
    with pytest.raises(pulsar.IncompatibleSchema):
        server.subscribe(topic, schema=AvroSchema(Hotel))
    assert len(versions(server, topic)) == 1


def test_a_consumer_brings_the_first_schema_of_an_idle_topic(server: Pulsar) -> None:
    topic = server.topic()
    server.subscribe(topic, schema=JsonSchema(Flight))
    assert [v["type"] for v in versions(server, topic)] == ["JSON"]


def test_a_consumer_with_a_schema_of_a_topic_without(server: Pulsar) -> None:
    topic = server.topic()
    server.publish(topic, b"anything")
    with pytest.raises(pulsar.IncompatibleSchema):
        server.subscribe(topic, schema=JsonSchema(Flight))


def test_schemas_evolve_and_readers_resolve(server: Pulsar) -> None:
    topic = server.topic()
    old = server.client.create_producer(topic, schema=AvroSchema(Flight))
    old.send(Flight(carrier="UA", number=1))
    new = server.client.create_producer(topic, schema=AvroSchema(LaterFlight))
    new.send(LaterFlight(carrier="AA", number=2, context="B4"))
    assert [v["version"] for v in versions(server, topic)] == [0, 1]
    consumer = server.subscribe(topic, schema=AvroSchema(LaterFlight))
    values = [consumer.receive(TIMEOUT_MS).value() for _ in range(2)]
    assert [(v.carrier, v.context) for v in values] == [("UA", "?"), ("AA", "B4")]


def test_no_new_schemas_where_they_are_not_wanted(server: Pulsar) -> None:
    server.http.put("/admin/v2/namespaces/public/strict")
    topic = "persistent://public/strict/t"
    server.client.create_producer(topic, schema=StringSchema()).close()
    path = "/admin/v2/namespaces/public/strict/schemaValidationEnforced"
    assert server.http.post(path, json=True).status_code == 204
    with pytest.raises(pulsar.IncompatibleSchema):
        server.client.create_producer(topic)
    server.client.create_producer(topic, schema=StringSchema()).send("fine")
