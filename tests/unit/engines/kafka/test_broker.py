"""The start of a broker before Kafka, without a cluster."""

import inspect
from unittest.mock import AsyncMock

import pytest

from penstock.broker.namespaces import TenantInfo
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.driver.shared_log import Row
from penstock.model.names import NamespaceName
from penstock.model.policy import ConsumerOptions
from penstock.runtime.clock import LoopClock

CHANGED: list[Row] = [("namespace\0acme/sales", b"{}"), ("tenant\0acme", b'{"admin_roles":["boss"]}')]


@pytest.mark.parametrize("part", ["documents.configs", "topics.load", "_reply_partitions.start"])
async def test_a_document_that_changes_during_the_start_is_learned(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = KafkaBroker(ClusterSettings(url="kafka://127.0.0.1:1"), BrokerSettings(), LoopClock())

    async def changes() -> dict[str, str]:
        broker.documents._changed(CHANGED)
        return {}

    for one in (
        "kafka.start",
        "documents.start",
        "topics.load",
        "_reply_partitions.start",
        "_serving.start",
    ):
        where, _, name = one.rpartition(".")
        monkeypatch.setattr(getattr(broker, where), name, AsyncMock())
    monkeypatch.setattr(broker.documents, "configs", AsyncMock(return_value={}))
    where, _, name = part.rpartition(".")
    monkeypatch.setattr(getattr(broker, where), name, changes)
    await broker.start()
    try:
        assert broker.namespaces.exists(NamespaceName("acme", "sales"))
        assert broker.namespaces.tenants["acme"] == TenantInfo(admin_roles=("boss",))
    finally:
        await broker.close()


async def test_a_pattern_needs_nothing_but_its_namespace() -> None:
    broker = KafkaBroker(ClusterSettings(url="kafka://127.0.0.1:1"), BrokerSettings(), LoopClock())
    try:
        signature = inspect.signature(broker.subscribe_pattern)
        signature.bind("p", "s", ConsumerOptions(), namespace=NamespaceName("acme", "sales"))
    finally:
        await broker.close()
