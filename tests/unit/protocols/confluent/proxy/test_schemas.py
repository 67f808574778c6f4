"""The proxy's schemas: what the registry, or the cluster behind it, is asked for."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from penstock.broker.broker import Broker
from penstock.broker.groups import GroupRecord
from penstock.broker.registry import RegistryAnswer, RegistryRecord
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.subjects import Definition, subject_of, topic_of
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.proxy.formats import Format
from penstock.protocols.confluent.proxy.records import MISSING_MAX, Records
from penstock.protocols.confluent.proxy.schemas import ProxySchemas
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.confluent.registry.subjects import Subjects

TOPIC = TopicName("persistent", "public", "default", "orders")
SUBJECT = "orders-value"


def framed(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + b"\2"


class Cluster:
    """The records of a registry, with a count of how often a cluster was asked for them."""

    writer = ""
    number_schemas = None

    def __init__(self) -> None:
        self.asked = 0
        self._subjects = Subjects()
        self.registry = Registry(self._subjects, self)

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        raise NotImplementedError

    async def catch_up(self) -> None:
        self.asked += 1

    async def take(self) -> None:
        pass

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        for record in records:
            self._subjects.learn(record)


def proxied(cluster: Cluster) -> ProxySchemas:
    async def load() -> Registry:
        return cluster.registry

    return ProxySchemas(cast(Broker, SimpleNamespace(other_registry=None, record_formats=None)), load)


async def test_a_cluster_is_asked_only_for_what_is_unknown() -> None:
    cluster = Cluster()
    schemas = proxied(cluster)
    made = await cluster.registry.register(SUBJECT, Definition('"int"'))
    for _ in range(3):
        assert (await schemas.registered(SUBJECT, "AVRO", made.id)).version == made
        assert await schemas.by_id(made.id) is not None
        await schemas.register(await schemas.named(SUBJECT, "AVRO", '"int"'), forced=True)
    assert cluster.asked == 0
    assert await schemas.by_id(99) is None
    assert cluster.asked == 1
    values = [framed(number) for number in range(500)]
    assert await schemas.unframed(TOPIC, values) == [(None, value) for value in values]
    assert cluster.asked == 2  # once for all of them
    for _ in range(3):
        assert await schemas.of_version(TOPIC, 5) is None
    assert cluster.asked == 3


class Away:
    """Schemas of a registry that does not answer, or (`missing`) has none."""

    def __init__(self, *, missing: bool) -> None:
        self.asked = 0
        self._missing = missing

    async def by_id(self, schema_id: int) -> None:
        self.asked += 1
        if not self._missing:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")


def record(key: bytes | None, value: bytes | None) -> GroupRecord:
    return GroupRecord(topic=TOPIC, partition=0, offset=0, timestamp=0, key=key, value=value)


def shown_by(schemas: Away, format: Format) -> Records:
    broker = cast(Broker, SimpleNamespace(groups=None))
    return Records(broker, cast(ProxySchemas, schemas), format, cast(Caller, SimpleNamespace(role=None)))


@pytest.mark.parametrize(("key", "value"), [(None, framed(1)), (framed(1), None)])
async def test_a_record_is_not_unreadable_because_the_registry_is_away(
    key: bytes | None, value: bytes | None
) -> None:
    with pytest.raises(PenstockError, match="away"):
        await shown_by(Away(missing=False), Format.AVRO).show(record(key, value))


async def test_unknown_ids_of_one_answer_are_bounded() -> None:
    schemas = Away(missing=True)
    records = shown_by(schemas, Format.JSON)
    for number in range(1000):
        assert (await records.show(record(framed(number), b"1"))).value == 1
    assert schemas.asked == MISSING_MAX


class Configured:
    """A configured registry, which knows one subject, or gives the same answer to everything."""

    topic_of, subject_of = staticmethod(topic_of), staticmethod(subject_of)

    def __init__(self, always: RegistryAnswer | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self._always = always
        self._registered = False

    async def pass_on(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> RegistryAnswer:
        self.asked.append((method, target))
        if self._always is not None:
            return self._always
        path = target.partition("?")[0]
        if (method, path) == ("POST", f"/subjects/{SUBJECT}/versions"):
            self._registered = True
        elif not self._registered:
            return answer(404, {"error_code": 40403, "message": "Schema not found"})
        if path == "/schemas/ids/7/versions":
            return answer(200, [{"subject": SUBJECT, "version": 3}])
        found = {"subject": SUBJECT, "version": 3, "id": 7, "schema": '"int"', "references": None}
        return answer(200, {**found, "schemaType": None, "guid": "x"})


def answer(status: int, body: Any) -> RegistryAnswer:
    return RegistryAnswer(status, "application/json", json.dumps(body).encode())


def asking(registry: Configured, *, updates: bool = True) -> ProxySchemas:
    policies = SimpleNamespace(schema_auto_update=updates)
    namespaces = SimpleNamespace(find=lambda name: policies)
    formats = SimpleNamespace(version_of=lambda number: 1000 + number)
    broker = SimpleNamespace(other_registry=registry, namespaces=namespaces, record_formats=formats)

    async def load() -> Registry:
        raise AssertionError("the server has no registry of its own")

    return ProxySchemas(cast(Broker, broker), load)


async def test_a_configured_registry_is_asked_once() -> None:
    registry = Configured()
    schemas = asking(registry)
    for _ in range(2):
        schema = await schemas.named(SUBJECT, "AVRO", '"int"')
        await schemas.register(schema, forced=False)
        assert schema.version is not None
        assert (schema.version.id, schemas.version_in(TOPIC, schema.version)) == (7, 1007)
    subject = f"/subjects/{SUBJECT}"
    assert registry.asked == [("POST", subject), ("POST", f"{subject}/versions"), ("POST", subject)]
    for _ in range(2):
        assert (await schemas.registered(SUBJECT, "AVRO", 7)).version == msgspec.structs.replace(
            schema.version, definition=Definition('"int"')
        )
        found = await schemas.by_id(7)
        assert found is not None
        assert found.decode(framed(7)) == 1
    assert len(registry.asked) == 6
    with pytest.raises(ConfluentError, match="is not registered under the subject other"):
        await schemas.registered("other", "AVRO", 7)


async def test_a_namespace_that_takes_no_new_schemas() -> None:
    schemas = asking(Configured(), updates=False)
    schema = await schemas.named(SUBJECT, "AVRO", '"int"')
    with pytest.raises(ConfluentError, match="auto updating is disabled"):
        await schemas.register(schema, forced=False)
    await schemas.register(schema, forced=True)


@pytest.mark.parametrize(
    ("status", "body"), [(503, {}), (302, {}), (404, "no registry"), (200, [1]), (200, {}), (429, {})]
)
async def test_answers_that_are_not_a_registrys(status: int, body: Any) -> None:
    schemas = asking(Configured(answer(status, body)))
    for work in (
        schemas.by_id(7),
        schemas.numbered(SUBJECT, "latest"),
        schemas.registered(SUBJECT, "AVRO", 7),
    ):
        with pytest.raises(PenstockError) as caught:
            await work
        assert caught.value.kind is ErrorKind.UNAVAILABLE
