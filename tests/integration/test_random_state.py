"""The state of the `random` module belongs to the application: neither a server in its process nor a client changes it.

Hypothesis watches that state while it draws, and fails a test in which something else has changed it: so would every
test that uses `@given` and the fixture `penstock`.
"""

import base64
import json
import random
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import websockets.sync.client
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisDeprecationWarning
from tests.support.binary import Pulsar, pulsar_server, take

import penstock
from penstock.client.aio.tasks import Backoff

DRAWING = ("choice", "choices", "getrandbits", "randbytes", "randint", "random", "randrange", "sample", "shuffle", "uniform")  # fmt: skip
WS = "/ws/v2/producer/persistent/public/default/{}?messageRoutingMode=RoundRobinPartition"
PING = 0x89
SOURCES = str(Path(penstock.__file__).parent) + "/"


@pytest.fixture(scope="module")
def server() -> Iterator[Pulsar]:
    with pulsar_server(http={"websocket_ping_s": 1}) as made:
        yield made


def use(server: Pulsar, number: int) -> int:
    """Something over every endpoint, each on a topic that is new."""
    http, name = server.http, server.topic("random").rpartition("/")[2]
    path = f"/topics/public/default/{name}"
    assert http.put(f"/admin/v2/persistent/public/default/{name}/partitions", content="3").status_code == 204
    produced = http.post(path, json={"messages": [{"value": "a"}, {"value": "b"}]})
    assert produced.status_code == 200, produced.text
    kafka = http.post(f"/kafka/topics/{name}/0", content=b"c", headers={"Content-Type": "text/plain"})
    assert kafka.status_code == 204, kafka.text
    asked = http.post(f"{path}/request", params={"timeout": 1}, json={"value": "d"})
    assert asked.status_code == 504, asked.text
    with websockets.sync.client.connect(server.server.ws + WS.format(name), ping_interval=None) as ws:
        ws.send(json.dumps({"payload": base64.b64encode(b"e").decode()}))
        assert json.loads(ws.recv())["result"] == "ok"
    consumer = server.subscribe(f"persistent://public/default/{name}", f"s{number}")
    server.publish(f"persistent://public/default/{name}", b"f")
    assert take(consumer, 1)
    consumer.close()
    client = penstock.Client(server.server.pulsar)
    try:
        client.create_producer(name).send(b"g")
        assert Backoff().next_s() > 0
    finally:
        client.close()
    return number


def pinged(server: Pulsar) -> None:
    """Wait on a WebSocket until the server has sent a ping."""
    host = httpx.URL(server.server.url)
    with socket.create_connection((host.host, host.port or 0), timeout=60) as raw:
        head = (
            f"GET {WS.format('pinged')} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        raw.sendall(head.encode())
        heard = b""
        while b"\r\n\r\n" not in heard or heard.endswith(b"\r\n\r\n"):
            heard += raw.recv(4096)
        assert heard.partition(b"\r\n\r\n")[2][0] == PING


def test_hypothesis_notices_another_thread_that_draws() -> None:
    """The control: this is how a server in a thread failed tests by chance."""

    def disturbed(number: int) -> int:
        random.random()  # noqa: TID251
        return number

    @settings(max_examples=2, database=None)
    @given(st.integers(0, 9).map(disturbed))
    def property_of(number: int) -> None:
        pass

    with pytest.raises(HypothesisDeprecationWarning, match="random"):
        property_of()


def test_a_server_at_work_does_not_disturb_hypothesis(server: Pulsar) -> None:
    """The whole of the work is done while Hypothesis draws, so that a single number taken by it is seen."""

    @settings(max_examples=3, database=None)
    @given(st.integers(0, 9).map(lambda number: use(server, number)))
    def property_of(number: int) -> None:
        assert 0 <= number <= 9

    property_of()


def test_nothing_of_the_server_draws(server: Pulsar, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    def watched(name: str) -> Any:
        real = getattr(random, name)

        def draw(*arguments: Any, **named: Any) -> Any:
            stack = traceback.extract_stack(sys._getframe(1))
            if any(frame.filename.startswith(SOURCES) for frame in stack):
                drawn.append(f"random.{name}: {stack[-1]}")
            return real(*arguments, **named)

        return draw

    for name in DRAWING:
        monkeypatch.setattr(random, name, watched(name))
    use(server, 1)
    pinged(server)
    assert drawn == []
