"""Processes that are one service before a Kafka broker, with many topics, subscriptions and consumers.

    python -m benchmarks.fleet [--processes 3] [--topics 5000] [--subscriptions 2000] [--consumers 5000] [--folder DIR]

Kafka is that of the tests (`scripts/kafka.sh fetch`), started for this with its data in a fresh folder. The topics are in one
namespace. Each subscription is of a topic of its own and shared by its consumers, which come over WebSocket, each to the next
process. A canary is a message that is published over REST at one process and delivered over WebSocket by another. Then one process is
stopped and started again at its address while every subscribed topic gets a message by a client of Kafka's: consumers are back when
all of these were delivered, and every consumer has a socket.
"""

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import kafka_broker
from tests.support.many_consumers import SocketConsumers, connections, threads

from . import servers
from .gateways import resident_mb

SECRET: Final = "a secret of the processes of a benchmark"
CREATED_AT_ONCE: Final = 250  # topics
CANARIES: Final = 300
CANARY_S: Final = 0.05  # between two
FEW: Final = 100  # subscriptions of the first count of threads and connections
BACK_S: Final = 300.0
FILES: Final = 20_000


class Node:
    """One process of the service. It keeps its port when it is started again."""

    def __init__(self, flags: Sequence[str], folder: Path, number: int) -> None:
        self.port = servers.free_port()
        self._flags = flags
        self._folder = folder
        self._errors = folder / f"errors-{number}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it; returns once it is ready."""
        command = [sys.executable, "-m", "penstock", "serve", "--http", self.authority, *self._flags]
        environment = {**os.environ, "PENSTOCK_FLEET__SECRET": SECRET}
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, cwd=self._folder, env=environment
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self._errors.read_text()

    def stop(self) -> None:
        """Stop it as a supervisor does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


class Size(NamedTuple):
    """What the processes have: threads, and connections to the broker, of all; resident memory in MB of the largest."""

    threads: int
    connections: int
    resident_mb: float


def size(nodes: Sequence[Node], broker_port: int) -> Size:
    pids = [node.pid for node in nodes]
    return Size(threads(pids), connections(pids, broker_port), max(resident_mb(pid) for pid in pids))


class Cpu(NamedTuple):
    """CPU time (s). It says more than elapsed time if the machine has other work."""

    processes: Sequence[float]
    broker: float
    load: float  # of this program


def cpu_s(nodes: Sequence[Node], cluster: kafka_broker.KafkaCluster) -> Cpu:
    return Cpu([_cpu_s(node.pid) for node in nodes], _cpu_s(cluster.pid), time.process_time())


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def spent_since(before: Cpu, nodes: Sequence[Node], cluster: kafka_broker.KafkaCluster) -> str:
    now = cpu_s(nodes, cluster)
    own = " + ".join(f"{end - begin:.1f}" for end, begin in zip(now.processes, before.processes, strict=True))
    broker, load = now.broker - before.broker, now.load - before.load
    return f"{own} s of the processes, {broker:.1f} s of the broker, {load:.1f} s of the load"


class Canary:
    """Messages whose way from REST at one process to WebSocket at another is measured."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self._sent: dict[str, float] = {}
        self._came: dict[str, asyncio.Event] = {}

    def seen(self, number: int, topic: str, payload: str) -> None:
        if payload in self._came and not self._came[payload].is_set():
            self.ms.append((time.perf_counter() - self._sent[payload]) * 1000)
            self._came[payload].set()

    async def fly(self, client: httpx.AsyncClient, count: int) -> None:
        """Publish `count` messages one after another, each once the last was delivered."""
        for _ in range(count):
            value = f"{len(self._sent)}"
            payload = b64encode(value.encode()).decode()
            self._came[payload], self._sent[payload] = asyncio.Event(), time.perf_counter()
            (
                await client.post("/topics/public/default/canary", json={"messages": [{"value": value}]})
            ).raise_for_status()
            await self._came[payload].wait()
            await asyncio.sleep(CANARY_S)

    def line(self) -> str:
        """Median, 99 % and most; forgets them."""
        found, self.ms = sorted(self.ms), []
        p99 = found[int(len(found) * 0.99)]
        return f"p50 {statistics.median(found):.1f} ms, p99 {p99:.1f} ms, most {found[-1]:.1f} ms"


def show(what: str, figure: str) -> None:
    print(f"{what:>44}: {figure}", flush=True)


