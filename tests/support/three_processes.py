"""Three processes before a real Kafka, and clients of WebSocket and REST at any of them."""

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from penstock.testing.server import Launched

from .kafka_broker import KafkaCluster
from .service import WAIT_S, flags_before, service
from .waiting import until


class Processes:
    """Three processes; the numbers of requests choose one of them."""

    def __init__(self, nodes: list[Launched]) -> None:
        self.nodes = nodes

    def ask(self, at: int, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = httpx.request(method, f"{self.nodes[at].url}{path}", timeout=WAIT_S, **more)
        assert answer.status_code == status, (at, method, path, answer.text)
        return answer.json() if answer.content else None

    def figures(self, metric: str, topic: str) -> dict[str, float]:
        """The values of a metric by process and topic, of those topics that contain a text."""
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

    def publish(self, at: int, topic: str, *values: str) -> None:
        messages = [{"value": value} for value in values]
        answer = self.ask(at, "POST", f"/topics/public/default/{topic}", json={"messages": messages})
        assert {one["error_code"] for one in answer["messageIds"]} == {None}

    def backlog(self, at: int, topic: str) -> int:
        """That of subscription `s`."""
        found: int = self.ask(at, "GET", admin(topic, "/stats"))["subscriptions"]["s"]["msgBacklog"]
        return found

    @contextlib.contextmanager
    def consumer(self, at: int, topic: str, query: str = "Shared") -> Iterator[ClientConnection]:
        url = (
            f"{self.nodes[at].ws}/ws/v2/consumer/persistent/public/default/{topic}/s?subscriptionType={query}"
        )
        with connect(url, compression=None, proxy=None, close_timeout=2) as socket:
            yield socket

    @contextlib.contextmanager
    def producer(self, at: int, topic: str) -> Iterator[ClientConnection]:
        url = f"{self.nodes[at].ws}/ws/v2/producer/persistent/public/default/{topic}"
        with connect(url, compression=None, proxy=None, close_timeout=2) as socket:
            socket.send(json.dumps({"payload": base64.b64encode(b"p").decode()}))
            assert json.loads(socket.recv(WAIT_S))["result"] == "ok"
            yield socket


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


@contextlib.contextmanager
def three_processes(cluster: KafkaCluster, folder: Path) -> Iterator[Processes]:
    """Before a Kafka, with topics of their own for documents and cursors; they own all slots."""
    with service(folder, flags_before(cluster)) as running:
        made = Processes(running.nodes)
        try:
            until(lambda: made.sum("penstock_kafka_slots_owned") == 64)
            yield made
        except BaseException:
            for node in made.nodes:
                print(node.log)
            raise
