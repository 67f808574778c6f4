"""A server in a process of its own, clients that want its memory, and one that only wants to be served."""

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx

from penstock.testing.server import Launched, launch
from penstock.wire.frames import encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect, CommandFlow, CommandSubscribe

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
MIB: Final = 1024 * 1024
BOUND: Final = 256 * MIB if SOAK else 64 * MIB  # limits.max_bytes_in_flight
ATTACKER: Final = "127.0.0.2"
QUIET_S: Final = 1.0  # an attack has done what it can when nothing moves for so long
PACE_S: Final = 0.1
SLOWEST_S: Final = (
    1.0 if SOAK else 10.0
)  # for 99 % of the canary's requests; machines that run tests are busy
BACK_S: Final = 90.0  # several deadlines of a connection that is not read

HELLO: Final = encode(
    BaseCommand(
        type=BaseCommand.CONNECT, connect=CommandConnect(client_version="attack", protocol_version=21)
    )
)


@contextlib.contextmanager
def attacked(folder: Path, *flags: str) -> Iterator[Launched]:
    """A server with little room."""
    settings = [f"limits.max_bytes_in_flight={BOUND}", "limits.max_read_bytes=16777216", *flags]
    with launch(folder, "--log", "json", *(part for one in settings for part in ("--set", one))) as server:
        yield server


class Memory:
    """Resident memory of a process, from now on."""

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        (self._folder / "clear_refs").write_text("5")  # the peak begins with what is there now
        self.start = self._read("VmRSS")

    def _read(self, name: str) -> int:
        lines = (self._folder / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024

    @property
    def peak(self) -> int:
        """The most since the start, beyond what there was then."""
        return self._read("VmHWM") - self.start

    @property
    def now(self) -> int:
        """What there is beyond the start."""
        return self._read("VmRSS") - self.start

    def comes_back(self, within: int) -> bool:
        """Whether it is soon no more than `within` beyond the start."""
        over = time.monotonic() + BACK_S
        while self.now > within:
            if time.monotonic() > over:
                return False
            threading.Event().wait(0.05)
        return True


class Canary:
    """Publishes once in 100 ms, from another address, until the block is left."""

    def __init__(self, server: Launched) -> None:
        self.seconds: list[float] = []
        self.statuses: set[int] = set()
        self.first = threading.Event()  # it was answered once
        self._url = server.url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Canary":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        body = {"messages": [{"value": "canary"}]}
        with httpx.Client(base_url=self._url, timeout=60) as http:
            while True:
                began = time.monotonic()
                self.statuses.add(http.post("/topics/public/default/canary", json=body).status_code)
                self.seconds.append(time.monotonic() - began)
                self.first.set()
                if self._over.wait(max(0.0, began + PACE_S - time.monotonic())):
                    return

    def was_served(self) -> None:
        """Every time, and nearly always soon."""
        assert self.statuses == {200}, self.statuses
        slow = sorted(self.seconds)[: max(1, len(self.seconds) * 99 // 100)][-1]
        assert slow < SLOWEST_S, f"{slow:.2f} s, of {len(self.seconds)} requests"


def connected(url: str, *, reads_little: bool = False, address: str = ATTACKER) -> socket.socket:
    """An attacker's connection."""
    host, _, port = url.partition("://")[2].rpartition(":")
    made = socket.socket()
    if reads_little:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.bind((address, 0))
    made.connect((host, int(port)))
    return made


def push(connections: list[socket.socket], data: bytes, quiet_s: float = QUIET_S) -> int:
    """Send `data` over all until nothing moves for `quiet_s`; how many were closed by the server."""
    left = dict.fromkeys(connections, memoryview(data))
    closed = 0
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_WRITE)
        while left:
            ready = selector.select(quiet_s)
            if not ready:
                break
            for key, _ in ready:
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                try:
                    left[connection] = left[connection][connection.send(left[connection][:MIB]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    closed += 1
                    left[connection] = left[connection][:0]
                if not left[connection]:
                    selector.unregister(connection)
                    del left[connection]
    return closed


def settled(server: Launched) -> dict[str, float]:
    """The server's figures, once what it holds does not change for a while."""
    before = -1.0
    over = time.monotonic() + BACK_S
    while True:
        found = figures(server)
        now = found["penstock_request_bytes_held"] + found["penstock_output_bytes_waiting"]
        if now == before or time.monotonic() > over:
            return found
        before = now
        threading.Event().wait(QUIET_S)


def emptied(server: Launched) -> bool:
    """Whether the server soon holds nothing any more."""
    over = time.monotonic() + BACK_S
    while True:
        found = figures(server)
        if not found["penstock_request_bytes_held"] and not found["penstock_output_bytes_waiting"]:
            return True
        if time.monotonic() > over:
            return False


def figures(server: Launched) -> dict[str, float]:
    """What the server tells of itself."""
    text = httpx.get(f"{server.url}/metrics", timeout=60).text
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("penstock_"))
    return {name: float(value) for name, value in pairs}


def upgrade(path: str) -> bytes:
    """The head that opens a WebSocket."""
    return (
        b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n" % path.encode()
    )


def head_of_frame(size: int, *, opcode: int = 1, fin: bool = True) -> bytes:
    """The head of a client's frame of `size` bytes, masked with nothing."""
    first = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        return first + bytes([0x80 | size]) + bytes(4)
    return first + b"\xff" + size.to_bytes(8, "big") + bytes(4)


def subscribed(topic: str, subscription: str) -> bytes:
    """What a client of Pulsar's protocol says to be sent a topic from its beginning."""
    subscribe = CommandSubscribe(
        topic=topic,
        subscription=subscription,
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
        request_id=1,
        durable=False,
        initialPosition=CommandSubscribe.Earliest,
    )
    flow = CommandFlow(consumer_id=1, messagePermits=1000)
    return (
        HELLO
        + encode(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe))
        + encode(BaseCommand(type=BaseCommand.FLOW, flow=flow))
    )


def fill(server: Launched, topic: str, count: int, size: int) -> None:
    """Publish messages to a topic."""
    with httpx.Client(base_url=server.url, timeout=60) as http:
        for _ in range(count):
            answer = http.post(f"/topics/public/default/{topic}", json={"messages": [{"value": "x" * size}]})
            assert answer.status_code == 200
