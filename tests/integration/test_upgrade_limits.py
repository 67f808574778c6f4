"""A WebSocket's upgrade has an answer, whatever its head is like, and an end."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from tests.integration.test_limits import UPGRADE, connected, head_of, refused, rest_of

from penstock.engines.core.broker.producers import Producers
from penstock.protocols.limits import Limits
from penstock.server.connections import HttpConnection
from penstock.testing.server import Address, launch, running

PRODUCER = b"/ws/v2/producer/persistent/public/default/t"
BODIES = {
    "a body": (b"Content-Length: 5", b"hello"),
    "a body that does not come": (b"Content-Length: 5", b""),
    "chunks": (b"Transfer-Encoding: chunked", b"5\r\nhello\r\n0\r\n\r\n"),
    "chunks that do not come": (b"Transfer-Encoding: chunked", b""),
}


def head(*lines: bytes, path: bytes = PRODUCER) -> bytes:
    """The head of an upgrade with more lines."""
    return b"\r\n".join([b"GET %s HTTP/1.1" % path, b"Host: a", *UPGRADE, *lines, b"", b""])


def opens(server: Address, sent: bytes, cut: int = 1_000_000) -> None:
    with connected(server, *(sent[at : at + cut] for at in range(0, len(sent), cut))) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize("cut", [1_000_000, 9_000])
@pytest.mark.parametrize(
    "sent",
    [
        head(b"Cookie: " + b"a" * 9_000),
        head(path=PRODUCER + b"?producerName=a&x=" + b"a" * 9_000),
        head_of(65_536, *UPGRADE, path=PRODUCER),
        head(b"Content-Length: 0"),
    ],
    ids=["a long line", "a long URL", "64 KiB", "an empty body"],
)
def test_a_head_within_the_bounds(sent: bytes, cut: int) -> None:
    with running() as server:
        opens(server, sent, cut)


def test_as_many_headers_as_the_limit_says() -> None:
    with running(limits=Limits(max_headers=1000)) as server:
        lines = [b"X-%d: a" % number for number in range(1000 - 5)]
        opens(server, head(*lines))
        with connected(server, head(*lines, b"Y: a")) as one_more:
            refused(rest_of(one_more), 431, "too many lines")


def test_a_large_head_counts_while_it_is_kept() -> None:
    with running() as server:
        with connected(server, head_of(60_000, *UPGRADE, path=PRODUCER)) as client:
            assert client.recv(1000).startswith(b"HTTP/1.1 101 ")
            assert _held(server) == 60_000
        assert any(not _held(server) for _ in range(1000))


def _held(server: Address) -> float:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return float(next(x for x in lines if x.startswith("penstock_request_bytes_held ")).split()[1])


@pytest.mark.parametrize("kind", BODIES)
def test_an_upgrade_with_a_body(kind: str) -> None:
    line, body = BODIES[kind]
    with running() as server, connected(server, head(line) + body) as client:
        refused(rest_of(client), 400, "must have no body")


def test_a_path_that_is_not_ascii() -> None:
    with running() as server, connected(server, head(path=PRODUCER + b"\xc3\xa4")) as client:
        assert rest_of(client).startswith(b"HTTP/1.1 400 ")


def test_a_handshake_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Producers, "open", never)
    with running(limits=Limits(head_ms=700)) as server, connected(server, head()) as client:
        refused(rest_of(client), 503, "limits.head_ms = 700 ms")


def test_a_server_with_such_upgrades_stops(tmp_path: Path) -> None:
    with (
        launch(tmp_path, "--set", "limits.max_headers=1000") as server,
        connected(server, head(b"Cookie: " + b"a" * 9_000)),
        connected(server, head(*[b"X-%d: a" % number for number in range(200)])),
        connected(server, head(b"Content-Length: 5"), b"hello"),
        connected(server, b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n") as last,
    ):
        assert last.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert server.terminate() == 0


def test_a_connection_that_cannot_be_closed_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closes = HttpConnection.shutdown
    failing: list[HttpConnection] = []

    def shutdown(self: HttpConnection) -> None:
        if not failing:
            failing.append(self)
        if self is failing[0]:
            raise AssertionError("it cannot be closed")
        closes(self)

    request = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    with ExitStack() as stack:
        with running() as server:
            clients = [stack.enter_context(connected(server, request)) for _ in range(3)]
            for client in clients:
                assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            monkeypatch.setattr(HttpConnection, "shutdown", shutdown)
        for client in clients:
            rest_of(client)
    assert failing
    assert "cut off a connection that could not be closed" in caplog.text
