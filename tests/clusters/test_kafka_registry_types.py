"""What a real registry holds beside plain Avro and JSON: Protobuf, schemas that use others, keys, and other subjects' names."""

from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pulsar  # type: ignore[import-untyped]
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from tests.support.kafka_broker import KafkaCluster
from tests.support.registry_clients import Foreign, avro, broker_before, encoded, engine_of, framed, new_name
from tests.support.schemas import Endpoints

from penstock.codec.codec import Codec
from penstock.codec.lookup import codec_for
from penstock.codec.proto.native import of_proto, with_root
from penstock.engines.kafka.versions import BY_ID, MESSAGE, pair
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import murmur2
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.testing.server import Address, running

MONEY = """syntax = "proto3";
package shop.common;
enum Currency { EUR = 0; USD = 1; }
message Money { int64 cents = 1; Currency currency = 2; }
"""
ORDER = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "%s";
message Order {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  shop.common.Money price = 3;
  map<string, Line> lines = 4;
  message Line { string name = 1; }
}
message Cancel { int64 id = 1; }
"""
VALUE = {
    "id": "7",
    "at": "2023-11-14T22:13:20Z",
    "price": {"cents": "5", "currency": "USD"},
    "lines": {"a": {"name": "n"}},
}


@pytest.fixture
def foreign(kafka_cluster: KafkaCluster, registry_url: str) -> Foreign:
    return Foreign(kafka_cluster, registry_url)


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster, registry_url: str) -> Iterator[Address]:
    with running(engine=engine_of(kafka_cluster, registry_url)) as address:
        yield address


@pytest.fixture
def endpoints(server: Address) -> Iterator[Endpoints]:
    """Of a topic of the test's own, which is there."""
    with httpx.Client(base_url=server.url, timeout=60) as http:
        made = Endpoints(server, http, name=new_name().local)
        http.put(f"/admin/v2/persistent/public/default/{made.name}").raise_for_status()
        yield made


def message(schema: SchemaInfo, name: str) -> SchemaInfo:
    found = with_root(schema, name)
    assert found is not None
    return found[1]


def payload(schema: SchemaInfo, value: Any) -> bytes:
    codec: Codec = codec_for(schema)
    return codec.encode(value)


def described(schema: SchemaInfo) -> dict[str, Any]:
    """As a request has it."""
    return {"type": schema.type.name, "schema": schema.data.decode()}


def test_protobuf(endpoints: Endpoints, foreign: Foreign) -> None:
    """Others' values of any message of a file that imports others are read, and ours are framed as theirs."""
    topic = endpoints.name
    used = f"{topic}/money.proto"
    text = ORDER % used
    foreign.register(used.replace("/", "-"), MONEY, "PROTOBUF")
    number = foreign.register(f"{topic}-value", text, "PROTOBUF", **{used: used.replace("/", "-")})
    order = of_proto(text, {used: MONEY})
    cancel, line = message(order, "shop.Cancel"), message(order, "shop.Order.Line")
    foreign.produce(
        topic,
        framed(number, b"\0" + payload(order, VALUE)),
        framed(number, b"\x02\x02" + payload(cancel, {"id": 3})),
        framed(number, b"\x04\0\x02" + payload(line, {"name": "n"})),
    )
    expected = [(VALUE, 1), ({"id": "3"}, 1 + 2 * MESSAGE), ({"name": "n"}, 1 + MESSAGE)]
    assert endpoints.values_and_versions() == expected
    answer = endpoints.publish(value_schema=described(cancel), messages=[{"value": {"id": 4}}])
    assert answer["schema_version"] == 1 + 2 * MESSAGE  # the file is there
    frames = endpoints.reader(4)
    assert [one["schemaVersion"] for one in frames] == [
        *(version for _, version in expected),
        1 + 2 * MESSAGE,
    ]
    assert b64decode(frames[3]["payload"]) == payload(cancel, {"id": 4})
    assert foreign.consume(topic, 4)[3] == framed(number, b"\x02\x02" + payload(cancel, {"id": 4}))


