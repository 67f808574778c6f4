"""A whole server before a real Kafka, from outside."""

import signal
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.kafka_broker import KafkaCluster, standalone
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import running


def _engine(cluster: KafkaCluster) -> ClusterSettings:
    return ClusterSettings(url=cluster.service_url, learned_ms=0, documents_topic=f"__{uuid4().hex[:10]}")


def test_topics_are_administered_here_and_seen_by_kafkas_tools(kafka_cluster: KafkaCluster) -> None:
    topic = f"t-{uuid4().hex[:10]}"
    path = f"/admin/v2/persistent/public/default/{topic}"
    with running(engine=_engine(kafka_cluster)) as server, httpx.Client(base_url=server.url) as client:
        assert client.put(f"{path}/partitions", json=2).status_code == 204
        assert client.put(f"{path}/partitions", json=2).status_code == 409
        retention = {"retentionTimeInMinutes": 5, "retentionSizeInMB": -1}
        assert client.post(f"{path}/retention", json=retention).status_code == 204
        described = kafka_cluster.tool("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", topic)
        assert "PartitionCount: 2" in described
        assert "retention.ms=300000" in described
        kafka_cluster.tool("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", topic)
        until(lambda: client.get(path).status_code == 404)


def test_what_kafka_has_not_is_refused(kafka_cluster: KafkaCluster) -> None:
    topic = f"t-{uuid4().hex[:10]}"
    path = f"/admin/v2/persistent/public/default/{topic}"
    with running(engine=_engine(kafka_cluster)) as server, httpx.Client(base_url=server.url) as client:
        assert client.put(path).status_code == 204
        assert client.post(f"{path}/terminate").status_code == 501
        assert client.put(f"{path}/compaction").status_code == 501
        assert client.post(f"{path}/messageTTL", params={"messageTTL": 5}).status_code == 501
        assert client.get(f"/admin/v2/non-persistent/public/default/{topic}/stats").status_code == 501


def test_the_server_is_ready_while_the_cluster_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.engines.kafka.cluster.LOOK_S", 1.0)
    with (
        standalone(tmp_path) as cluster,
        running(engine=_engine(cluster)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        assert client.get("/health/ready").status_code == 200
        cluster.kill(signal.SIGKILL)
        until(lambda: client.get("/health/ready").status_code == 503)
        assert client.get("/health/ready").json()["reason"] == "cluster_unreachable"
        assert client.get("/health/live").status_code == 200
        cluster.restart()
        until(lambda: client.get("/health/ready").status_code == 200)
