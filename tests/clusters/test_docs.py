"""The tutorials before clusters work as printed."""

from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.page_runs import PageRun, name_of, tried
from tests.support.pulsar_broker import PulsarCluster

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import running


@pytest.mark.parametrize("page", tried("kafka"), ids=name_of)
def test_a_page_before_kafka(page: Path, kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    engine = ClusterSettings(
        url=kafka_cluster.service_url, learned_ms=200, documents_topic=f"__penstock-{uuid4().hex[:8]}"
    )
    printed = {"127.0.0.1:9092": kafka_cluster.bootstrap}
    with running(engine=engine) as server, PageRun(tmp_path, server, printed) as run:
        run.run_all(page)


@pytest.mark.parametrize("page", tried("pulsar"), ids=name_of)
def test_a_page_before_pulsar(page: Path, pulsar_cluster: PulsarCluster, tmp_path: Path) -> None:
    printed = {"pulsar://broker:6650": pulsar_cluster.service_url}
    with running(engine=pulsar_cluster.settings) as server, PageRun(tmp_path, server, printed) as run:
        run.run_all(page)
