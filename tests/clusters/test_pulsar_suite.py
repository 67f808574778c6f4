"""The suite of `penstock.testing.engines` over the Pulsar engine, before a real broker."""

from pathlib import Path

import pytest
from tests.support.pulsar_broker import PulsarCluster

pytest.register_assert_rewrite("penstock.testing.engines")

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.settings import BrokerSettings, ClusterSettings  # noqa: E402
from penstock.engines.opening import open_pulsar  # noqa: E402
from penstock.testing.engines import EngineSuite  # noqa: E402
from penstock.wire.entry import WireFormat  # noqa: E402


class TestPulsar(EngineSuite):
    early_ms = 1000  # the broker's clock of delays goes by seconds

    @pytest.fixture(autouse=True)
    def cluster(self, pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> None:
        self.at = pulsar_cluster
        self.namespace = pulsar_namespace

    def make(self, folder: Path) -> Broker:
        settings = ClusterSettings(url=self.at.service_url, admin_url=self.at.admin_url, learned_ms=0)
        return open_pulsar(settings, BrokerSettings(), WireFormat())
