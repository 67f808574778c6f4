"""Values of the registry's serializers, produced through the REST proxy: every endpoint reads them, and deserializers get them back."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from websockets.sync.client import connect

from penstock.testing.server import Running, running

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "drink", "type": "string"}, {"name": "cups", "type": "int"}],
}
SHAPE = {
    "title": "Order",
    "type": "object",
    "properties": {"drink": {"type": "string"}, "cups": {"type": "integer"}},
}
TEA = {"drink": "tea", "cups": 2}
BINARY = {"content-type": "application/vnd.kafka.binary.v2+json"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as address:
        yield address


@pytest.fixture
def registry(server: Running) -> Iterator[SchemaRegistryClient]:
    with closing(SchemaRegistryClient({"url": server.registry_url})) as made:
        yield made


@pytest.fixture
def proxy(server: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.rest_proxy_url, trust_env=False) as made:
        yield made


def order_message() -> Any:
    """A message type of Protobuf with the same fields."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="drink", number=1, type=FieldDescriptorProto.TYPE_STRING)
    message.field.add(name="cups", number=2, type=FieldDescriptorProto.TYPE_INT32)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serde(kind: str, registry: SchemaRegistryClient) -> tuple[Any, Any]:
    """A function that serializes an order, and one that deserializes it."""
    if kind == "avro":
        return AvroSerializer(registry, json.dumps(ORDER)), AvroDeserializer(registry)
    if kind == "jsonschema":
        text = json.dumps(SHAPE)
        return JSONSerializer(text, registry), JSONDeserializer(text, schema_registry_client=registry)
    order = order_message()
    options = {"use.deprecated.format": False}
    writer = ProtobufSerializer(order, registry, options)
    reader = ProtobufDeserializer(order, options, registry)
    return (
        lambda value, context: writer(json_format.ParseDict(value, order()), context),
        lambda framed, context: json_format.MessageToDict(reader(framed, context)),
    )


def records(proxy: httpx.Client, topic: str, embedded: str) -> list[dict[str, Any]]:
    """What a new group reads of a topic in a format."""
    group = f"/consumers/{topic}-{embedded}"
    asked = {"format": embedded, "auto.offset.reset": "earliest"}
    instance = httpx.URL(proxy.post(group, json=asked).json()["base_uri"]).path.removeprefix("/rest")
    assert proxy.post(f"{instance}/subscription", json={"topics": [topic]}).status_code == 204
    accept = {"accept": f"application/vnd.kafka.{embedded}.v2+json"}
    answer = proxy.get(f"{instance}/records", params={"timeout": 20000}, headers=accept)
    assert answer.status_code == 200, answer.text
    proxy.delete(instance)
    found: list[dict[str, Any]] = answer.json()
    return found


@pytest.mark.parametrize("kind", ["avro", "jsonschema", "protobuf"])
def test_every_endpoint_reads_what_a_serializer_wrote(
    server: Running, registry: SchemaRegistryClient, proxy: httpx.Client, kind: str
) -> None:
    topic = f"orders-{kind}"
    serialize, deserialize = serde(kind, registry)
    context = SerializationContext(topic, MessageField.VALUE)
    framed = serialize(TEA, context)
    given = {"records": [{"key": b64encode(b"k").decode(), "value": b64encode(framed).decode()}]}
    answer = proxy.post(f"/topics/{topic}", json=given, headers=BINARY)
    assert answer.json()["offsets"][0]["offset"] == 0, answer.text
    messages = f"{server.url}/topics/public/default/{topic}/partitions/0/messages"
    (message,) = httpx.get(messages, trust_env=False).json()["messages"]
    assert (message["key"], message["value"], message["schema_version"]) == ("k", TEA, 0)
    path = f"{server.ws}/ws/v2/reader/persistent/public/default/{topic}?messageId=earliest"
    with connect(path, proxy=None) as socket:
        frame = json.loads(socket.recv(timeout=20))
    assert (b64decode(frame["payload"]), frame["schemaVersion"]) == (
        framed[6 if kind == "protobuf" else 5 :],
        0,
    )
    (record,) = records(proxy, topic, "binary")
    assert b64decode(record["value"]) == framed
    assert deserialize(b64decode(record["value"]), context) == TEA
    (record,) = records(proxy, topic, kind)
    assert record["value"] == TEA


def test_a_deserializer_reads_what_came_with_a_schema(
    server: Running, registry: SchemaRegistryClient, proxy: httpx.Client
) -> None:
    body = {"value_schema": {"type": "AVRO", "schema": ORDER}, "messages": [{"value": TEA}]}
    httpx.post(f"{server.url}/topics/public/default/typed", json=body, trust_env=False).raise_for_status()
    (record,) = records(proxy, "typed", "binary")
    context = SerializationContext("typed", MessageField.VALUE)
    assert AvroDeserializer(registry)(b64decode(record["value"]), context) == TEA


def test_bytes_that_only_look_framed_stay_as_they_are(
    server: Running, registry: SchemaRegistryClient, proxy: httpx.Client
) -> None:
    framed = AvroSerializer(registry, json.dumps(ORDER))(TEA, SerializationContext("odd", MessageField.VALUE))
    assert framed is not None
    odd = [b"\0", b"\0\0\0\0\1", framed[:5] + b"\xff", b"\0\x7f\xff\xff\xff" + framed[5:], b"plain"]
    given = {"records": [{"value": b64encode(each).decode()} for each in odd]}
    answer = proxy.post("/topics/odd", json=given, headers=BINARY)
    assert [each["error_code"] for each in answer.json()["offsets"]] == [None] * len(odd), answer.text
    assert [b64decode(record["value"]) for record in records(proxy, "odd", "binary")] == odd
    messages = f"{server.url}/topics/public/default/odd/partitions/0/messages"
    found = httpx.get(messages, trust_env=False).json()["messages"]
    assert [message["schema_version"] for message in found] == [None] * len(odd)
