"""What only a real connection shows: hang-ups, bodies that are not read, and a stop while clients wait."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.waiting import until

from penstock.testing.server import Launched, launch

SUB = "/topics/public/default/t/subscription/s"


class Server:
    """A server in a process of its own, and short names for what the tests do with it."""

    def __init__(self, launched: Launched) -> None:
        self.process = launched.process
        self.port = urlsplit(launched.url).port or 0

    def call(self, method: str, path: str, body: Any = None, timeout: float = 90) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            content = response.read()
            return response.status, json.loads(content) if content else None
        finally:
            connection.close()

    def consumer(self, **options: Any) -> str:
        _, answer = self.call("POST", SUB, {"initial_position": "earliest", **options})
        return f"{SUB}/consumer/{answer['id']}/messages"

    def publish(self, *values: str) -> None:
        status, _ = self.call(
            "POST", "/topics/public/default/t", {"messages": [{"value": v} for v in values]}
        )
        assert status == 200

    def unacknowledged(self) -> int:
        count: int = self.call("GET", f"{SUB}/cursor")[1]["cursor"]["unacknowledged"]
        return count

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.port}/metrics").text

    def send(self, data: bytes) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        connected.sendall(data)
        return connected


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with launch(tmp_path / "data") as launched:
        yield Server(launched)


def test_a_client_that_hangs_up_in_a_long_poll_gets_nothing(server: Server) -> None:
    path = server.consumer()
    for _ in range(20):
        server.send(f"GET {path}?timeout=60000 HTTP/1.1\r\nhost: x\r\n\r\n".encode()).close()
    server.publish("a")
    _, answer = server.call("GET", f"{path}?timeout=60000")
    assert [(m["value"], m["redeliveryCount"]) for m in answer["messages"]] == [("a", 0)]
    assert server.unacknowledged() == 1


def test_an_answer_that_is_not_taken_comes_again(server: Server) -> None:
    path = server.consumer()
    for _ in range(12):
        server.publish("x" * 1_000_000)
    cut = server.send(f"GET {path}?timeout=60000&max_bytes=16000000 HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert cut.recv(1000).startswith(b"HTTP/1.1 200")
    assert server.unacknowledged() > 0  # it is being written, to a client that does not read
    cut.close()
    _, answer = server.call("GET", f"{path}?timeout=60000&max_messages=1")
    assert [(m["offset"], m["redeliveryCount"]) for m in answer["messages"]] == [(0, 0)]
    assert server.unacknowledged() == 1


def test_a_body_too_large_is_refused_before_it_is_sent(server: Server) -> None:
    head = b"POST /topics/public/default/t HTTP/1.1\r\nhost: x\r\ncontent-length: 900000000\r\nexpect: 100-continue\r\n\r\n"
    refused = server.send(head)
    assert refused.recv(1000).startswith(b"HTTP/1.1 413")
    refused.close()
    server.publish("a")


def test_a_stop_ends_waits_with_an_answer(server: Server) -> None:
    path = server.consumer()
    answers: list[tuple[int, Any]] = []
    waiting = threading.Thread(target=lambda: answers.append(server.call("GET", f"{path}?timeout=60000")))
    waiting.start()
    until(lambda: "penstock_http_requests_in_progress 2" in server.metrics())  # this question, and the wait
    server.process.terminate()
    waiting.join(timeout=60)
    assert server.process.wait(timeout=60) == 0
    assert answers == [(200, {"messages": []})]
