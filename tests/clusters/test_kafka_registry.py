"""Schemas in a real registry (Apicurio, which has Confluent's API): Penstock and clients with Confluent's framing read each other."""

import asyncio
import contextlib
from uuid import uuid4

import httpx
import msgspec
import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.registry_clients import (
    Foreign,
    avro,
    broker_before,
    encoded,
    engine_of,
    framed,
    new_name,
)
from tests.support.relay import Relay
from tests.support.schemas import Endpoints, b64
from tests.support.stored import stored
from tests.support.waiting import until_async

from penstock.broker.settings import BrokerSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.versions import BY_ID, DOCUMENTS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage
from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.runtime.clock import LoopClock
from penstock.testing.server import running
from penstock.wire import entry as wire


@pytest.fixture
def foreign(kafka_cluster: KafkaCluster, registry_url: str) -> Foreign:
    return Foreign(kafka_cluster, registry_url)


async def test_one_producer_has_many_schemas(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        producer = await broker.producer(name)
        versions = [await producer.schema_version(avro(*names)) for names in ("a", "ab", "a")]
        assert versions == [1, 2, 1]
        messages = [
            OutMessage(payload=encoded(avro("a"), a="x"), schema_version=1),
            OutMessage(payload=encoded(avro(*"ab"), a="y", b="z"), schema_version=2, properties={"p": "q"}),
            OutMessage(payload=b"", null_value=True),
            OutMessage(payload=b"bytes"),
        ]
        assert not [one for one in await producer.publish(messages) if isinstance(one, PenstockError)]
        values = await asyncio.to_thread(foreign.consume, name.local, 4)
        assert [foreign.deserialize(one) for one in values[:2]] == [{"a": "x"}, {"a": "y", "b": "z"}]
        assert values[2:] == [None, b"bytes"]
        found = await stored(broker, name)
        assert [one.payload for one in found] == [one.payload for one in messages]
        assert [one.schema_version for one in found] == [1, 2, None, None]
        assert [one.version for one in broker.schemas.all(name)] == [1, 2]
        newest = broker.schemas.latest(name)
        assert newest is not None
        assert (newest.version, newest.schema.data) == (2, avro(*"ab").data)


async def test_others_records_have_versions_of_their_topic(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        await broker.topics.create(name, 0)
        first = foreign.register(f"{name.local}-value", avro("a").data.decode())
        second = foreign.register(f"{name.local}-value", avro(*"ab").data.decode())
        other = foreign.register(f"{name.local}-other", avro(*"abc").data.decode())
        never = 2**31 - 2
        values = [
            framed(second, encoded(avro(*"ab"), a="x", b="y")),
            framed(first, encoded(avro("a"), a="x")),
            framed(other, encoded(avro(*"abc"), a="x", b="y", c="z")),
            framed(never, b"looks like it"),
            b"\0\0",
            None,
        ]
        foreign.produce(name.local, *values)
        found = await stored(broker, name)
        assert [one.schema_version for one in found] == [2, 1, BY_ID + other, None, None, None]
        assert [one.payload for one in found[:3]] == [value[5:] for value in values[:3] if value]
        assert [one.payload for one in found[3:]] == [values[3], values[4], b""]
        assert broker.schemas.version(name, BY_ID + other).schema.data == avro(*"abc").data


async def test_what_comes_while_a_topic_is_followed(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    """A log that is followed meets a schema that nobody knew when it began."""
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        await broker.topics.create(name, 0)
        log = await broker.topics.get(name)
        grown = asyncio.Event()
        log.followers.add(grown.set)
        number = foreign.register(f"{name.local}-value", avro("a").data.decode())
        found: list[Message] = []
        at = 0
        for turn in range(3):
            if turn == 2:
                number = foreign.register(f"{name.local}-value", avro(*"ab").data.decode())
            value = framed(number, encoded(avro(*"ab"[: turn // 2 + 1]), a=str(turn)))
            await asyncio.to_thread(foreign.produce, name.local, value)
            while len(found) <= turn:
                await log.grown(at, 60_000)
                for entry in await log.read(at, 100):
                    found += wire.decode(entry)
                    at = entry.end
        assert [one.schema_version for one in found] == [1, 1, 2]
        assert [one.payload[2:3] for one in found] == [b"0", b"1", b"2"]
        log.followers.discard(grown.set)


async def test_the_registry_says_what_may_follow(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        producer = await broker.producer(name)
        assert await producer.schema_version(avro("a")) == 1
        foreign.be_compatible(f"{name.local}-value", "FULL")
        demanding = SchemaInfo(
            SchemaType.AVRO, b'{"type":"record","name":"R","fields":[{"name":"n","type":"int"}]}', "R"
        )
        assert await broker.schemas.objection(name, demanding) is not None
        assert await broker.schemas.objection(name, avro(*"ab")) is None
        for schema in (demanding, STRING_SCHEMA):
            with pytest.raises(PenstockError) as caught:
                await producer.schema_version(schema)
            assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA
        assert await producer.schema_version(avro(*"ab")) == 2


async def test_types_that_a_registry_does_not_hold(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    """They are documents, and the records say so: other clients see the plain value."""
    documents = f"__{uuid4().hex[:10]}"
    name = new_name()
    framing_like = b"\0\0\0\0\x01" + b"!"
    async with broker_before(kafka_cluster, registry_url, documents) as broker:
        producer = await broker.producer(name)
        version = await producer.schema_version(STRING_SCHEMA)
        assert version == DOCUMENTS
        foreign.register("any", avro("a").data.decode())
        await producer.publish(
            [OutMessage(payload=b"text", schema_version=version), OutMessage(payload=framing_like)]
        )
        await producer.publish_plain([framing_like], None)
        assert await asyncio.to_thread(foreign.consume, name.local, 3) == [
            b"text",
            framing_like,
            framing_like,
        ]
        assert [one.payload for one in await stored(broker, name)] == [b"text", framing_like, framing_like]
    async with broker_before(kafka_cluster, registry_url, documents) as again:
        assert [one.schema_version for one in await stored(again, name)] == [version, None, None]
        assert again.schemas.version(name, version).schema.type is SchemaType.STRING


async def test_json_is_a_json_schema_there(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    name = new_name()
    mine = SchemaInfo(SchemaType.JSON, avro("a").data, "R")
    async with broker_before(kafka_cluster, registry_url) as broker:
        producer = await broker.producer(name)
        assert await producer.schema_version(mine) == 1
        shown = foreign.get(f"/subjects/{name.local}-value/versions/1")
        assert shown["schemaType"] == "JSON"
        text = {"oneOf": [{"type": "null"}, {"type": "string"}]}
        assert msgspec.json.decode(shown["schema"])["properties"] == {"a": text}
    async with broker_before(kafka_cluster, registry_url) as again:
        await again.topics.learn(name)
        assert again.schemas.find(name, mine) == 1
        found = again.schemas.latest(name)
        assert found is not None
        assert (found.schema.type, found.schema.data) == (SchemaType.JSON, mine.data)


async def test_a_schema_that_is_deleted(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        producer = await broker.producer(name)
        version = await producer.schema_version(avro("a"))
        await producer.publish([OutMessage(payload=encoded(avro("a"), a="x"), schema_version=version)])
        assert await broker.schemas.delete(name) == 1
        assert broker.schemas.latest(name) is None
        with pytest.raises(PenstockError) as caught:
            broker.schemas.get(name)
        assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND
        (found,) = await stored(broker, name)
        assert found.schema_version == version
        assert broker.schemas.version(name, 1).schema.data == avro("a").data


async def test_two_processes_register_at_once(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    name = new_name()
    async with (
        broker_before(kafka_cluster, registry_url) as one,
        broker_before(kafka_cluster, registry_url) as two,
    ):
        await one.topics.create(name, 0)
        producers = [await broker.producer(name) for broker in (one, two)]
        versions = await asyncio.gather(*(producer.schema_version(avro("a")) for producer in producers))
        for producer, version in zip(producers, versions, strict=True):
            await producer.publish([OutMessage(payload=encoded(avro("a"), a="x"), schema_version=version)])
        for broker in (one, two):
            shown = [message.schema_version for message in await stored(broker, name)]
            # One version, but for a registry that does not look twice: it gives both the same id, by which messages name it.
            assert len(shown) == len(versions)
            assert set(shown) <= set(versions)
            for version in versions:
                assert broker.schemas.version(name, version or 0).schema.data == avro("a").data


async def test_while_the_registry_is_away(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.kafka.schema_registry.learning.AWAY_MS", 200)
    real = httpx.URL(registry_url)
    assert real.port is not None
    relay = Relay(real.port)
    try:
        async with broker_before(kafka_cluster, str(real.copy_with(port=relay.port))) as broker:
            name = new_name()
            producer = await broker.producer(name)
            version = await producer.schema_version(avro("a"))
            number = foreign.register(f"{name.local}-value", avro(*"ab").data.decode())
            payloads = [encoded(avro("a"), a="x"), encoded(avro(*"ab"), a="x", b="y")]
            relay.target = 0
            relay.cut()
            (result,) = await producer.publish([OutMessage(payload=payloads[0], schema_version=version)])
            assert not isinstance(result, PenstockError)
            with pytest.raises(PenstockError) as caught:
                await producer.schema_version(avro("c"))
            assert caught.value.kind is ErrorKind.UNAVAILABLE
            await asyncio.to_thread(foreign.produce, name.local, framed(number, payloads[1]))
            away = await stored(broker, name)
            assert [one.payload for one in away] == payloads
            assert [one.schema_version for one in away] == [1, BY_ID + number]
            relay.target = real.port

            def known() -> bool:
                with contextlib.suppress(PenstockError):
                    return broker.schemas.version(name, BY_ID + number).version == BY_ID + number
                return False

            await until_async(known)
            assert broker.schemas.version(name, BY_ID + number).schema.data == avro(*"ab").data
            assert [one.schema_version for one in await stored(broker, name)] == [1, 2]
    finally:
        relay.close()


def test_others_values_are_json_here(
    kafka_cluster: KafkaCluster, registry_url: str, foreign: Foreign
) -> None:
    """Through the endpoints: values that others wrote, of Avro and of a JSON Schema."""
    with (
        running(engine=engine_of(kafka_cluster, registry_url)) as server,
        httpx.Client(base_url=server.url, timeout=60) as http,
    ):
        endpoints = Endpoints(server, http, name=new_name().local)
        http.put(f"/admin/v2/persistent/public/default/{endpoints.name}").raise_for_status()
        first = foreign.register(f"{endpoints.name}-value", avro("a").data.decode())
        shape = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'
        other = foreign.register(f"{endpoints.name}-json", shape, "JSON")
        foreign.produce(
            endpoints.name,
            framed(first, encoded(avro("a"), a="x")),
            framed(other, b'{"n":[1,null]}'),
            b"plain",
        )
        found = endpoints.read(include_schema=True)["messages"]
        assert [one["value"] for one in found] == [{"a": "x"}, {"n": [1, None]}, b64(b"plain")]
        assert [one["schema_version"] for one in found] == [1, BY_ID + other, None]
        frames = endpoints.reader(3)
        assert [one.get("schemaVersion") for one in frames] == [1, BY_ID + other, None]
        assert frames[1]["payload"] == b64(b'{"n":[1,null]}')


def test_what_is_no_registry(kafka_cluster: KafkaCluster) -> None:
    settings = engine_of(kafka_cluster, "kafka://127.0.0.1:1")
    with pytest.raises(PenstockError) as caught:
        KafkaBroker(settings, BrokerSettings(), LoopClock())
    assert caught.value.kind is ErrorKind.BAD_PARAMETER
