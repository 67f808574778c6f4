"""A real Apache Pulsar standalone for tests: one process with a broker, a bookie and its metadata.

The distribution is fetched by `scripts/pulsar.sh fetch`. A broker takes 8 to 30 s to be ready, so that tests share one.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import SystemRandom
from socket import socket
from typing import Final

import httpx
import msgspec
import pytest

from penstock.broker.settings import ClusterSettings

HOME: Final = Path(__file__).parents[1] / "clusters" / "build" / "pulsar"
READY_S: Final = 180.0
STOP_S: Final = 30.0
EARLY_MS: Final = 1000  # so much too early a delayed message may come: a tick of the broker's clock of delays
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
    again: Callable[[], int] | None = None  # starts it again, and says its process
    tls_url: str = ""  # pulsar+ssl, where it has TLS ports
    admin_tls_url: str = ""  # https

    @property
    def settings(self) -> ClusterSettings:
        """Of an engine before it, which learns soon what others change."""
        return ClusterSettings(url=self.service_url, admin_url=self.admin_url, learned_ms=200)

    def admin(self, method: str, path: str, **more: object) -> httpx.Response:
        """A request to the admin interface, `path` from /admin/v2 on; fails for what is no success."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else None
        url = f"{self.admin_url}/admin/v2/{path}"
        answer = httpx.request(method, url, timeout=60, headers=headers, **more)  # type: ignore[arg-type]
        answer.raise_for_status()
        return answer

    def keeps_cursor(self, topic: str, subscription: str) -> bool:
        """Whether a cursor has its ledger, which is created for the first acknowledgement since the topic was loaded. Those that
        come before it is there are answered, and lost when the topic is unloaded then."""
        stats = self.admin("GET", f"persistent/{topic}/internalStats").json()
        return bool(stats["cursors"][subscription]["state"] == "Open")

    def kill(self, number: signal.Signals) -> None:
        """Send the broker a signal; only for one that this test started."""
        assert self.pid, "the broker is not ours"
        os.kill(self.pid, number)

    def restart(self) -> None:
        """Start the broker that was killed again, on the same data and ports; returns when it is ready."""
        assert self.again is not None, "the broker is not ours"
        self.pid = self.again()


def given() -> PulsarCluster | None:
    """The cluster that the environment names, for work at one test: PULSAR_URL and PULSAR_ADMIN."""
    url, admin = os.environ.get("PULSAR_URL"), os.environ.get("PULSAR_ADMIN")
    return PulsarCluster(url, admin) if url and admin else None


@contextlib.contextmanager
def standalone(
    folder: Path,
    settings: Mapping[str, str] = NUMBERED,
    token: str = "",
    reached_at: Callable[[int], int] | None = None,
    *,
    tls: bool = False,
) -> Iterator[PulsarCluster]:
    """Start a broker with its data in `folder`; `settings` are added to those of its standalone.conf.

    `token` is an administrator's, where they turn authentication on. `reached_at` makes the port that clients are to use of
    the broker's own. With `tls` it has ports of TLS beside the others; `settings` name its certificates.
    """
    if not (HOME / "home").exists():
        missing = HOME / "missing"
        pytest.skip(
            missing.read_text().strip() if missing.exists() else "scripts/pulsar.sh fetch has not run"
        )
    process = _Process(folder, settings, token, reached_at, tls=tls)
    try:
        process.start("--wipe-data")
        yield process.cluster
    finally:
        process.end()
        shutil.rmtree(folder, ignore_errors=True)


class _Process:
    """A broker's, which may be started again."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        token: str,
        reached_at: Callable[[int], int] | None,
        *,
        tls: bool,
    ) -> None:
        broker, web, bookie, broker_tls, web_tls = free_ports(5)
        port = broker
        if reached_at is not None:
            port = reached_at(broker)
            listener = f"internal:pulsar://127.0.0.1:{port}"
            advertised = {"advertisedListeners": listener, "internalListenerName": "internal"}
            settings = {"advertisedAddress": "", **advertised, **settings}
        conf = folder / "standalone.conf"
        ports = {"brokerServicePort": str(broker), "webServicePort": str(web)}
        if tls:
            ports |= {"brokerServicePortTls": str(broker_tls), "webServicePortTls": str(web_tls)}
        _configure(conf, {**SMALL, **settings, **ports})
        self._environment = {
            **os.environ,
            "PULSAR_STANDALONE_CONF": str(conf),
            "PULSAR_MEM": MEMORY,
            "PULSAR_GC": "-Dpenstock=tests",  # in place of its own choice of collector
            "PULSAR_LOG_ROOT_LEVEL": "warn",
            "PULSAR_LOG_DIR": str(folder),
            "PULSAR_STOP_TIMEOUT": "5",
        }
        self._command = [
            str(HOME / "home" / "bin" / "pulsar"), "standalone", "-nfw", "-nss",
            "--metadata-dir", str(folder / "metadata"), "--bookkeeper-dir", str(folder / "bookkeeper"),
            "--bookkeeper-port", str(bookie),
        ]  # fmt: skip
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self.cluster = PulsarCluster(
            f"pulsar://127.0.0.1:{port}", f"http://127.0.0.1:{web}", 0, token, self.start
        )
        if tls:
            self.cluster.tls_url = f"pulsar+ssl://127.0.0.1:{broker_tls}"
            self.cluster.admin_tls_url = f"https://127.0.0.1:{web_tls}"

    def start(self, *more: str) -> int:
        """Start it, and wait until it is ready; what ran before has been killed. Returns the id of the process."""
        self.end()
        with self._output.open("ab") as out:
            self._process = subprocess.Popen(
                [*self._command, *more],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.cluster.pid = self._process.pid
        _wait_ready(self.cluster, self._process, self._output)
        return self._process.pid

    def end(self) -> None:
        """Kill it: its data is thrown away, or is to stand that."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)


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


def _configure(conf: Path, settings: Mapping[str, str]) -> None:
    """The configuration as shipped, with these settings in place of its own."""
    lines = (HOME / "home" / "conf" / "standalone.conf").read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0].strip() not in settings]
    conf.write_text("\n".join([*kept, *(f"{key}={value}" for key, value in settings.items())]) + "\n")


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago: a broker cannot be told to choose, and to say which.

    They are of those that the system gives to nobody by itself, lest a connection or a server of another test gets one before the
    broker has it, or while the broker is started again.
    """
    try:
        given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:  # no Linux
        given_from = 49_152
    first = 10_000 if given_from > 12_000 else 1024
    own = range(first, given_from)
    held: list[socket] = []
    try:
        # Where the system gives all of them, it chooses.
        for port in SystemRandom().sample(own, k=min(1000, len(own))) or [0] * count:
            one = socket()
            held.append(one)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
    raise AssertionError("no port is free")
