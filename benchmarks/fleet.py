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
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import uvloop
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import kafka_broker
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from penstock.runtime.tasks import Tasks

from . import servers
from .gateways import resident_mb

SECRET: Final = "a secret of the processes of a benchmark"
NAMESPACE: Final = "persistent/public/default"
CREATED_AT_ONCE: Final = 250  # topics
OPENED_AT_ONCE: Final = 32  # consumers
AGAIN_S: Final = 0.2  # until a consumer whose socket was closed connects to the next process
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
    return Size(
        sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids),
        sum(_connections(pid, broker_port) for pid in pids),
        max(resident_mb(pid) for pid in pids),
    )


def _connections(pid: int, port: int) -> int:
    """How many sockets of a process are connected to a port."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            own.add(str(each.readlink()))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(
        1
        for fields in lines
        if int(fields[2].rsplit(":", 1)[1], 16) == port and f"socket:[{fields[9]}]" in own
    )


class Watching:
    """Consumers over WebSocket. One whose socket is closed connects to the next process."""

    def __init__(self, nodes: Sequence[Node], seen: Callable[[str, str], None]) -> None:
        """`seen` is called with the topic and the payload (base64) of each message."""
        self.connected = 0
        self.errors: list[str] = []
        self._nodes = nodes
        self._seen = seen
        self._tasks = Tasks()
        self._opening = asyncio.Semaphore(OPENED_AT_ONCE)

    async def open(self, topic: str, subscription: str, number: int) -> None:
        """Add a consumer; returns once it is subscribed."""
        opened = asyncio.Event()
        self._tasks.spawn(self._consume(topic, subscription, number, opened), "consume")
        await opened.wait()

    async def _consume(self, topic: str, subscription: str, number: int, opened: asyncio.Event) -> None:
        path = (
            f"/ws/v2/consumer/{NAMESPACE}/{topic}/{subscription}?subscriptionType=Shared&receiverQueueSize=10"
        )
        while True:
            authority = self._nodes[number % len(self._nodes)].authority
            number += 1
            try:
                async with self._opening:
                    socket = await connect(f"ws://{authority}{path}", compression=None, ping_interval=None)
            except (InvalidHandshake, OSError, TimeoutError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(AGAIN_S)
                continue
            self.connected += 1
            opened.set()
            try:
                await self._read(socket, topic)
            finally:
                self.connected -= 1
            await asyncio.sleep(AGAIN_S)

    async def _read(self, socket: ClientConnection, topic: str) -> None:
        with suppress(WebSocketException):
            async for frame in socket:
                message = json.loads(frame)
                self._seen(topic, message["payload"])
                await socket.send(json.dumps({"messageId": message["messageId"]}))

    async def close(self) -> None:
        await self._tasks.close()


class Canary:
    """Messages whose way from REST at one process to WebSocket at another is measured."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self._sent: dict[str, float] = {}
        self._came: dict[str, asyncio.Event] = {}

    def seen(self, _: str, payload: str) -> None:
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


async def measure(nodes: Sequence[Node], bootstrap: str, wanted: "Wanted") -> None:
    """All of it, in order; prints a line for each figure."""
    broker_port = int(bootstrap.rsplit(":", 1)[1])
    await asyncio.to_thread(create_topics, bootstrap, wanted.topics)
    canary, messages = Canary(), Messages(bootstrap)
    canaries, watching = Watching(nodes[1:], canary.seen), Watching(nodes, messages.seen)
    async with httpx.AsyncClient(base_url=f"http://{nodes[0].authority}", timeout=60) as client:
        await canaries.open("canary", "canary", 0)
        await canary.fly(client, CANARIES)
        show("canary, no other consumers", canary.line())

        few = min(FEW, wanted.subscriptions)
        await open_consumers(watching, few, few, 0)
        before = size(nodes, broker_port)
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

        last, refused = nodes[-1], len(watching.errors)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(restart, last))
            await messages.deliver(wanted.subscriptions, watching, wanted.consumers)
            took = time.perf_counter() - began
        show("restart of a process: all delivered", f"{took:.1f} s after it was told to stop")
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


async def open_consumers(watching: Watching, subscriptions: int, consumers: int, first: int) -> None:
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

    def seen(self, topic: str, payload: str) -> None:
        if payload == self._payload:
            self._missing.discard(topic)

    async def deliver(self, subscriptions: int, watching: Watching, consumers: int) -> None:
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
                uvloop.run(measure(nodes, cluster.bootstrap, wanted))


if __name__ == "__main__":
    main()