async def measure(nodes: Sequence[Node], cluster: kafka_broker.KafkaCluster, wanted: "Wanted") -> None:
    """All of it, in order; prints a line for each figure."""
    bootstrap = cluster.bootstrap
    broker_port = int(bootstrap.rsplit(":", 1)[1])
    await asyncio.to_thread(create_topics, bootstrap, wanted.topics)
    canary, messages = Canary(), Messages(bootstrap)
    at = [node.authority for node in nodes]
    canaries, watching = (
        SocketConsumers(lambda: at[1:], canary.seen),
        SocketConsumers(lambda: at, messages.seen),
    )
    async with httpx.AsyncClient(base_url=f"http://{nodes[0].authority}", timeout=60) as client:
        await canaries.open("canary", "canary", 0)
        await canary.fly(client, CANARIES)
        show("canary, no other consumers", canary.line())

        few = min(FEW, wanted.subscriptions)
        await open_consumers(watching, few, few, 0)
        before, spent = size(nodes, broker_port), cpu_s(nodes, cluster)
        show(f"threads, connections at {few} subscriptions", f"{before.threads}, {before.connections}")
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(canary.fly(client, CANARIES))
            await open_consumers(watching, wanted.subscriptions, wanted.consumers, few)
            took = time.perf_counter() - began
        show(
            f"{wanted.consumers:,} consumers opened",
            f"in {took:.1f} s, {(wanted.consumers - few) / took:.0f}/s",
        )
        show("CPU meanwhile", spent_since(spent, nodes, cluster))
        show("canary, while they were opened", canary.line())
        after = size(nodes, broker_port)
        show(
            f"threads, connections at {wanted.subscriptions:,} subscriptions",
            f"{after.threads}, {after.connections}",
        )
        show("resident memory of the largest process", f"{after.resident_mb:.0f} MB")

        await messages.deliver(wanted.subscriptions, watching, wanted.consumers)
        await canary.fly(client, CANARIES)
        show("canary, all consumers there", canary.line())

        last, refused, spent = nodes[-1], len(watching.errors), cpu_s(nodes[:-1], cluster)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(restart, last))
            await messages.deliver(wanted.subscriptions, watching, wanted.consumers)
            took = time.perf_counter() - began
        show("restart of a process: all delivered", f"{took:.1f} s after it was told to stop")
        show("CPU meanwhile, but for that process", spent_since(spent, nodes[:-1], cluster))
        show("connections that were refused meanwhile", f"{len(watching.errors) - refused}")
        await canary.fly(client, CANARIES)
        show("canary, after the restart", canary.line())
        end = size(nodes, broker_port)
        show(
            "threads, connections, memory at the end",
            f"{end.threads}, {end.connections}, {end.resident_mb:.0f} MB",
        )
    await watching.close()
    await canaries.close()


def restart(node: Node) -> None:
    node.stop()
    node.start()


async def open_consumers(watching: SocketConsumers, subscriptions: int, consumers: int, first: int) -> None:
    """Consumers from number `first` on, of subscriptions in turn."""
    opening = (
        watching.open(topic_name(number % subscriptions), f"s-{number % subscriptions}", number)
        for number in range(first, consumers)
    )
    await asyncio.gather(*opening)


def topic_name(number: int) -> str:
    return f"many-{number}"


def create_topics(bootstrap: str, count: int) -> None:
    """By Kafka's own admin API, as they are there when a gateway comes."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = ["canary", *map(topic_name, range(count))]
    began = time.perf_counter()
    for start in range(0, len(names), CREATED_AT_ONCE):
        part = [NewTopic(name, 1, 1) for name in names[start : start + CREATED_AT_ONCE]]
        for done in admin.create_topics(part, operation_timeout=60).values():
            done.result(60)
        if sys.stderr.isatty():
            print(f"\r{start + len(part):,} of {len(names):,} topics", end="", file=sys.stderr, flush=True)
    show(f"{count:,} topics created", f"in {time.perf_counter() - began:.1f} s")


class Messages:
    """One message to each of the subscribed topics, and which of them were delivered."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 5})
        self._round = 0
        self._payload = ""
        self._missing: set[str] = set()

    def seen(self, number: int, topic: str, payload: str) -> None:
        if payload == self._payload:
            self._missing.discard(topic)

    async def deliver(self, subscriptions: int, watching: SocketConsumers, consumers: int) -> None:
        """Publish, and return once all were delivered and all consumers are connected."""
        self._round += 1
        value = f"round {self._round}"
        self._payload = b64encode(value.encode()).decode()
        self._missing = {topic_name(number) for number in range(subscriptions)}
        for topic in list(self._missing):
            self._producer.produce(topic, value.encode())
        await asyncio.to_thread(self._producer.flush)
        until = time.monotonic() + BACK_S
        while self._missing or watching.connected < consumers:
            assert time.monotonic() < until, (
                f"{len(self._missing)} topics without delivery, {watching.connected} consumers: {watching.errors[-3:]}"
            )
            await asyncio.sleep(0.05)


class Wanted(NamedTuple):
    """How many of each."""

    processes: int
    topics: int
    subscriptions: int
    consumers: int


@contextmanager
def service(count: int, flags: Sequence[str], folder: Path) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        nodes = [Node(flags, folder, number) for number in range(count)]
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        yield nodes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, count in (("processes", 3), ("topics", 5000), ("subscriptions", 2000), ("consumers", 5000)):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"default: {count:,}")
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    wanted = Wanted(given.processes, given.topics, given.subscriptions, given.consumers)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=given.folder) as name:
        folder = Path(name)
        (data := folder / "kafka").mkdir()
        with kafka_broker.standalone(data, {"num.partitions": "1"}) as cluster:
            flags = ["--engine", cluster.service_url, "--pulsar", "127.0.0.1:0", "--log", "json"]
            with service(wanted.processes, flags, folder) as nodes:
                uvloop.run(measure(nodes, cluster, wanted))


if __name__ == "__main__":
    main()
