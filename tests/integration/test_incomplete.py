"""What never completes: frames, messages and handshakes end in time, and leave nothing."""

import gc
import socket
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from tests.integration.test_limits import again, rest_of, target
from tests.support.attacks import HELLO, connected, head_of_frame, upgrade
from tests.support.tls import Pki
from tests.support.waiting import until

from penstock.protocols.binary.connection import Connection
from penstock.protocols.limits import Limits
from penstock.server.connections import HttpConnection
from penstock.server.sockets import WebSocketConnection
from penstock.testing.server import Address, running

CLOSED_S = 60
PRODUCER = "/ws/v2/producer/persistent/public/default/t"


@contextmanager
def to(url: str) -> Iterator[socket.socket]:
    with closing(connected(url, address="127.0.0.1")) as made:
        made.settimeout(CLOSED_S)
        yield made


def held(server: Address) -> float:
    with httpx.Client(base_url=server.url) as http:
        return _held(http)


def _held(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(x for x in lines if x.startswith("penstock_request_bytes_held ")).split()[1])


def until_held(server: Address, least: float, most: float) -> None:
    with httpx.Client(base_url=server.url) as http:
        until(lambda: least <= _held(http) <= most, said=lambda: f"{_held(http)} bytes are held")


def test_a_large_frame_before_connect() -> None:
    with running() as server, to(server.pulsar) as client:
        client.sendall((16 * 1024 + 1).to_bytes(4, "big"))
        assert rest_of(client) == b""


@pytest.mark.parametrize("sent", [b"", HELLO[:-1]], ids=["nothing", "half of CONNECT"])
def test_a_connect_that_does_not_come(sent: bytes) -> None:
    with running(limits=Limits(binary_connect_ms=100)) as server, to(server.pulsar) as client:
        client.sendall(sent)
        assert rest_of(client) == b""


def test_a_connect_that_came() -> None:
    sent = HELLO + (100_000).to_bytes(4, "big") + bytes(50_000)
    with running() as server, to(server.pulsar) as client:
        client.sendall(sent)
        assert client.recv(4)
        until_held(server, 50_000, 60_000)
    with running(limits=Limits(body_ms=300)) as server, to(server.pulsar) as client:
        client.sendall(sent)
        assert rest_of(client)  # a frame that does not come has an end, too
        until_held(server, 0, 0)


@pytest.mark.parametrize(
    "sent",
    [
        head_of_frame(100_000) + bytes(50_000),
        head_of_frame(50_000, fin=False) + b"a" * 50_000,
        head_of_frame(30_000, fin=False) + b"a" * 30_000 + head_of_frame(30_000, opcode=0) + b"a" * 20_000,
    ],
    ids=["a frame", "a fragment", "a fragment and a half"],
)
def test_a_message_that_does_not_come(sent: bytes) -> None:
    with running() as server, to(server.url) as client:
        client.sendall(upgrade(PRODUCER))
        assert b" 101 " in client.recv(1000)
        client.sendall(sent)
        until_held(server, 50_000, 60_000)
    with running(limits=Limits(body_ms=300)) as server, to(server.url) as client:
        client.sendall(upgrade(PRODUCER))
        assert b" 101 " in client.recv(1000)
        client.sendall(sent)
        assert b"limits.body_ms = 300 ms" in rest_of(client)
        until_held(server, 0, 0)


def test_messages_in_parts_are_whole() -> None:
    text = b'{"payload": "' + b"YWFh" * 20_000 + b'", "context": "c"}'
    parts = [text[at : at + 7000] for at in range(0, len(text), 7000)]
    with running() as server, to(server.url) as client:
        client.sendall(upgrade(PRODUCER))
        assert b" 101 " in client.recv(1000)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            client.sendall(head_of_frame(len(part), opcode=0 if number else 1, fin=last) + part)
        assert b'"result":"ok"' in client.recv(1000)
        found = httpx.get(f"{server.url}/topics/public/default/t/partitions/0/messages?encoding=text").json()
        assert found["messages"][0]["value"] == "aaa" * 20_000


def test_tiny_fragments_without_end() -> None:
    with running() as server, to(server.url) as client:
        client.sendall(upgrade(PRODUCER))
        assert b" 101 " in client.recv(1000)
        client.sendall(head_of_frame(1, fin=False) + b"a")
        client.sendall((head_of_frame(1, opcode=0, fin=False) + b"a") * 2000)
        assert b"fragments of less than 64 bytes" in rest_of(client)


