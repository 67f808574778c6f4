"""What posted bodies unfold to counts as held, as the bodies of all other endpoints do."""

import gzip
import zlib
from typing import Any

import pytest
from tests.support.kafka_rest import FOO, LOG, KafkaRestServer, framed

from penstock.protocols.holding import STATE_KEY, Holding
from penstock.protocols.load import Load
from penstock.server.dispatch import AsgiExchange

TEXT = b"ab" * 15_000
PART = b"--b\r\nContent-Encoding: gzip\r\n\r\n%b\r\n" % gzip.compress(TEXT[:15_000])
SET = gzip.compress(framed(bytes(29_990)))  # messages within the payload of a frame


def of_a_set(payload: bytes) -> bytes:
    frame = bytearray(framed(payload))
    frame[5] = 1  # its attributes: gzip
    return bytes(frame)


class Noting(Holding):
    """Notes by how much more is held, and less."""

    def __init__(self, load: Load) -> None:
        super().__init__(load, "10.0.0.1")
        self.noted: list[int] = []

    def receive(self, size: int) -> None:
        self.noted.append(size)
        super().receive(size)


async def post(server: KafkaRestServer, body: bytes, bytes_max: int, **headers: str) -> tuple[int, list[int]]:
    """The status of a POST while connections may hold so many bytes, and what was counted for it."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    async def send(event: Any) -> None: ...

    load = Load(100, 100, bytes_max, 1)
    holding = Noting(load)
    lines = [(f"content-{name}".encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": LOG, "headers": lines, "query_string": b""}
    exchange = AsgiExchange({**scope, "state": {STATE_KEY: holding}}, receive, send)
    await server.app.asgi.serve(exchange)
    assert load.held == 0
    return exchange.status, holding.noted


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"type": "text/plain", "encoding": "gzip"}, gzip.compress(TEXT)),
        ({"type": "text/plain", "encoding": "deflate"}, zlib.compress(TEXT)),
        ({"type": "multipart/mixed; boundary=b"}, PART * 2 + b"--b--"),
        ({"type": "application/x-kafka"}, of_a_set(SET)),
    ],
)
async def test_what_a_body_unfolds_to_is_held_until_it_was_served(
    headers: dict[str, str], body: bytes
) -> None:
    async with KafkaRestServer.open() as server:
        assert await post(server, body, 20_000, **headers) == (503, [30_000, -30_000])
        assert server.broker.topics.names(FOO.namespace_name) == []  # nothing was done
        assert await post(server, body, 100_000, **headers) == (204, [30_000, -30_000])


async def test_a_body_as_it_is_counts_once() -> None:
    async with KafkaRestServer.open() as server:  # its connection counts it
        assert await post(server, TEXT, 20_000, type="text/plain", encoding="identity") == (204, [])
