"""A real Apache Pulsar standalone for tests: one process with a broker, a bookie and its metadata.

The distribution is fetched by `scripts/pulsar.sh fetch`. A broker takes 8 to 30 s to be ready, so that tests share one.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from typing import Final

import httpx
import msgspec
import pytest

HOME: Final = Path(__file__).parents[1] / "clusters" / "build" / "pulsar"
READY_S: Final = 180.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.2  # between two looks at a broker that starts: it tells nobody

MEMORY: Final = "-Xms128m -Xmx768m -XX:MaxDirectMemorySize=512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"

# Entries are numbered, and clients see the numbers: offsets need both.
NUMBERED: Final = {
    "brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor",
    "exposingBrokerEntryMetadataToClientEnabled": "true",
}
# Small, as it runs beside everything else; what is deleted or unloaded is so at once.
SMALL: Final = {
    "bindAddress": "127.0.0.1",
    "advertisedAddress": "127.0.0.1",
    "numIOThreads": "2",
    "numHttpServerThreads": "8",
    "webSocketServiceEnabled": "true",
    "managedLedgerCacheSizeMB": "32",
    "dbStorage_writeCacheMaxSizeMb": "16",
    "dbStorage_readAheadCacheMaxSizeMb": "8",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "forceDeleteNamespaceAllowed": "true",
}


class PulsarCluster(msgspec.Struct):
    """Where a broker is; `pid` 0: it was there before and is not ours."""

    service_url: str
    admin_url: str
    pid: int = 0
    token: str = ""  # of an administrator, where the broker asks who comes

    def admin(self, method: str, path: str, **more: object) -> httpx.Response:
        """A request to the admin interface, `path` from /admin/v2 on; fails for what is no success."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else None
        url = f"{self.admin_url}/admin/v2/{path}"
        answer = httpx.request(method, url, timeout=60, headers=headers, **more)  # type: ignore[arg-type]
        answer.raise_for_status()
        return answer

    def kill(self, number: signal.Signals) -> None:
        """Send the broker a signal; only for one that this test started."""
        assert self.pid, "the broker is not ours"
        os.kill(self.pid, number)


def given() -> PulsarCluster | None:
    """The cluster that the environment names, for work at one test: PULSAR_URL and PULSAR_ADMIN."""
    url, admin = os.environ.get("PULSAR_URL"), os.environ.get("PULSAR_ADMIN")
    return PulsarCluster(url, admin) if url and admin else None


@contextmanager
def standalone(
    folder: Path, settings: Mapping[str, str] = NUMBERED, token: str = ""
) -> Iterator[PulsarCluster]:
    """Start a broker with its data in `folder`; `settings` are added to those of its standalone.conf.

    `token` is an administrator's, where they turn authentication on.
    """
    if not (HOME / "home").exists():
        missing = HOME / "missing"
        pytest.skip(
            missing.read_text().strip() if missing.exists() else "scripts/pulsar.sh fetch has not run"
        )
    broker, web, bookie = _free_ports(3)
    conf = folder / "standalone.conf"
    _configure(conf, {**SMALL, **settings, "brokerServicePort": str(broker), "webServicePort": str(web)})
    environment = {
        **os.environ,
        "PULSAR_STANDALONE_CONF": str(conf),
        "PULSAR_MEM": MEMORY,
        "PULSAR_GC": "-Dpenstock=tests",  # in place of its own choice of collector
        "PULSAR_LOG_ROOT_LEVEL": "warn",
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_STOP_TIMEOUT": "5",
    }
    command = [
        str(HOME / "home" / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "--wipe-data",
        "--metadata-dir", str(folder / "metadata"), "--bookkeeper-dir", str(folder / "bookkeeper"),
        "--bookkeeper-port", str(bookie),
    ]  # fmt: skip
    output = folder / "output"
    with output.open("wb") as out, subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    ) as process:  # fmt: skip
        try:
            cluster = PulsarCluster(
                f"pulsar://127.0.0.1:{broker}", f"http://127.0.0.1:{web}", process.pid, token
            )
            _wait_ready(cluster, process, output)
            yield cluster
        finally:
            _end(process)
            shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(cluster: PulsarCluster, process: subprocess.Popen[bytes], output: Path) -> None:
    end = time.monotonic() + READY_S
    while True:
        try:
            if cluster.admin("GET", "brokers/health").text == "ok":
                return
        except httpx.HTTPError:
            pass
        over = process.poll() is not None or time.monotonic() > end
        assert not over, f"Pulsar does not start: {output.read_text(errors='replace')[-3000:]}"
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Its data is thrown away: nothing has to be saved."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(STOP_S)


def _configure(conf: Path, settings: Mapping[str, str]) -> None:
    """The configuration as shipped, with these settings in place of its own."""
    lines = (HOME / "home" / "conf" / "standalone.conf").read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0].strip() not in settings]
    conf.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in settings.items())]) + "\n")


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: the broker cannot be told to choose, and to say which."""
    held = [socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
