"""What is learned of a cluster's schemas, from what a broker answers."""

from typing import Any, cast

import pytest

from penstock.client.errors import NotConnected
from penstock.client.session.commands import wire_schema
from penstock.engines.pulsar.cluster import PulsarCluster
from penstock.engines.pulsar.schemas import LEARNED_MAX, Schemas
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import STRING_SCHEMA, SchemaInfo, SchemaType
from penstock.wire.metadata import schema_version_bytes, schema_version_number
from penstock.wire.pulsar_pb2 import (
    CommandGetOrCreateSchema,
    CommandGetOrCreateSchemaResponse,
    CommandGetSchema,
    CommandGetSchemaResponse,
    ServerError,
)

TOPIC = TopicName.parse("persistent://public/default/t")
GONE = SchemaInfo(SchemaType.NONE)


def avro(name: str) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, b'{"type":"record","name":"%s","fields":[]}' % name.encode(), name)


class Broker:
    """A cluster with one topic: its context, its lookup and its only connection."""

    timeout_s = 1.0

    def __init__(self, *schemas: SchemaInfo) -> None:
        self.schemas = list(schemas)
        self.asked: list[int | None] = []
        self.away = False

    @property
    def context(self) -> Any:
        return self

    lookup = context

    async def link(self, topic: str) -> Any:
        if self.away:
            raise NotConnected("away")
        assert topic == str(TOPIC)
        return self

    async def partitions(self, topic: str) -> int:
        return 0

    async def ask(self, command: Any, timeout_s: float) -> Any:
        if isinstance(command, CommandGetOrCreateSchema):
            self.schemas.append(avro(command.schema.name))
            version = schema_version_bytes(len(self.schemas) - 1)
            return CommandGetOrCreateSchemaResponse(request_id=0, schema_version=version)
        assert isinstance(command, CommandGetSchema)
        wanted = schema_version_number(command.schema_version)
        self.asked.append(wanted)
        number = len(self.schemas) - 1 if wanted is None else wanted
        if not 0 <= number < len(self.schemas):
            return CommandGetSchemaResponse(request_id=0, error_code=ServerError.TopicNotFound)
        return CommandGetSchemaResponse(
            request_id=0,
            schema=wire_schema(self.schemas[number]),
            schema_version=schema_version_bytes(number),
        )


def schemas_of(broker: Broker) -> Schemas:
    return Schemas(cast(PulsarCluster, broker), 1000)


async def test_every_version_is_asked_for_once() -> None:
    broker = Broker(avro("A"), avro("B"))
    schemas = schemas_of(broker)
    assert schemas.latest(TOPIC) is None
    await schemas.learn(TOPIC)
    newest = schemas.latest(TOPIC)
    assert newest is schemas.version(TOPIC, 1) is schemas.get(TOPIC)
    assert [one.schema.name for one in schemas.all(TOPIC.of_partition(2))] == ["A", "B"]
    assert schemas.changes == 1

    await schemas.learn(TOPIC)
    assert schemas.latest(TOPIC) is newest
    assert (schemas.changes, broker.asked) == (1, [None, 0, None])


async def test_a_topic_without_schemas_has_none() -> None:
    schemas = schemas_of(Broker())
    await schemas.learn(TOPIC)
    assert (schemas.latest(TOPIC), schemas.all(TOPIC), schemas.changes) == (None, [], 0)
    for call in (lambda: schemas.get(TOPIC), lambda: schemas.version(TOPIC, 0)):
        with pytest.raises(PenstockError) as caught:
            call()
        assert caught.value.kind is ErrorKind.SCHEMA_NOT_FOUND


async def test_of_many_versions_the_newest_are_learned_and_others_when_they_are_named() -> None:
    broker = Broker(*(avro(f"R{number}") for number in range(LEARNED_MAX + 10)))
    schemas = schemas_of(broker)
    await schemas.learn(TOPIC)
    assert len(schemas.all(TOPIC)) == LEARNED_MAX + 1
    assert not schemas.knows(TOPIC, 3)
    await schemas.fetch(TOPIC, 3)
    assert schemas.version(TOPIC, 3).schema == avro("R3")


async def test_a_version_that_is_not_there_is_not_asked_for_again() -> None:
    broker = Broker(avro("A"))
    schemas = schemas_of(broker)
    await schemas.fetch(TOPIC, 9)
    await schemas.fetch(TOPIC, 9)
    assert broker.asked == [9]
    assert schemas.knows(TOPIC, 9)
    with pytest.raises(PenstockError):
        schemas.version(TOPIC, 9)


async def test_a_deletion_is_a_change_and_leaves_the_versions() -> None:
    broker = Broker(avro("A"))
    schemas = schemas_of(broker)
    await schemas.learn(TOPIC)
    broker.schemas.append(GONE)
    await schemas.learn(TOPIC)
    assert schemas.latest(TOPIC) is None
    assert schemas.find(TOPIC, avro("A")) is None
    assert schemas.changes == 2
    assert schemas.version(TOPIC, 0).schema == avro("A")
    broker.schemas.append(avro("B"))
    await schemas.learn(TOPIC)
    assert [one.version for one in schemas.all(TOPIC)] == [2]
    assert [one.version for one in schemas.all(TOPIC, deleted=True)] == [0, 2]
    assert (schemas.find(TOPIC, avro("A")), schemas.find(TOPIC, avro("B"))) == (None, 2)
    with pytest.raises(PenstockError):
        schemas.get(TOPIC, 0)


async def test_a_topic_that_was_made_again_is_another() -> None:
    broker = Broker(avro("A"), avro("B"))
    schemas = schemas_of(broker)
    await schemas.learn(TOPIC)
    broker.schemas = [avro("C")]
    await schemas.learn(TOPIC)
    assert [one.schema.name for one in schemas.all(TOPIC)] == ["C"]


async def test_what_is_registered_is_known_at_once() -> None:
    broker = Broker(avro("A"))
    schemas = schemas_of(broker)
    await schemas.learn(TOPIC)
    assert await schemas.get_or_create(TOPIC, avro("A")) == 0
    assert len(broker.schemas) == 1
    assert await schemas.get_or_create(TOPIC, avro("B")) == 1
    newest = schemas.latest(TOPIC)
    assert newest is not None
    assert newest.version == 1
    assert await schemas.get_or_create(TOPIC, SchemaInfo(SchemaType.BYTES)) is None


async def test_messages_without_a_schema_where_the_cluster_refuses_them() -> None:
    schemas = schemas_of(Broker(STRING_SCHEMA))
    schemas.check_next(TOPIC, None)
    schemas.require_version(TOPIC)
    with pytest.raises(PenstockError, match="takes no messages without one"):
        schemas.check_next(TOPIC, None)


async def test_a_cluster_that_is_away_changes_nothing() -> None:
    broker = Broker(avro("A"))
    schemas = schemas_of(broker)
    await schemas.learn(TOPIC)
    newest, broker.away = schemas.latest(TOPIC), True
    with pytest.raises(PenstockError) as caught:
        await schemas.learn(TOPIC)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert schemas.latest(TOPIC) is newest
    schemas.forget(TOPIC)
    assert schemas.latest(TOPIC) is None
