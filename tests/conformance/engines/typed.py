"""Schemas: registered, found again, refused; and messages of several of them by one producer (PIP-43)."""

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.schema import ANY_JSON, BYTES_SCHEMA, STRING_SCHEMA, SchemaInfo, SchemaType

from .bench import Bench, EngineTests, stored


def optional(kind: SchemaType, *fields: str) -> SchemaInfo:
    """A record of optional texts: any of them may follow any other."""
    inner = ",".join(f'{{"name":"{name}","type":["null","string"],"default":null}}' for name in fields)
    return SchemaInfo(kind, f'{{"type":"record","name":"R","fields":[{inner}]}}'.encode(), "R")


def avro(*fields: str) -> SchemaInfo:
    return optional(SchemaType.AVRO, *fields)


class TypedTests(EngineTests):
    """Tests of `Schemas`, and of the versions that messages carry."""

    async def test_versions_count_from_zero(self, bench: Bench) -> None:
        producer = await bench.producer()
        schemas = bench.broker.schemas
        assert schemas.latest(bench.topic) is None
        assert await producer.schema_version(BYTES_SCHEMA) is None
        versions = [await producer.schema_version(avro(*names)) for names in ("a", "ab", "a", "abc")]
        assert versions == [0, 1, 0, 2]
        await bench.broker.topics.learn(bench.topic)

        newest = schemas.latest(bench.topic)
        assert newest is not None
        assert (newest.version, newest.schema.data) == (2, avro(*"abc").data)
        assert schemas.get(bench.topic).version == 2
        assert schemas.get(bench.topic, 1).schema.data == avro(*"ab").data
        assert [one.version for one in schemas.all(bench.topic)] == [0, 1, 2]
        assert schemas.find(bench.topic, avro(*"ab")) == 1
        assert schemas.find(bench.topic, avro("z")) is None
        assert await schemas.get_or_create(bench.topic, avro(*"ab")) == 1
        with pytest.raises(PenstockError) as caught:
            schemas.get(bench.topic, 9)
        assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND

    async def test_what_may_not_follow(self, bench: Bench) -> None:
        producer = await bench.producer()
        assert await producer.schema_version(STRING_SCHEMA) == 0
        demanding = SchemaInfo(
            SchemaType.AVRO, b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', "R"
        )
        with pytest.raises(PenstockError) as caught:
            await producer.schema_version(demanding)
        assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA
        assert await producer.schema_version(STRING_SCHEMA) == 0
        other = await bench.producer(TopicName.parse(f"{bench.topic}-2"))
        assert await other.schema_version(avro("a")) == 0
        with pytest.raises(PenstockError) as caught:
            await other.schema_version(demanding)
        assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA

    async def test_json_of_any_shape(self, bench: Bench) -> None:
        producer = await bench.producer()
        version = await producer.schema_version(ANY_JSON)
        assert version is not None
        values = (b'{"a":1}', b"[1]", b'"text"')
        stored(await producer.publish([OutMessage(payload=v, schema_version=version) for v in values]))
        await bench.broker.topics.learn(bench.topic)
        newest = bench.broker.schemas.latest(bench.topic)
        assert newest is not None
        assert (newest.version, newest.schema.type) == (version, SchemaType.JSON)
        assert await producer.schema_version(optional(SchemaType.JSON, "a")) == version + 1

    async def test_what_cannot_be_understood(self, bench: Bench) -> None:
        producer = await bench.producer()
        with pytest.raises(PenstockError) as caught:
            await producer.schema_version(SchemaInfo(SchemaType.AVRO, b"{", "R"))
        assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA

    @pytest.mark.parametrize("batch", [True, False])
    async def test_one_producer_has_many_schemas(self, bench: Bench, *, batch: bool) -> None:
        producer = await bench.producer()
        versions = [await producer.schema_version(avro(*names)) for names in ("a", "ab", "abc")]
        wanted = [versions[n] for n in (0, 0, 1, 2, 2, 0)] + [None]
        messages = [OutMessage(payload=b"%d" % n, schema_version=version) for n, version in enumerate(wanted)]
        stored(await producer.publish(messages, batch=batch))
        client = await bench.consume()
        assert await client.come(7) == list("0123456")

        found = [one.message.schema_version for one in client.received]
        assert found == wanted
        for version in set(versions):
            assert version is not None
            assert bench.broker.schemas.version(bench.topic, version).version == version

    async def test_versions_of_messages_are_known_when_they_arrive(self, bench: Bench) -> None:
        if not self.durable:
            return
        producer = await bench.producer()
        for names in ("a", "ab"):
            version = await producer.schema_version(avro(*names))
            stored(await producer.publish([OutMessage(payload=names.encode(), schema_version=version)]))
        await bench.restart()
        client = await bench.consume()
        await client.come(2)

        for one in client.received:
            version = one.message.schema_version
            assert version is not None
            assert bench.broker.schemas.version(bench.topic, version).schema.data == avro(*one.text).data

    async def test_a_schema_of_the_whole_topic(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 2)
        producer = await bench.producer()
        version = await producer.schema_version(avro("a"))
        assert version == 0
        assert await producer.schema_version(avro("a")) == 0
        of_partition = await bench.producer(bench.topic.of_partition(1))
        assert await of_partition.schema_version(avro("a")) == 0

    async def test_a_schema_that_is_deleted(self, bench: Bench) -> None:
        producer = await bench.producer()
        version = await producer.schema_version(avro("a"))
        stored(await producer.publish([OutMessage(payload=b"a", schema_version=version)]))
        await bench.broker.schemas.delete(bench.topic)

        assert bench.broker.schemas.latest(bench.topic) is None
        with pytest.raises(PenstockError) as caught:
            bench.broker.schemas.get(bench.topic)
        assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND
        assert await producer.schema_version(avro("b")) == 2  # the deletion is a version, too
