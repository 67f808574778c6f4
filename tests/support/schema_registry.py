"""A real schema registry for tests: Apicurio, which has Confluent's API. It keeps everything in memory.

It is fetched by `scripts/kafka.sh fetch`.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from .kafka_broker import HOME, LOOK_S, READY_S, STOP_S
from .pulsar_broker import free_ports

API: Final = "apis/ccompat/v7"
MEMORY: Final = ("-Xms64m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def given() -> str | None:
    """The registry that the environment names, for work at one test: SCHEMA_REGISTRY_URL."""
    return os.environ.get("SCHEMA_REGISTRY_URL")


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Start a registry; gives the URL of its API."""
    with process(folder) as registry:
        yield registry.url


class Registry:
    """One that may be frozen."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    def freeze(self) -> None:
        """Let it answer nobody, until `thaw`."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it answer again."""
        os.kill(self.pid, signal.SIGCONT)


@contextlib.contextmanager
def process(folder: Path) -> Iterator[Registry]:
    """Start a registry of a test's own."""
    jar = HOME / "registry" / "runner.jar"
    if not jar.exists():
        missing = HOME / "registry-missing"
        pytest.skip(missing.read_text().strip() if missing.exists() else "scripts/kafka.sh fetch has not run")
    (port,) = free_ports(1)
    settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": port, "quarkus.log.level": "WARN"}
    output = folder / "output"
    with output.open("ab") as out:
        running = subprocess.Popen(
            ["java", *MEMORY, *(f"-D{name}={value}" for name, value in settings.items()), "-jar", str(jar)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{port}/{API}"
        _wait_ready(url, running, output)
        yield Registry(url, running.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait(STOP_S)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(url: str, running: "subprocess.Popen[bytes]", output: Path) -> None:
    end = time.monotonic() + READY_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/subjects", timeout=5).status_code == 200:
                return
        over = running.poll() is not None or time.monotonic() > end
        assert not over, f"the registry does not start: {output.read_text(errors='replace')[-3000:]}"
        time.sleep(LOOK_S)
