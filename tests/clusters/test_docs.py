"""The tutorials before clusters, and the repliers that are printed, work as printed."""

import subprocess
from base64 import b64decode
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from tests.support.kafka_broker import KafkaCluster
from tests.support.page_runs import PageRun, name_of, tried
from tests.support.pages import Block
from tests.support.programs import command_of, programs_of
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.testing.server import running

REPLIED_S = 150.0  # a JVM compiles the program and joins a group, on a busy machine


def before(cluster: KafkaCluster) -> ClusterSettings:
    """Of an engine before a Kafka, with documents of its own."""
    return ClusterSettings(
        url=cluster.service_url, learned_ms=200, documents_topic=f"__penstock-{uuid4().hex[:8]}"
    )


@pytest.mark.parametrize("page", tried("kafka"), ids=name_of)
def test_a_page_before_kafka(page: Path, kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    printed = {"127.0.0.1:9092": kafka_cluster.bootstrap}
    with running(engine=before(kafka_cluster)) as server, PageRun(tmp_path, server, printed) as run:
        run.run_all(page)


@pytest.mark.parametrize("page", tried("pulsar"), ids=name_of)
def test_a_page_before_pulsar(page: Path, pulsar_cluster: PulsarCluster, tmp_path: Path) -> None:
    printed = {"pulsar://broker:6650": pulsar_cluster.service_url}
    with running(engine=pulsar_cluster.settings) as server, PageRun(tmp_path, server, printed) as run:
        run.run_all(page)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", programs_of(__file__, "kafka"), ids=lambda block: block.language)
def test_a_replier_before_kafka(block: Block, kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    printed = {"127.0.0.1:9092": kafka_cluster.bootstrap} if block.language == "python" else {}
    replies(block, before(kafka_cluster), kafka_cluster.bootstrap, tmp_path, printed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", programs_of(__file__, "pulsar"), ids=lambda block: block.language)
def test_a_replier_before_pulsar(block: Block, pulsar_cluster: PulsarCluster, tmp_path: Path) -> None:
    replies(block, pulsar_cluster.settings, pulsar_cluster.service_url, tmp_path, {})


def replies(
    block: Block, engine: ClusterSettings, address: str, folder: Path, printed: dict[str, str]
) -> None:
    """A printed program replies to requests that come to a server before the cluster."""
    unique = uuid4().hex[:8]
    # A subscription of its own, too: the group of a replier that was killed would wait for it.
    own = {'"prices"': f'"prices-{unique}"', '"service"': f'"service-{unique}"'}
    command = command_of(block, folder, {**printed, **own})
    errors = folder / "errors"
    with running(engine=engine) as server, errors.open("wb") as written:
        url = f"{server.url}/topics/public/default/prices-{unique}"
        # Before Kafka, who subscribes makes no topic.
        httpx.post(url, json={"messages": [{"value": "first"}]}, timeout=60).raise_for_status()
        replier = subprocess.Popen(
            [*command, address], stdin=subprocess.DEVNULL, stdout=written, stderr=written
        )

        def replied() -> bool:
            assert replier.poll() is None, errors.read_text()
            answer = httpx.post(f"{url}/request?timeout=5000", json={"value": "tea"}, timeout=60)
            return answer.is_success and b64decode(answer.json()["replyContent"]) == b"TEA"

        try:  # a request of before it has subscribed gets no reply
            until(replied, REPLIED_S, said=errors.read_text)
        finally:
            replier.kill()
            replier.wait()
