"""Schemas of Kafka's topics through every endpoint (PIP-43), in a compacted topic and in a registry."""

import asyncio
from collections.abc import Iterator
from uuid import uuid4

import httpx
import pulsar  # type: ignore[import-untyped]
import pytest
from confluent_kafka import Producer
from pulsar.schema import AvroSchema, Record, String  # type: ignore[import-untyped]
from tests.support.kafka_broker import KafkaCluster
from tests.support.schemas import A, B, C, Endpoints, avro, b64, record, tell_values_without_a_schema

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.runtime.clock import LoopClock
from penstock.testing.server import Address, running


@pytest.fixture(scope="module", params=["documents", "registry"])
def engine(kafka_cluster: KafkaCluster, request: pytest.FixtureRequest) -> ClusterSettings:
    """Settings before the cluster, with and without a registry."""
    registry = request.getfixturevalue("registry_url") if request.param == "registry" else ""
    return ClusterSettings(
        url=kafka_cluster.service_url,
        learned_ms=0,
        documents_topic=f"__{uuid4().hex[:10]}",
        schema_registry=registry,
    )


@pytest.fixture(scope="module")
def server(engine: ClusterSettings) -> Iterator[Address]:
    with running(engine=engine) as address:
        yield address


@pytest.fixture(scope="module")
def first(engine: ClusterSettings) -> int:
    """The number of a topic's first version: a registry counts from 1."""
    return 1 if engine.schema_registry else 0


@pytest.fixture
def endpoints(server: Address) -> Iterator[Endpoints]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield Endpoints(server, http, name=f"schemas-{uuid4().hex[:12]}")


def test_one_request_many_schemas(endpoints: Endpoints, first: int) -> None:
    endpoints.register(record(A))
    answer = endpoints.publish(
        schema_version=first,
        messages=[
            {"value": {"a": 1}},
            {"value": {"a": 2, "b": "x"}, "value_schema": avro(A, B)},
            {"value": {"a": 2**31}},
            {"value": {"a": 5}, "key": "k"},
        ],
    )
    versions = [slot["schema_version"] for slot in answer["messageIds"]]
    assert versions == [first, first + 1, None, first]
    expected = [({"a": 1}, first), ({"a": 2, "b": "x"}, first + 1), ({"a": 5}, first)]
    assert endpoints.values_and_versions() == expected
    seen = [(frame["payload"], frame["schemaVersion"]) for frame in endpoints.reader(3)]
    assert seen == [(b64(b"\x02"), first), (b64(b"\x04\x02x"), first + 1), (b64(b"\x0a"), first)]
    assert [one["version"] for one in endpoints.versions()] == [first, first + 1]


def test_values_without_a_schema(endpoints: Endpoints) -> None:
    tell_values_without_a_schema(endpoints)


def test_one_producer_many_schemas_over_websocket(endpoints: Endpoints, first: int) -> None:
    answers = endpoints.frames(
        {"payload": b64(b"\x02"), "valueSchema": avro(A)},
        {"payload": b64(b"\x04\x02x"), "valueSchema": avro(A, B)},
        {"payload": b64(b"\x06"), "schemaVersion": first},
        {"payload": b64(b"\x08"), "schemaVersion": first + 1},
        {"payload": b64(b"\x0a"), "schemaVersion": 9},
    )
    assert [a["result"] == "ok" for a in answers] == [True, True, True, False, False]
    expected = [({"a": 1}, first), ({"a": 2, "b": "x"}, first + 1), ({"a": 3}, first)]
    assert endpoints.values_and_versions() == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [("string", "é"), ("json", {"a": [1, None]}), ("int32", -1), ("date", "1970-01-02"), ("bytes", "AP8=")],
)
def test_types_without_a_definition(endpoints: Endpoints, kind: str, value: object) -> None:
    version = endpoints.publish(schema_type=kind, messages=[{"value": value}])["schema_version"]
    assert (version is None) is (kind == "bytes")
    assert endpoints.values_and_versions() == [(value, version)]