def test_protobuf_of_ours(
    kafka_cluster: KafkaCluster, registry_url: str, endpoints: Endpoints, foreign: Foreign
) -> None:
    """Descriptors become `.proto` files, each import a subject of its name, and the root is the file's first message."""
    used = f"{endpoints.name}.proto"
    schema = message(of_proto(ORDER % used, {used: MONEY}), "shop.Cancel")
    answer = endpoints.publish(value_schema=described(schema), messages=[{"value": {"id": 1}}])
    assert answer["schema_version"] == 1
    shown = foreign.get(f"/subjects/{endpoints.name}-value/versions/1")
    assert shown["schemaType"] == "PROTOBUF"
    assert [(one["name"], one["subject"]) for one in shown["references"]] == [(used, used)]
    assert shown["schema"].index("message Cancel") < shown["schema"].index("message Order")
    assert foreign.get(f"/subjects/{used}/versions") == [1]
    value = foreign.consume(endpoints.name, 1)[0]
    assert value == framed(shown["id"], b"\0" + payload(schema, {"id": 1}))
    with (
        running(engine=engine_of(kafka_cluster, registry_url)) as fresh,
        httpx.Client(base_url=fresh.url, timeout=60) as http,
    ):
        again = Endpoints(fresh, http, name=endpoints.name)
        again.publish(value_schema=described(schema), messages=[{"value": {"id": 2}}])
        assert again.values_and_versions() == [({"id": "1"}, 1), ({"id": "2"}, 1)]


def test_protobuf_as_descriptors(endpoints: Endpoints, foreign: Foreign) -> None:
    """Some clients register base64 of a descriptor: Confluent's for Python does."""
    file = FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    file.message_type.add(name="A").field.add(name="n", number=1, type=5, label=1)
    text = b64encode(file.SerializeToString()).decode()
    number = foreign.register(f"{endpoints.name}-value", text, "PROTOBUF")
    foreign.produce(endpoints.name, framed(number, b"\0\x08\x05"))
    assert endpoints.values_and_versions() == [({"n": 5}, 1)]


def test_avro_that_uses_other_subjects(endpoints: Endpoints, foreign: Foreign) -> None:
    city = {
        "type": "record",
        "name": "City",
        "namespace": "geo",
        "fields": [{"name": "name", "type": "string"}],
    }
    person = {"type": "record", "name": "Person", "fields": [{"name": "home", "type": "geo.City"}]}
    used = f"{endpoints.name}-city"
    foreign.register(used, msgspec.json.encode(city).decode())
    number = foreign.register(
        f"{endpoints.name}-value", msgspec.json.encode(person).decode(), **{"geo.City": used}
    )
    foreign.produce(endpoints.name, framed(number, b"\x02x"))
    assert endpoints.values_and_versions() == [({"home": {"name": "x"}}, 1)]
    whole = {**person, "fields": [{"name": "home", "type": city}]}
    answer = endpoints.publish(
        value_schema={"type": "AVRO", "schema": msgspec.json.encode(whole).decode()},
        messages=[{"value": {"home": {"name": "y"}}}],
    )
    assert answer["schema_version"] == 1  # it means the same
    assert foreign.consume(endpoints.name, 2)[1] == framed(number, b"\x02y")


