"""The suite of `tests.conformance.engines` over the Pulsar engine, before a real broker."""

from pathlib import Path

import pytest
from tests.support.pulsar_broker import EARLY_MS, PulsarCluster

pytest.register_assert_rewrite("tests.conformance.engines")

from tests.conformance.engines import EngineSuite, EngineTests  # noqa: E402
from tests.conformance.engines.capabilities import CapabilityTests  # noqa: E402
from tests.conformance.engines.moving import MovingTests  # noqa: E402
from tests.conformance.engines.reading import ReadingTests  # noqa: E402

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.capability import Capability  # noqa: E402
from penstock.broker.settings import BrokerSettings, ClusterSettings  # noqa: E402
from penstock.engines.opening import open_pulsar  # noqa: E402
from penstock.engines.pulsar.broker import PulsarBroker  # noqa: E402
from penstock.runtime.clock import LoopClock  # noqa: E402


class OnPulsar(EngineTests):
    """Where the broker is."""

    early_ms = EARLY_MS

    @pytest.fixture(autouse=True)
    def cluster(self, pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> None:
        self.namespace = pulsar_namespace
        self.settings = ClusterSettings(
            url=pulsar_cluster.service_url, admin_url=pulsar_cluster.admin_url, learned_ms=0
        )


class TestPulsar(OnPulsar, EngineSuite):
    def make(self, folder: Path) -> Broker:
        return open_pulsar(self.settings, BrokerSettings())


class Unnumbered(PulsarBroker):
    """The engine as it is before a cluster that does not show the numbers of its entries."""

    async def start(self) -> None:
        await super().start()
        self.cluster.runtime["exposingBrokerEntryMetadataToClientEnabled"] = "false"
        self.capabilities -= {Capability.OFFSETS, Capability.BYTE_POSITIONS}


class TestPulsarWithoutOffsets(OnPulsar, ReadingTests, MovingTests, CapabilityTests):
    def make(self, folder: Path) -> Broker:
        return Unnumbered(self.settings, BrokerSettings(), LoopClock())