def test_pairs_of_key_and_value(endpoints: Endpoints) -> None:
    request = {"key_schema": {"type": "STRING"}, "value_schema": avro(A)}
    version = endpoints.publish(**request, messages=[{"key": "k", "value": {"a": 1}}])["schema_version"]
    (found,) = endpoints.read()["messages"]
    assert (found["key"], found["value"], found["schema_version"]) == ("k", {"a": 1}, version)


class Order(Record):  # type: ignore[misc] # the client has no types
    a = String()


def test_an_official_client(server: Address, endpoints: Endpoints, first: int) -> None:
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(
            endpoints.name,
            "s",
            schema=AvroSchema(Order),
            initial_position=pulsar.InitialPosition.Earliest,
        )
        producer = client.create_producer(endpoints.name, schema=AvroSchema(Order))
        producer.send(Order(a="from the client"))
        endpoints.publish(schema_version=first, messages=[{"value": {"a": "by REST"}}])
        found = [consumer.receive(60_000) for _ in range(2)]
        assert [one.value().a for one in found] == ["from the client", "by REST"]
        expected = [({"a": "from the client"}, first), ({"a": "by REST"}, first)]
        assert endpoints.values_and_versions() == expected
    finally:
        client.close()


def test_what_may_not_follow_in_documents(endpoints: Endpoints, first: int) -> None:
    if first:
        return  # a registry decides by its own settings: test_kafka_registry.py
    endpoints.register(record(A))
    endpoints.register(record(A, C), status=409)
    endpoints.publish(409, value_schema=avro(A, C), messages=[{"value": {"a": 1, "c": "x"}}])
    endpoints.register(record(A, B))
    assert [one["version"] for one in endpoints.versions()] == [0, 1]


def test_others_records_have_no_schema(kafka_cluster: KafkaCluster, endpoints: Endpoints) -> None:
    """A topic has a schema, and another's producer writes plain bytes: they stay bytes."""
    version = endpoints.publish(value_schema=avro(A), messages=[{"value": {"a": 1}}])["schema_version"]
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap})
    producer.produce(endpoints.name, b"plain", partition=0)
    assert producer.flush(60) == 0
    assert endpoints.values_and_versions() == [({"a": 1}, version), (b64(b"plain"), None)]


async def test_processes_register_different_schemas_at_once(engine: ClusterSettings, first: int) -> None:
    """Each gets a version of its own, the same in both processes; of equal ones there is one, which Apicurio does not promise."""
    name = TopicName.of("persistent", "public", "default", f"schemas-{uuid4().hex[:12]}")
    brokers = [KafkaBroker(engine, BrokerSettings(), LoopClock()) for _ in range(2)]

    def schema(letter: str) -> SchemaInfo:
        field = f'{{"name":"{letter}","type":["null","string"],"default":null}}'
        return SchemaInfo(SchemaType.AVRO, f'{{"type":"record","name":"R","fields":[{field}]}}'.encode(), "R")

    try:
        for broker in brokers:
            await broker.start()
        await brokers[0].topics.create(name, 0)
        wanted = [(broker, letter) for letter in "abcd" for broker in (*brokers, *brokers)]
        found = await asyncio.gather(
            *(one.schemas.get_or_create(name, schema(letter)) for one, letter in wanted)
        )
        assert None not in found
        letters = {version: letter for (_, letter), version in zip(wanted, found, strict=True)}
        assert [letters[version] for version in found] == [letter for _, letter in wanted]
        if not first:
            assert sorted(version or 0 for version in letters) == [0, 1, 2, 3]
        for broker in brokers:
            await broker.topics.learn(name)
            for version, letter in letters.items():
                held = await broker.schemas.find_version(name, version or 0)
                assert held.schema.data == schema(letter).data
    finally:
        for broker in brokers:
            await broker.close()