@pytest.mark.parametrize("url", ["https", "pulsar_tls"])
def test_a_handshake_counts_and_ends(url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pki = Pki(tmp_path_factory.mktemp("pki"))
    limits = Limits(max_connections_per_address=2)
    with running(tls=pki.settings(handshake_ms=1000), limits=limits) as server:
        silent = target(getattr(server, url))
        with (
            closing(socket.create_connection(silent, timeout=CLOSED_S)) as one,
            closing(socket.create_connection(silent, timeout=CLOSED_S)) as two,
            closing(socket.create_connection(silent, timeout=CLOSED_S)) as three,
        ):
            assert rest_of(three) == b""  # one too many, closed at once
            assert rest_of(one) == b""  # its time is over
            assert rest_of(two) == b""
        again(server)


def test_a_connection_that_is_lost_leaves_nothing() -> None:
    """Also without the collector: no circle keeps it."""
    gc.collect()
    gc.disable()
    try:
        with running() as server:
            with to(server.pulsar) as binary, to(server.url) as plain, to(server.url) as web:
                binary.sendall(HELLO + (1_000_000).to_bytes(4, "big") + bytes(500_000))
                plain.sendall(
                    b"POST /topics/public/default/t HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n"
                )
                plain.sendall(bytes(300_000))
                web.sendall(upgrade(PRODUCER))
                assert b" 101 " in web.recv(1000)
                web.sendall(head_of_frame(1_000_000) + bytes(200_000))
                until_held(server, 1_000_000, 1_100_000)
                # Those of earlier tests may still be there, and servers of theirs may still run.
                lost = {client.getsockname() for client in (binary, plain, web)}
                kinds = (Connection, HttpConnection, WebSocketConnection)
                found = [weakref.ref(o) for o in gc.get_objects() if type(o) in kinds and _peer(o) in lost]
                assert sorted(type(one()).__name__ for one in found) == sorted(one.__name__ for one in kinds)
            until_held(server, 0, 0)
            with httpx.Client(base_url=server.url) as http:
                for _ in range(300):
                    assert http.get("/health/live").status_code == 200
                    if not any(_is_left(one) for one in found):
                        return
            left = [o for o in (one() for one in found) if o is not None and not _open(o)]
            raise AssertionError([(type(one), [type(r) for r in gc.get_referrers(one)]) for one in left])
    finally:
        gc.enable()


def _is_left(reference: weakref.ref[Any]) -> bool:
    """Whether a closed connection is still there; nothing is kept of it by asking."""
    connection = reference()
    return connection is not None and not _open(connection)


def _transport(connection: object) -> Any:
    return getattr(connection, "transport", None) or getattr(connection, "_transport", None)


def _peer(connection: object) -> object:
    """The address of an open connection's client."""
    return _transport(connection).get_extra_info("peername") if _open(connection) else None


def _open(connection: object) -> bool:
    transport = _transport(connection)
    return transport is not None and not transport.is_closing()


def _never_made() -> int:
    """How many connections there are that never began; nothing is kept of them by asking."""
    return sum(type(o) in (Connection, HttpConnection) and not o.begun for o in gc.get_objects())


@pytest.mark.parametrize("url", ["https", "pulsar_tls"])
def test_a_handshake_that_does_not_end_leaves_nothing(
    url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also without the collector: no circle keeps it."""
    pki = Pki(tmp_path_factory.mktemp("pki"))
    gc.collect()
    gc.disable()
    try:
        with (
            running(tls=pki.settings(handshake_ms=1000)) as server,
            httpx.Client(base_url=server.url) as http,
        ):
            with closing(socket.create_connection(target(getattr(server, url)), timeout=CLOSED_S)) as silent:
                silent.sendall(b"\x16\x03\x01\x3f\x00\x01\x00\x3e\xfc\x03\x03" + bytes(12_000))
                assert rest_of(silent) == b""
            for _ in range(300):
                assert http.get("/health/live").status_code == 200
                if not _never_made():
                    return
            raise AssertionError("a connection that was never made is still there")
    finally:
        gc.enable()
