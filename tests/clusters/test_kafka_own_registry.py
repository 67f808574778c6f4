"""Values that Confluent's serializers frame by this server's own registry, before a real Kafka."""

import base64
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.support.kafka_broker import KafkaCluster
from websockets.sync.client import connect

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.versions import BY_ID
from penstock.testing.server import Address, running

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "number", "type": "int"}]}
LATER: dict[str, Any] = {
    **FLIGHT,
    "fields": [{"name": "number", "type": "int"}, {"name": "carrier", "type": "string", "default": ""}],
}
SHAPE = {"title": "T", "type": "object", "properties": {"x": {"type": "integer"}}}


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    name = uuid4().hex[:10]
    engine = ClusterSettings(
        url=kafka_cluster.service_url,
        learned_ms=0,
        documents_topic=f"__{name}",
        schemas_topic=f"_schemas-{name}",
    )
    with running(engine=engine) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": server.registry_url})) as made:
        yield made


@pytest.fixture
def rest(server: Address) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


@pytest.fixture
def topic(rest: httpx.Client) -> str:
    name = f"own-{uuid4().hex[:10]}"
    assert rest.put(f"/admin/v2/persistent/public/default/{name}").status_code == 204
    return name


def produce(cluster: KafkaCluster, topic: str, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def consume(cluster: KafkaCluster, topic: str, count: int) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 60)
    consumer.close()
    return found


def messages(rest: httpx.Client, topic: str, count: int) -> list[Any]:
    wanted = {"include_schema": "true"}
    answer = rest.get(f"/topics/public/default/{topic}/partitions/0/messages", params=wanted)
    found: list[Any] = answer.raise_for_status().json()["messages"]
    assert len(found) == count
    return found


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_values_of_serializers_are_read(
    kafka_cluster: KafkaCluster, server: Address, client: SchemaRegistryClient, rest: httpx.Client, topic: str
) -> None:
    first = AvroSerializer(client, json.dumps(FLIGHT))({"number": 1}, context(topic))
    second = AvroSerializer(client, json.dumps(LATER))({"number": 2, "carrier": "UA"}, context(topic))
    unknown = b"\0\0\0\xff\xffbytes"
    produce(kafka_cluster, topic, first, second, unknown, None)
    found = messages(rest, topic, 4)
    assert [one["value"] for one in found[:2]] == [{"number": 1}, {"number": 2, "carrier": "UA"}]
    assert [one.get("schema_version") for one in found] == [0, 1, None, None]
    assert base64.b64decode(found[2]["value"]) == unknown
    with connect(
        f"{server.ws}/ws/v2/reader/persistent/public/default/{topic}?messageId=earliest", proxy=None
    ) as socket:
        frame = json.loads(socket.recv(60))
    assert (base64.b64decode(frame["payload"]), frame["schemaVersion"]) == (b"\x02", 0)


def test_values_that_are_published_here_are_read_by_deserializers(
    kafka_cluster: KafkaCluster, client: SchemaRegistryClient, rest: httpx.Client, topic: str
) -> None:
    shape = json.dumps(SHAPE)
    framed = JSONSerializer(shape, client)({"x": 1}, context(topic))
    produce(kafka_cluster, topic, framed)
    path = f"/topics/public/default/{topic}"
    rest.post(path, json={"messages": [{"value": {"x": 2}}]}).raise_for_status()
    values = [one.value() for one in consume(kafka_cluster, topic, 2)]
    read = JSONDeserializer(shape, schema_registry_client=client)
    assert [read(one, context(topic)) for one in values] == [{"x": 1}, {"x": 2}]
    assert values[0][:5] == values[1][:5]
    assert [one["value"] for one in messages(rest, topic, 2)] == [{"x": 1}, {"x": 2}]


def test_a_new_schema_of_a_topic_that_is_framed_gets_an_id(
    kafka_cluster: KafkaCluster, client: SchemaRegistryClient, rest: httpx.Client, topic: str
) -> None:
    AvroSerializer(client, json.dumps(FLIGHT))({"number": 1}, context(topic))
    schema = {"type": "AVRO", "schema": json.dumps(LATER)}
    body = {"value_schema": schema, "messages": [{"value": {"number": 2, "carrier": "UA"}}]}
    rest.post(f"/topics/public/default/{topic}", json=body).raise_for_status()
    (record,) = consume(kafka_cluster, topic, 1)
    assert AvroDeserializer(client)(record.value(), context(topic)) == {"number": 2, "carrier": "UA"}
    assert client.get_versions(f"{topic}-value") == [1, 2]
    assert messages(rest, topic, 1)[0]["schema_version"] == 1


def test_values_of_topics_without_clients_of_the_registry_stay_as_they_were(
    kafka_cluster: KafkaCluster, client: SchemaRegistryClient, rest: httpx.Client, topic: str
) -> None:
    schema = {"type": "AVRO", "schema": json.dumps(FLIGHT)}
    path = f"/topics/public/default/{topic}"
    body = {"value_schema": schema, "messages": [{"value": {"number": 2}}]}
    rest.post(path, json=body).raise_for_status()
    assert client.get_versions(f"{topic}-value") == [1]  # it has an id
    rest.post(path, json=body).raise_for_status()
    records = consume(kafka_cluster, topic, 2)
    assert [one.value() for one in records] == [b"\x04", b"\x04"]
    assert [dict(one.headers())["penstock-schema-version"] for one in records] == [b"0", b"0"]
    # Once a serializer registers the same schema, values are framed; those before it are read by their headers.
    AvroSerializer(client, json.dumps(FLIGHT))({"number": 1}, context(topic))
    rest.post(path, json=body).raise_for_status()
    framed = consume(kafka_cluster, topic, 3)[2].value()
    assert AvroDeserializer(client)(framed, context(topic)) == {"number": 2}
    assert [one["value"] for one in messages(rest, topic, 3)] == [{"number": 2}] * 3


def test_an_id_of_another_subject_is_no_version_of_a_topic(
    client: SchemaRegistryClient, rest: httpx.Client, topic: str
) -> None:
    mine = client.register_schema(f"{topic}-value", Schema(json.dumps(FLIGHT), "AVRO"))
    other = client.register_schema(f"{topic}-other", Schema(json.dumps(LATER), "AVRO"))
    path = f"/topics/public/default/{topic}"
    for number, stored in ((mine, True), (other, False)):
        value = {"number": 1} if stored else {"number": 1, "carrier": "UA"}
        body = {"schema_version": BY_ID + number, "messages": [{"value": value}]}
        answer = rest.post(path, json=body)
        refused = answer.status_code != 200 or answer.json()["messageIds"][0]["error_code"]
        assert bool(refused) is not stored, answer.text
    assert [one["value"] for one in messages(rest, topic, 1)] == [{"number": 1}]