def test_keys(server: Address, endpoints: Endpoints, foreign: Foreign) -> None:
    """Keys of a subject of their own are pairs with the values, at every endpoint."""
    topic = endpoints.name
    key, value = avro("k"), avro("v")
    numbers = [
        foreign.register(f"{topic}-{part}", one.data.decode())
        for part, one in (("key", key), ("value", value))
    ]
    framed_key = framed(numbers[0], encoded(key, k="one"))
    foreign.produce(topic, framed(numbers[1], encoded(value, v="x")), None, key=framed_key)
    foreign.produce(topic, framed(numbers[1], encoded(value, v="y")), key=b"plain")
    read = endpoints.read(include_schema=True)["messages"]
    both, alone = pair(1, 1), pair(1, 0)
    assert [(one["key"], one["value"], one["schema_version"]) for one in read] == [
        ({"k": "one"}, {"v": "x"}, both),
        ({"k": "one"}, None, alone),
        ("plain", {"v": "y"}, 1),
    ]
    answer = endpoints.publish(
        key_schema=described(key),
        value_schema=described(value),
        messages=[{"key": {"k": "one"}, "value": {"v": "z"}}],
    )
    assert answer["schema_version"] == both
    assert foreign.records(topic, 4)[3] == (framed_key, framed(numbers[1], encoded(value, v="z")))
    client = pulsar.Client(server.pulsar, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = [reader.read_next(60_000) for _ in range(4)]
        assert [one.data() for one in found] == [
            encoded(value, v="x"),
            b"",
            encoded(value, v="y"),
            encoded(value, v="z"),
        ]
        text = b64encode(encoded(key, k="one")).decode()
        assert [one.partition_key() for one in found] == [text, text, "plain", text]
    finally:
        client.close()


def test_keys_with_a_schema_choose_partitions_with_their_framing(
    endpoints: Endpoints, foreign: Foreign
) -> None:
    """As serializers of Kafka's producers do, which partition what they serialized; Spark's sink is told what to hash."""
    endpoints = Endpoints(endpoints.server, endpoints.http, name=f"{endpoints.name}-of-5")
    topic = endpoints.name
    path = f"/admin/v2/persistent/public/default/{topic}/partitions"
    assert endpoints.http.put(path, json=5).status_code == 204
    key, value = avro("k"), avro("v")
    number = foreign.register(f"{topic}-key", key.data.decode())
    texts = [f"order-{n}" for n in range(12)]
    answer = endpoints.publish(
        key_schema=described(key),
        value_schema=described(value),
        messages=[{"key": {"k": text}, "value": {"v": "x"}} for text in texts],
    )
    assert [one["partition"] for one in answer["messageIds"]] == [
        murmur2(framed(number, encoded(key, k=text))) % 5 for text in texts
    ]
    body = {"topics": [topic], "key_versions": {topic: answer["schema_version"]}}
    (opened,) = endpoints.http.post("/stages", json=body).json()["topics"]
    assert (opened["partitions"], opened["partitioner"]) == (5, "murmur2")
    assert b64decode(opened["key_prefix"]) == framed(number, b"")


@pytest.mark.parametrize("subjects", ["record", "topic-record"])
async def test_subjects_by_the_name_of_the_record(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign, subjects: str
) -> None:
    async with broker_before(kafka_cluster, registry_url, schema_registry_subjects=subjects) as broker:
        name = new_name()
        record = f"R{name.local[-12:]}"
        schemas = [
            SchemaInfo(SchemaType.AVRO, avro(*some).data.replace(b'"R"', f'"{record}"'.encode()), record)
            for some in ("a", "ab")
        ]
        producer = await broker.producer(name)
        versions = [await producer.schema_version(schema) for schema in (*schemas, schemas[0])]
        subject = record if subjects == "record" else f"{name.local}-{record}"
        ids = [foreign.get(f"/subjects/{subject}/versions/{one}")["id"] for one in (1, 2)]
        assert versions == [BY_ID + ids[0], BY_ID + ids[1], BY_ID + ids[0]]
        assert broker.schemas.find(name, schemas[1]) == versions[1]
        assert broker.schemas.latest(name) is None
        with pytest.raises(PenstockError) as caught:
            await producer.schema_version(SchemaInfo(SchemaType.JSON))
        assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA
        assert "record" in caught.value.message


async def test_the_level_of_a_subject_is_the_strategy(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        producer = await broker.producer(name)
        await producer.schema_version(avro("a"))
        foreign.be_compatible(f"{name.local}-value", "FORWARD_TRANSITIVE")
        await broker.topics.learn(name)
        assert broker.schemas.strategy(name).value == "FORWARD_TRANSITIVE"
        foreign.be_compatible(f"{name.local}-value", "NONE")
        await broker.topics.learn(name)
        assert broker.schemas.strategy(name).value == "ALWAYS_COMPATIBLE"
