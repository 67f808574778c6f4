"""The suite of `tests.conformance.engines` over the embedded engine, with both of its stores; and its tests of consumers over
that engine with attached consumers."""

from pathlib import Path

import pytest
from tests.support.attached_broker import AttachedBroker

pytest.register_assert_rewrite("tests.conformance.engines")

from tests.conformance.engines import EngineSuite  # noqa: E402
from tests.conformance.engines.answering import AnsweringTests  # noqa: E402
from tests.conformance.engines.consuming import ConsumingTests  # noqa: E402
from tests.conformance.engines.moving import MovingTests  # noqa: E402

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.settings import BrokerSettings  # noqa: E402
from penstock.engines.opening import open_embedded  # noqa: E402


class TestEmbeddedMemory(EngineSuite):
    durable = False

    def make(self, folder: Path) -> Broker:
        return open_embedded(BrokerSettings())


class TestEmbeddedSqlite(EngineSuite):
    def make(self, folder: Path) -> Broker:
        return open_embedded(BrokerSettings(), folder=folder)


class TestAttached(ConsumingTests, AnsweringTests, MovingTests):
    """Consumers attached by a link within the process."""

    durable = False

    def make(self, folder: Path) -> Broker:
        return AttachedBroker(open_embedded(BrokerSettings()))  # type: ignore[return-value]
