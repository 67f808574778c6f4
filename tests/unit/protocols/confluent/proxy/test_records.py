"""Records as JSON: their schemas are found once in a fetch, and a cluster that does not answer is no fault of a record."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.broker.groups import GroupRecord
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.proxy.formats import Format
from penstock.protocols.confluent.proxy.records import Records
from penstock.protocols.confluent.proxy.schemas import ProxySchemas
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.context import ServerContext
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

ORDERS = TopicName.parse("orders")
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
FRAMED = b"\0\0\0\0\x07value"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    made = Broker(MemoryStore(), MemoryStore(TRANSIENT_LEDGERS), wire, ManualClock())
    await made.start()
    await made.topics.create(ORDERS, 0)
    await made.schemas.get_or_create(ORDERS, SchemaInfo(SchemaType.JSON, json.dumps(ORDER).encode()))
    yield made
    await made.close()


def records_of(
    broker: Broker, error: ErrorKind = ErrorKind.NOT_SUPPORTED, kind: Format = Format.JSON
) -> Records:
    """Those of a fetch, with a registry that cannot be loaded."""

    async def load() -> Registry:
        raise PenstockError(error, "no registry")

    caller = Caller(ServerContext(broker), None)
    return Records(broker, ProxySchemas(broker, load), kind, caller)


def record(value: bytes, version: int | None = None, **more: Any) -> GroupRecord:
    return GroupRecord(
        topic=ORDERS, partition=0, offset=0, timestamp=1, value=value, schema_version=version, **more
    )


async def test_a_schema_is_found_once(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    find = broker.schemas.find_version

    async def find_version(topic: TopicName, number: int) -> Any:
        asked.append(number)
        return await find(topic, number)

    monkeypatch.setattr(broker.schemas, "find_version", find_version)
    records = records_of(broker)
    shown = [await records.show(record(b'{"n": %d}' % number, 0)) for number in range(5)]
    assert [one.value for one in shown] == [{"n": number} for number in range(5)]
    assert asked == [0]


async def test_a_cluster_that_does_not_answer_is_no_error_of_a_record(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_version(topic: TopicName, number: int) -> Any:
        raise PenstockError(ErrorKind.UNAVAILABLE, "it does not answer")

    with pytest.raises(ConfluentError):
        await records_of(broker).show(record(b"x", 5))
    for framed in (record(FRAMED), record(b"1", key=FRAMED)):
        with pytest.raises(PenstockError) as caught:
            await records_of(broker, ErrorKind.UNAVAILABLE).show(framed)
        assert caught.value.kind is ErrorKind.UNAVAILABLE
    with pytest.raises(PenstockError):
        await records_of(broker, ErrorKind.UNAVAILABLE, Format.BINARY).show(record(b"{}", 0))
    monkeypatch.setattr(broker.schemas, "find_version", find_version)
    with pytest.raises(PenstockError) as caught:
        await records_of(broker).show(record(b"{}", 0))
    assert caught.value.kind is ErrorKind.UNAVAILABLE


async def test_without_a_registry_contents_are_as_they_are(broker: Broker) -> None:
    with pytest.raises(ConfluentError):
        await records_of(broker).show(record(FRAMED))
    shown = await records_of(broker).show(record(b"1", key=FRAMED))
    assert (shown.key, shown.value) == ("AAAAAAd2YWx1ZQ==", 1)
    assert (await records_of(broker, kind=Format.BINARY).show(record(b"{}", 0))).value == "e30="
