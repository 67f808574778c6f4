"""The suite of `tests.conformance.engines` over the Kafka engine, before a real broker."""

from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.kafka_broker import KafkaCluster

pytest.register_assert_rewrite("tests.conformance.engines")

from tests.conformance.engines import EngineSuite  # noqa: E402

from penstock.broker.broker import Broker  # noqa: E402
from penstock.broker.settings import BrokerSettings, ClusterSettings  # noqa: E402
from penstock.engines.opening import open_kafka  # noqa: E402


class TestKafka(EngineSuite):
    batches = False  # a message is a record

    @pytest.fixture(autouse=True)
    def cluster(self, kafka_cluster: KafkaCluster) -> None:
        self.settings = ClusterSettings(
            url=kafka_cluster.service_url, learned_ms=0, group_prefix=f"{uuid4().hex[:10]}."
        )

    def make(self, folder: Path) -> Broker:
        return open_kafka(self.settings, BrokerSettings())
