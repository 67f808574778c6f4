"""The suite of `penstock.testing.engines` over the embedded engine, with both of its stores."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("penstock.testing.engines")

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.settings import BrokerSettings  # noqa: E402
from penstock.engines.opening import open_embedded  # noqa: E402
from penstock.testing.engines import EngineSuite  # noqa: E402


class TestEmbeddedMemory(EngineSuite):
    durable = False

    def make(self, folder: Path) -> Broker:
        return open_embedded(BrokerSettings())


class TestEmbeddedSqlite(EngineSuite):
    def make(self, folder: Path) -> Broker:
        return open_embedded(BrokerSettings(), folder=folder)
