"""Several processes before one cluster that are one service, and plain requests to any of them.

The numbers of requests choose the process.
"""

import base64
import contextlib
import json
import signal
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from penstock.testing.server import Launched

from .kafka_broker import KafkaCluster
from .pulsar_broker import PulsarCluster
from .waiting import until

WAIT_S: Final = 60.0
OWNER_S: Final = 20.0  # an acknowledgement waits longer for the next owner of a partition
SECRET: Final = {"PENSTOCK_FLEET__SECRET": "a secret of these processes"}


def flags_before(cluster: PulsarCluster | KafkaCluster) -> list[str]:
    """Of a service that shares no topics with others."""
    if isinstance(cluster, PulsarCluster):
        return ["--engine", cluster.service_url, "--admin", cluster.admin_url]
    topics = f"__{uuid4().hex[:10]}"
    flags = ["--engine", cluster.service_url]
    for key, name in (("documents", ""), ("replies", "-replies"), ("journals", "-journals")):
        flags += ["--set", f"engine.{key}_topic={topics}{name}"]
    return flags


class Service:
    """`nodes` learn their addresses from documents in the cluster only; a killed one stays in the list. `own` is what is added to
    the environment of single processes, by number."""

    def __init__(
        self,
        folder: Path,
        flags: Sequence[str],
        environment: Mapping[str, str] = SECRET,
        own: Mapping[int, Mapping[str, str]] = {},
    ) -> None:
        self.nodes: list[Launched] = []
        self._by_number: dict[int, Launched] = {}
        self._folder = folder
        self._flags = ["--log", "json", *flags]
        self._environment = environment
        self._own = own

    def start(self, number: int, *flags: str, environment: Mapping[str, str] | None = None) -> Launched:
        """Start the process of a number, or start it again."""
        shared = self._environment if environment is None else environment
        node = Launched.start(
            self._folder / f"node-{number}",
            *self._flags,
            *flags,
            environment={**shared, **self._own.get(number, {})},
        )
        self._by_number[number] = node
        self.nodes[:] = [self._by_number[one] for one in sorted(self._by_number)]
        return node

    def start_all(self, count: int) -> None:
        with ThreadPoolExecutor(count) as pool:
            started = [pool.submit(self.start, number) for number in range(count)]
        for each in started:
            each.result()
        self.know_one_another()

    def know_one_another(self) -> None:
        """Wait until every process knows all others."""
        live = [node for node in self.nodes if node.process.poll() is None]
        until(lambda: all(known_by(node) == len(live) - 1 for node in live))

    def close(self) -> None:
        with ThreadPoolExecutor(max(1, len(self.nodes))) as pool:
            list(pool.map(_end, self.nodes))

    # -- requests

    def ask(self, at: int, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = httpx.request(method, f"{self.nodes[at].url}{path}", timeout=WAIT_S, **more)
        assert answer.status_code == status, (at, method, path, answer.text)
        return answer.json() if answer.content else None

    def new_topic(self, partitions: int = 1) -> str:
        """The name of a topic that is created."""
        name = f"t{uuid4().hex[:10]}"
        if partitions > 1:
            self.ask(0, "PUT", admin(name, "/partitions"), 204, json=partitions)
        else:
            self.ask(0, "PUT", admin(name), 204)
        return name

    def publish(self, at: int, topic: str, *values: str, **more: object) -> None:
        """Publish messages in one request; `more` are further fields of each. Of values `key/…` the key is theirs."""
        messages = []
        for value in values:
            key, separator, _ = value.partition("/")
            messages.append({"value": value, **({"key": key} if separator else {}), **more})
        answer = self.ask(at, "POST", f"/topics/public/default/{topic}", json={"messages": messages})
        assert {one["error_code"] for one in answer["messageIds"]} == {None}

    def figures(self, metric: str, topic: str) -> dict[str, float]:
        """The values of a metric by process and labels, of those topics whose names contain a text."""
        found = {}
        for at, node in enumerate(self.nodes):
            text = httpx.get(f"{node.url}/metrics", timeout=WAIT_S).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    if sample.name == metric and topic in sample.labels.get("topic", topic):
                        found[f"{at} {sample.labels}"] = sample.value
        return found

    def sum(self, metric: str, topic: str = "") -> float:
        return sum(self.figures(metric, topic).values())

    def backlog(self, at: int, topic: str) -> int:
        """That of subscription `s`."""
        found: int = self.ask(at, "GET", admin(topic, "/stats"))["subscriptions"]["s"]["msgBacklog"]
        return found

    @contextlib.contextmanager
    def consumer(
        self, at: int, topic: str, query: str = "Shared", *, subscription: str = "s"
    ) -> Iterator[ClientConnection]:
        """`query` begins with the type of the subscription."""
        path = f"/ws/v2/consumer/persistent/public/default/{topic}/{subscription}?subscriptionType={query}"
        url = f"{self.nodes[at].ws}{path}"
        with connect(url, compression=None, proxy=None, close_timeout=2) as socket:
            yield socket

    @contextlib.contextmanager
    def producer(
        self, at: int, topic: str, value: str = "p", *, name: str = ""
    ) -> Iterator[ClientConnection]:
        """One that has published a value."""
        query = f"?producerName={name}" if name else ""
        url = f"{self.nodes[at].ws}/ws/v2/producer/persistent/public/default/{topic}{query}"
        with connect(url, compression=None, proxy=None, close_timeout=2) as socket:
            socket.send(json.dumps({"payload": base64.b64encode(value.encode()).decode()}))
            assert json.loads(socket.recv(WAIT_S))["result"] == "ok"
            yield socket


def _end(node: Launched) -> None:
    if node.process.poll() is None:
        node.process.send_signal(signal.SIGCONT)
        node.terminate()
    elif node.process.stdout is not None:
        node.process.stdout.close()


@contextlib.contextmanager
def service(
    folder: Path,
    flags: Sequence[str],
    count: int = 3,
    environment: Mapping[str, str] = SECRET,
    own: Mapping[int, Mapping[str, str]] = {},
) -> Iterator[Service]:
    made = Service(folder, flags, environment, own)
    try:
        made.start_all(count)
        yield made
    except BaseException:
        for node in made.nodes:
            print(node.log)
        raise
    finally:
        made.close()


def take(socket: ClientConnection, count: int, *, acknowledge: bool = True) -> list[str]:
    """The values of so many messages."""
    values = []
    while len(values) < count:
        message = json.loads(socket.recv(WAIT_S))
        values.append(base64.b64decode(message["payload"]).decode())
        if acknowledge:
            socket.send(json.dumps({"messageId": message["messageId"]}))
    return values


def closed(socket: ClientConnection) -> bool:
    """Wait until the server closes it."""
    try:
        while True:
            socket.recv(WAIT_S)
    except ConnectionClosed:
        return True


def admin(topic: str, more: str = "") -> str:
    return f"/admin/v2/persistent/public/default/{topic}{more}"


def known_by(node: Launched) -> int:
    """How many other processes it knows."""
    lines = httpx.get(f"{node.url}/metrics", timeout=WAIT_S).text.splitlines()
    return next(int(float(line.split()[1])) for line in lines if line.startswith("penstock_fleet_processes "))
