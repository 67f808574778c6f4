"""The embedded log as a cluster of one broker."""

import asyncio
from typing import Any

import pytest

from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.protocols.confluent.proxy.broker_view import BrokerView
from penstock.protocols.context import ServerContext
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire


async def test_requests_that_come_first_together_get_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(MemoryStore(), MemoryStore(TRANSIENT_LEDGERS), wire, ManualClock())
    await broker.start()
    try:
        documents = broker.own_documents
        assert documents is not None
        load = documents.load_meta

        async def load_meta(kind: str) -> Any:
            found = await load(kind)
            await asyncio.sleep(0)
            return found

        monkeypatch.setattr(documents, "load_meta", load_meta)
        view = BrokerView(ServerContext(broker))
        found = await asyncio.gather(*(view.nodes() for _ in range(3)))
        assert len({one.cluster for one in found}) == 1
    finally:
        await broker.close()
