"""A real Apache Kafka for tests: one process that is broker and controller (KRaft).

Its jars are fetched by `scripts/kafka.sh fetch`. A broker takes 4 to 8 s to be ready, so that tests share one.
"""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .pulsar_broker import free_ports

HOME: Final = Path(__file__).parents[1] / "clusters" / "build" / "kafka"
READY_S: Final = 180.0
STOP_S: Final = 30.0
LOOK_S: Final = 0.1  # between two looks at a broker that starts: it tells nobody
ASK_S: Final = 2.0

MEMORY: Final = ("-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"

# One node; small, as it runs beside everything else.
SMALL: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "5000",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "8388608",
}


class KafkaCluster(msgspec.Struct):
    """Where a broker is; `pid` 0: it was there before and is not ours."""

    bootstrap: str  # host:port
    pid: int = 0
    tls: bool = False
    plain: str = ""  # host:port of a listener that asks nobody who comes, where there is another one
    again: Callable[[], int] | None = None  # starts it again, and says its process
    logs: Path | None = None  # where its data is, if it is ours

    @property
    def service_url(self) -> str:
        """As `--engine` takes it."""
        return f"{'kafka+ssl' if self.tls else 'kafka'}://{self.bootstrap}"

    def tool(self, name: str, *arguments: str, stdin: str = "") -> str:
        """What one of Kafka's own tools prints: `org.apache.kafka.tools.TopicCommand`, …; fails if it fails."""
        return _java(name, "--bootstrap-server", self.plain or self.bootstrap, *arguments, stdin=stdin)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.plain or self.bootstrap, "log_level": 0})
        for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(ASK_S * 10)

    def kill(self, number: signal.Signals) -> None:
        """Send the broker a signal; only for one that this test started."""
        assert self.pid, "the broker is not ours"
        os.kill(self.pid, number)

    def restart(self) -> None:
        """Start the broker that was killed again, on the same data and port; returns when it is ready."""
        assert self.again is not None, "the broker is not ours"
        self.pid = self.again()

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Kill the broker, and start it again without the records of a partition from an offset on, as after a crash of its machine.

        A batch of records begins at the offset, in the first segment.
        """
        assert self.logs is not None, "the broker is not ours"
        self.kill(signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        folder = self.logs / f"{topic}-{partition}"
        segment = folder / f"{0:020}.log"
        os.truncate(segment, _batch_at(segment.read_bytes(), end))
        for derived in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):  # they are made again
            for one in folder.glob(derived):
                one.unlink()
        self.restart()


def _batch_at(segment: bytes, offset: int) -> int:
    """Where the batch that begins at an offset is. Batches begin with an offset (8 bytes) and the length of what follows (4)."""
    at = 0
    while at < len(segment):
        first, length = struct.unpack_from(">qi", segment, at)
        if first == offset:
            return at
        at += 12 + length
    raise AssertionError(f"no batch begins at {offset}")


def given() -> KafkaCluster | None:
    """The cluster that the environment names, for work at one test: KAFKA_URL, as `kafka://127.0.0.1:9092`."""
    url = os.environ.get("KAFKA_URL")
    return KafkaCluster(url.removeprefix("kafka://")) if url else None


@contextlib.contextmanager
def standalone(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    listener: str = "PLAINTEXT",
    *,
    reached_at: Callable[[int], int] | None = None,
    java: Sequence[str] = (),
) -> Iterator[KafkaCluster]:
    """Start a broker with its data in `folder`; `settings` are added to those of its configuration.

    `listener` is the protocol in which clients come: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. `reached_at` is given the broker's
    port, and says by which one clients reach it. `java` are options of its Java.
    """
    if not (HOME / "home").exists():
        missing = HOME / "missing"
        pytest.skip(missing.read_text().strip() if missing.exists() else "scripts/kafka.sh fetch has not run")
    process = _Process(folder, settings or {}, listener, reached_at, java)
    try:
        process.format()
        process.start()
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
        listener: str,
        reached_at: Callable[[int], int] | None,
        java: Sequence[str],
    ) -> None:
        self._java = java
        # The test looks at the inner listener, which asks nobody who comes; clients are told the one that was asked for.
        inner, control, outer = free_ports(3)
        plain = listener == "PLAINTEXT" and reached_at is None
        listeners = f"PLAINTEXT://127.0.0.1:{inner}"
        protocols = SMALL["listener.security.protocol.map"]
        if not plain:
            listeners = f"{listeners},CLIENTS://127.0.0.1:{outer}"
            protocols = f"{protocols},CLIENTS:{listener}"
        port = inner if plain else outer if reached_at is None else reached_at(outer)
        advertised = listeners if plain else listeners.replace(f":{outer}", f":{port}")
        self._folder = folder
        self._conf = folder / "server.properties"
        own = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{control}",
            "advertised.listeners": f"{advertised},CONTROLLER://127.0.0.1:{control}",
            "listener.security.protocol.map": protocols,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{control}",
            "log.dirs": str(folder / "logs"),
        }
        lines = [f"{key}={value}" for key, value in {**SMALL, **own, **settings}.items()]
        self._conf.write_text("\n".join(lines) + "\n")
        self._inner = f"127.0.0.1:{inner}"
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self.cluster = KafkaCluster(f"127.0.0.1:{port}", 0, listener.endswith("SSL"), self._inner, self.start)
        self.cluster.logs = folder / "logs"

    def format(self) -> None:
        """Prepare the folder of its logs."""
        _java("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._conf))

    def start(self) -> int:
        """Start it, and wait until it is ready; what ran before has been killed. Returns the id of the process."""
        self.end()
        with self._output.open("ab") as out:
            self._process = subprocess.Popen(
                ["java", *MEMORY, *self._java, "-cp", f"{HOME}/home/*", "kafka.Kafka", str(self._conf)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.cluster.pid = self._process.pid
        self._wait_ready(self._process)
        return self._process.pid

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + READY_S
        # librdkafka says on stderr that nobody is there yet.
        admin = AdminClient(
            {"bootstrap.servers": self._inner, "log_level": 0, "reconnect.backoff.max.ms": 200}
        )
        while True:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=ASK_S).brokers:
                    return
            over = process.poll() is not None or time.monotonic() > end
            assert not over, f"Kafka does not start: {self._output.read_text(errors='replace')[-3000:]}"
            time.sleep(LOOK_S)

    def end(self) -> None:
        """Kill it: its data is thrown away, or is to stand that."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(STOP_S)


def _java(name: str, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        [
            "java",
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            f"{HOME}/home/*",
            name,
            *arguments,
        ],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=READY_S,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout
