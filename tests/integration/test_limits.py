"""Every limit on connections, hit, and named in the answer; slow senders and readers by the hundred."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from penstock.protocols.limits import Limits
from penstock.server.resources import allow_connections
from penstock.testing.server import Address, running

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
MANY = 500 if SOAK else 100
CROWD = 2000 if SOAK else 300

CONSUMER = "/ws/v2/consumer/persistent/public/default/t/s"


def target(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


@contextmanager
def connected(server: Address, *sent: bytes) -> Iterator[socket.socket]:
    with socket.create_connection(target(server.url), timeout=60) as connection:
        for piece in sent:
            connection.sendall(piece)
        yield connection


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    content = bytearray()
    try:
        while piece := connection.recv(65536):
            content += piece
    except ConnectionResetError:
        pass
    return bytes(content)


def refused(content: bytes, status: int, named: str) -> None:
    head, _, body = content.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), content[:200]
    assert named in json.loads(body)["message"], body


def test_connections_in_all() -> None:
    with running(limits=Limits(max_connections=3)) as server, ExitStack() as stack:
        held = [stack.enter_context(closing(socket.create_connection(target(server.pulsar)))) for _ in "ab"]
        http = stack.enter_context(httpx.Client(base_url=server.url))
        assert http.get("/health/live").status_code == 200  # the third
        with connected(server) as one_more:
            refused(rest_of(one_more), 503, "limits.max_connections = 3")
        with closing(socket.create_connection(target(server.pulsar), timeout=60)) as one_more:
            assert rest_of(one_more) == b""
        assert http.get("/health/live").status_code == 200
        held[0].close()
        again(server)


def again(server: Address) -> None:
    """A new connection is let in, as soon as the server has seen that another is gone."""
    for _ in range(1000):
        if httpx.get(f"{server.url}/health/live").status_code == 200:
            return
    raise AssertionError("nobody is let in any more")


def test_connections_of_an_address() -> None:
    with running(limits=Limits(max_connections_per_address=2)) as server:
        with connected(server) as first, connected(server), connected(server) as third:
            refused(rest_of(third), 503, "limits.max_connections_per_address = 2")
            first.sendall(b"GET /health/live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert b"200 OK" in rest_of(first)
        again(server)


async def test_a_websocket_is_counted_until_it_is_closed() -> None:
    with running(limits=Limits(max_connections=1)) as server:
        async with connect(server.ws + CONSUMER):
            assert (await asyncio.to_thread(httpx.get, f"{server.url}/health/live")).status_code == 503
        await asyncio.to_thread(again, server)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:"], ids=["nothing", "half a head"])
def test_a_head_that_does_not_come(sent: bytes) -> None:
    with running(limits=Limits(head_ms=100)) as server, connected(server, sent) as slow:
        refused(rest_of(slow), 408, "limits.head_ms = 100 ms")


def test_the_second_head_of_a_connection() -> None:
    whole = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    with running(limits=Limits(head_ms=700)) as server, connected(server, whole, b"GET") as slow:
        first, _, second = rest_of(slow).partition(b'"ok"}')
        assert first.startswith(b"HTTP/1.1 200")
        refused(second, 408, "limits.head_ms")


@pytest.mark.parametrize("path", ["/topics/public/default/t", "/kafka/topics/t/0", "/admin/v2/tenants/t"])
def test_a_body_that_does_not_come(path: str) -> None:
    method = b"PUT" if path.startswith("/admin") else b"POST"
    head = b"%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n" % (method, path.encode())
    head += b"Content-Type: application/json\r\n\r\n"
    with running(limits=Limits(body_ms=100)) as server, connected(server, head, b'{"mess') as slow:
        refused(rest_of(slow), 408, "limits.body_ms = 100 ms")


async def test_slow_senders_by_the_hundred() -> None:
    """They are dropped, and others are served meanwhile."""
    limits = Limits(head_ms=1500, body_ms=1500, min_bytes_per_s=1_000_000)
    with running(limits=limits) as server:
        over = asyncio.Event()

        async def slow(head: bytes) -> bytes:
            reader, writer = await asyncio.open_connection(*target(server.url))
            answer = asyncio.get_running_loop().create_task(reader.read())
            try:
                writer.write(head)
                while not answer.done():
                    writer.write(b"a")  # a byte now and then does not help
                    await asyncio.wait([answer], timeout=0.05)
                return answer.result() if answer.exception() is None else b""
            except ConnectionError:
                return b""
            finally:
                answer.cancel()
                writer.close()

        async def others() -> int:
            served = 0
            async with httpx.AsyncClient(base_url=server.url) as http:
                while not over.is_set() or not served:
                    answer = await http.post("/topics/public/default/t", json={"messages": [{"value": "a"}]})
                    assert answer.status_code == 200
                    served += 1
            return served

        busy = asyncio.get_running_loop().create_task(others())
        body = b"POST /topics/public/default/t HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        answers = await asyncio.gather(
            *(slow(body if number % 2 else b"GET /health/live HTTP/1.1\r\nX: ") for number in range(MANY))
        )
        over.set()
        served = await busy
        stored = await asyncio.to_thread(
            httpx.get, f"{server.url}/topics/public/default/t/partitions/0/offsets"
        )
        assert stored.json()["latest"] == served  # none of the halves
        late = [answer for answer in answers if b" 408 " in answer]
        assert len(late) > MANY // 2, answers[:3]


async def test_slow_readers_by_the_hundred() -> None:
    limits = Limits(stall_ms=300, min_bytes_per_s=1, max_bytes_in_flight=1 << 30)
    with running(limits=limits) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            body = {"messages": [{"value": "x" * 1_000_000} for _ in range(5)]}
            for _ in range(3):
                assert (await http.post("/topics/public/default/big", json=body)).status_code == 200
            ask = b"GET /topics/public/default/big/partitions/0/messages?offset=0 HTTP/1.1\r\nHost: a\r\n\r\n"
            with ExitStack() as stack:
                slow = []
                for _ in range(MANY // 5):
                    connection = stack.enter_context(closing(socket.socket()))
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    connection.connect(target(server.url))
                    connection.sendall(ask)
                    slow.append(connection)
                for connection in slow:
                    await asyncio.to_thread(cut_off, connection)
            assert (await http.get("/health/live")).status_code == 200


def cut_off(connection: socket.socket) -> None:
    """Wait, without reading, until the other side has reset or closed the connection."""
    import select

    poll = select.poll()
    poll.register(connection, select.POLLRDHUP if sys.platform == "linux" else 0)
    assert poll.poll(90_000), "the connection is still there"


async def test_a_websocket_that_is_not_read() -> None:
    limits = Limits(stall_ms=300, min_bytes_per_s=1)
    with running(limits=limits, http={"websocket_ping_s": 0}) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            body = {"messages": [{"value": "x" * 100_000} for _ in range(50)]}
            assert (await http.put("/admin/v2/persistent/public/default/t")).status_code < 300
            upgrade = (
                b"GET /ws/v2/consumer/persistent/public/default/t/s?receiverQueueSize=1000 HTTP/1.1\r\nHost: a\r\n"
                b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            with closing(socket.socket()) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.connect(target(server.url))
                connection.sendall(upgrade)
                assert b"101" in await asyncio.to_thread(connection.recv, 12)
                for _ in range(2):
                    assert (await http.post("/topics/public/default/t", json=body)).status_code == 200
                await asyncio.to_thread(cut_off, connection)


async def test_an_idle_websocket() -> None:
    limits = Limits(websocket_idle_ms=300)
    with running(limits=limits, http={"websocket_ping_s": 0}) as server:
        async with connect(server.ws + CONSUMER, ping_interval=None) as silent:
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(silent.recv(), 60)
            assert (silent.close_code, silent.close_reason) == (1001, "idle for limits.websocket_idle_ms")


async def test_pings_are_life() -> None:
    limits = Limits(websocket_idle_ms=4000)
    with running(limits=limits, http={"websocket_ping_s": 0}) as server:
        async with (
            connect(server.ws + CONSUMER, ping_interval=None) as pinging,
            connect(server.ws + CONSUMER.replace("/s", "/s2"), ping_interval=None) as silent,
        ):
            closed = asyncio.get_running_loop().create_task(silent.wait_closed())
            while not closed.done():
                await (await pinging.ping())
                await asyncio.wait([closed], timeout=0.05)
            await (await pinging.ping())  # the silent one is gone, and this one is not
            assert pinging.close_code is None


def test_headers_by_number() -> None:
    with running(limits=Limits(max_headers=20)) as server:
        many = {f"x-{number}": "a" for number in range(30)}
        answer = httpx.get(f"{server.url}/health/live", headers=many)
        assert answer.status_code == 431
        assert "limits.max_headers = 20" in answer.json()["message"]
        assert httpx.get(f"{server.url}/health/live").status_code == 200


def test_a_head_without_end() -> None:
    with running() as server, connected(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000) as endless:
        refused(rest_of(endless), 431, "64 KiB")


def head_of(size: int, *lines: bytes, path: bytes = b"/health/live") -> bytes:
    """A head of exactly so many bytes, in a few long lines."""
    head = b"\r\n".join([b"GET %s HTTP/1.1" % path, b"Host: a", *lines, b""])
    names = [b"X-%d: " % number for number in range(4)]
    share, rest = divmod(size - len(head) - len(b"".join(names)) - 2 * len(names) - 2, len(names))
    for number, name in enumerate(names):
        head += name + b"a" * (share + (rest if not number else 0)) + b"\r\n"
    assert len(head) == size - 2
    return head + b"\r\n"


UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")  # fmt: skip


@pytest.mark.parametrize("cut", [1_000_000, 60_000, 16_384, 1_000])
@pytest.mark.parametrize("size", [65_537, 66_000, 100_000, 190_000])
def test_a_head_that_is_too_large_however_it_is_cut(size: int, cut: int) -> None:
    with running() as server:
        for lines in ((), UPGRADE):
            whole = head_of(size, *lines)
            with connected(server, *(whole[at : at + cut] for at in range(0, size, cut))) as large:
                refused(rest_of(large), 431, "64 KiB")
        assert httpx.get(f"{server.url}/health/live").status_code == 200


@pytest.mark.parametrize("cut", [1_000_000, 60_000, 1_000])
def test_a_head_that_just_fits_however_it_is_cut(cut: int) -> None:
    whole = head_of(65_536)
    with running() as server, connected(server) as fits:
        for _ in range(2):  # on one connection
            for at in range(0, len(whole), cut):
                fits.sendall(whole[at : at + cut])
            assert fits.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_the_second_head_of_one_packet_is_too_large() -> None:
    with running() as server:
        small = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
        for whole in (small + head_of(100_000), small + head_of(66_000) + small):
            with connected(server, whole) as large:
                assert b"HTTP/1.1 431 " in rest_of(large)


def test_bytes_in_flight() -> None:
    """What is one too many is refused at once, what was begun before is answered, and all is as before then."""
    limits = Limits(max_bytes_in_flight=150_000, max_bytes_in_flight_share=1)
    head = b"POST /topics/public/default/t HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    body = json.dumps({"messages": [{"value": "x" * 60_000}]}).encode()
    head += b"Content-Length: %d\r\n\r\n" % len(body)
    with running(limits=limits) as server:
        with connected(server, head, body[:-1]) as first, connected(server, head, body[:-1]) as second:
            with connected(server, head, body[:-1]) as third:
                refused(rest_of(third), 503, "limits.max_bytes_in_flight = 150000")
            for connection in (first, second):
                connection.sendall(body[-1:])
                assert connection.recv(12) == b"HTTP/1.1 200"
        answer = httpx.post(
            f"{server.url}/topics/public/default/t",
            content=body,
            headers={"content-type": "application/json"},
        )
        assert answer.status_code == 200
        found = httpx.get(f"{server.url}/topics/public/default/t/partitions/0/offsets").json()
        assert found["latest"] == 3


async def test_output_that_is_not_taken_counts() -> None:
    """A client that does not read fills the share of its address: what is read for the address waits for room and is
    refused then; other addresses are served at once."""
    limits = Limits(max_bytes_in_flight=16_000_000, stall_ms=60_000)
    elsewhere = httpx.AsyncHTTPTransport(local_address="127.0.0.2")
    path = "/topics/public/default/big/partitions/0/messages?offset=0"
    with running(limits=limits) as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as http,
            httpx.AsyncClient(base_url=server.url, timeout=60, transport=elsewhere) as others,
        ):
            body = {"messages": [{"value": "x" * 400_000}]}
            for _ in range(40):
                assert (await http.post("/topics/public/default/big", json=body)).status_code == 200
            with closing(socket.socket()) as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.connect(target(server.url))
                slow.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
                while await held_output(http) < 8_000_000:
                    pass
                refused, served = await asyncio.gather(http.get(path), others.get(path))
                assert refused.status_code == 429
                assert "limits.max_bytes_in_flight = 16000000" in refused.json()["message"]
                assert "limits.max_bytes_in_flight_share = 0.75" in refused.json()["message"]
                assert refused.headers["retry-after"] == "1"
                assert served.status_code == 200
                assert served.json()["messages"]
                assert (await http.get("/health/live")).status_code == 200
            while await held_output(http):
                pass
            assert (await http.get(path)).status_code == 200
            assert 'penstock_bytes_refused_total{reason="share"} 1.0' in (await http.get("/metrics")).text


async def held_output(http: httpx.AsyncClient) -> float:
    """Bytes that are read for clients, or written, and not taken."""
    lines = (await http.get("/metrics")).text.splitlines()
    return float(next(line for line in lines if line.startswith("penstock_output_bytes_waiting ")).split()[1])


def test_a_refused_body_is_not_read_for_ever() -> None:
    limits = Limits(max_request_bytes=100_000)
    head = b"POST /topics/public/default/t HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    with running(limits=limits) as server, connected(server, head) as endless:
        sent = 0
        try:
            while sent < 1 << 30:
                endless.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        assert sent < 1 << 30
    with running(limits=limits) as server, connected(server, head, chunk, chunk, b"0\r\n\r\n") as over:
        assert over.recv(12) == b"HTTP/1.1 413"  # and it is heard


async def test_a_crowd() -> None:
    """Many connections at a time are served, each."""
    allow_connections(2 * CROWD + 200)
    with running(limits=Limits(max_connections=CROWD + 10)) as server:
        ask = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"

        async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*target(server.url))
            writer.write(ask)
            assert (await reader.readuntil(b'"ok"}')).startswith(b"HTTP/1.1 200")
            return reader, writer

        crowd = []
        for _ in range(CROWD // 100):
            crowd += await asyncio.gather(*(one() for _ in range(100)))
        for reader, writer in crowd:
            writer.write(ask)
            assert (await reader.readuntil(b'"ok"}')).startswith(b"HTTP/1.1 200")
        for _, writer in crowd:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in crowd))
