"""The WebSocket endpoint next to its echo floor: publish, delivery, and the way from one to the other.

    python benchmarks/websocket.py [--seconds 3] [--folder DIR]

The floor is the same server (uvicorn, uvloop, the same decoder of frames, the same answer), which stores
nothing. The client is another process that writes ready-made frames and only counts what comes back, so that
the server is what is measured. Publishing is durable (SQLite, synchronous=FULL).
"""

import argparse
import asyncio
import base64
import gc
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvloop

SOCKETS = 8
IN_FLIGHT = 64
PAYLOAD = base64.b64encode(bytes(range(100))).decode()
MESSAGE = f'{{"payload":"{PAYLOAD}","context":"1"}}'.encode()


T = TypeVar("T")

# -- the server, in a process of its own


class Echo:
    """Decodes a produced frame and answers as the endpoint does, without publishing."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from penstock.model.message_id import MessageId
        from penstock.protocols.websocket.frames import ProducerAck, read_message, write

        await receive()
        await send({"type": "websocket.accept"})
        message_id = str(MessageId(0, 3))
        while (event := await receive())["type"] == "websocket.receive":
            context = read_message(event["text"]).context
            await send(
                {
                    "type": "websocket.send",
                    "text": write(ProducerAck("ok", message_id=message_id, context=context)),
                }
            )


async def serve(kind: str, folder: Path) -> None:
    import uvicorn
    from starlette.routing import Router, WebSocketRoute

    from penstock.engines.embedded.broker import Broker
    from penstock.engines.embedded.memory import MemoryStore
    from penstock.engines.embedded.sqlite import SqliteStore
    from penstock.protocols.context import ServerContext
    from penstock.protocols.websocket.endpoint import routes
    from penstock.runtime.clock import LoopClock
    from penstock.wire.entry import WireFormat

    asgi = Router([WebSocketRoute("/ws/{path:path}", Echo())])
    if kind == "penstock":
        broker = Broker(SqliteStore(folder), MemoryStore(1 << 40), WireFormat(), LoopClock())
        await broker.start()
        asgi = Router(routes(ServerContext(broker)))
    server = uvicorn.Server(
        uvicorn.Config(
            asgi,
            port=0,
            loop="none",
            http="httptools",
            ws="websockets-sansio",
            lifespan="off",
            log_level="warning",
            ws_per_message_deflate=False,
        )
    )
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup()
    # As `penstock serve` does.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 50, 100)
    sys.setswitchinterval(0.0005)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()  # until the client ends this process


class Server:
    """A server process for the length of a measurement."""

    def __init__(self, kind: str, folder: Path) -> None:
        command = [sys.executable, __file__, "--serve", kind, "--folder", str(folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = 0

    def __enter__(self) -> "Server":
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def cpu_s(self) -> float:
        """What the process has used of its processors (Linux; else 0)."""
        stat = Path(f"/proc/{self._process.pid}/stat")
        if not stat.exists():
            return 0.0
        fields = stat.read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Rate(NamedTuple):
    """Messages a second, and what each cost the server's processors."""

    value: float
    cpu_us: float

    def __str__(self) -> str:
        return f"{self.value:9,.0f} messages/s {self.cpu_us:5.1f} µs of CPU each"


class Meter:
    """Counts messages between two moments."""

    def __init__(self, server: Server) -> None:
        self.count = 0
        self._server = server

    async def rate(self, warm_s: float, seconds: float) -> Rate:
        await asyncio.sleep(warm_s)
        start, cpu, count = time.perf_counter(), self._server.cpu_s(), self.count
        await asyncio.sleep(seconds)
        passed, used, seen = (
            time.perf_counter() - start,
            self._server.cpu_s() - cpu,
            self.count - count,
        )
        return Rate(seen / passed, used / max(1, seen) * 1e6)


# -- the client


def masked(payload: bytes) -> bytes:
    """A client's text frame, masked with zeros, which costs nothing."""
    size = len(payload)
    head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + bytes(4) + payload


class Peer(asyncio.Protocol):
    """One client socket. `on_frames` is given the payloads of what came, many at once."""

    def __init__(self, on_frames: Callable[["Peer", list[bytes]], None]) -> None:
        self._on_frames = on_frames
        self._buffer = b""
        self.open = asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        at, end = 0, len(data)
        if not self.open.is_set():
            head, found, data = data.partition(b"\r\n\r\n")
            assert found
            assert b" 101 " in head.split(b"\r\n")[0], head
            self.open.set()
            end = len(data)
        frames: list[bytes] = []
        while end - at >= 2:
            size, start = data[at + 1], at + 2
            if size == 126:
                size, start = int.from_bytes(data[at + 2 : at + 4], "big"), at + 4
            elif size == 127:
                size, start = int.from_bytes(data[at + 2 : at + 10], "big"), at + 10
            if start + size > end:
                break
            if data[at] == 0x81:
                frames.append(data[start : start + size])
            at = start + size
        self._buffer = data[at:]
        if frames:
            self._on_frames(self, frames)


async def connect(port: int, path: str, on_frames: Callable[[Peer, list[bytes]], None]) -> Peer:
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: Peer(on_frames), "127.0.0.1", port)
    peer.transport.write(
        f"GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await peer.open.wait()
    return peer


async def exchange(
    server: Server, query: str, seconds: float, sockets: int, in_flight: int = IN_FLIGHT
) -> Rate:
    """Messages sent and answered over `sockets` with `in_flight` under way on each."""
    frame = masked(MESSAGE)
    meter = Meter(server)

    def answered(peer: Peer, frames: list[bytes]) -> None:
        assert b'"ok"' in frames[0], frames[0]
        meter.count += len(frames)
        peer.transport.write(frame * len(frames))

    path = f"/ws/v2/producer/persistent/public/default/bench{query}"
    peers = [await connect(server.port, path, answered) for _ in range(sockets)]
    for peer in peers:
        peer.transport.write(frame * in_flight)
    rate = await meter.rate(0.7, seconds)
    for peer in peers:
        peer.transport.close()
    return rate


async def deliver(server: Server, seconds: float, query: str) -> Rate:
    """Messages to one Shared consumer that acknowledges each; the topic is full beforehand."""
    await exchange(server, query, seconds * 3, SOCKETS)
    meter = Meter(server)

    def delivered(peer: Peer, frames: list[bytes]) -> None:
        meter.count += len(frames)
        acks = [b'{"messageId":"' + f[14 : f.index(b'"', 14)] + b'"}' for f in frames]
        peer.transport.write(b"".join(map(masked, acks)))

    path = "/ws/v2/consumer/persistent/public/default/bench/s"
    peer = await connect(
        server.port, f"{path}?subscriptionType=Shared&subscriptionInitialPosition=Earliest", delivered
    )
    rate = await meter.rate(0.3, seconds)
    at_end = meter.count
    await asyncio.sleep(0.2)
    assert meter.count > at_end, "the topic was read to its end: the figure is too low"
    peer.transport.close()
    return rate


async def latency(server: Server, seconds: float, rate: int = 1000) -> list[float]:
    """Seconds from sending a frame to its delivery, at `rate` messages a second."""
    delays: list[float] = []

    def delivered(peer: Peer, frames: list[bytes]) -> None:
        now = time.perf_counter()
        for frame in frames:
            sent = float(frame.split(b'"at":"', 1)[1].split(b'"', 1)[0])
            delays.append(now - sent)
            peer.transport.write(masked(b'{"messageId":"' + frame[14 : frame.index(b'"', 14)] + b'"}'))

    base = "persistent/public/default/latency"
    consumer = await connect(server.port, f"/ws/v2/consumer/{base}/s?subscriptionType=Shared", delivered)
    producer = await connect(server.port, f"/ws/v2/producer/{base}", lambda *_: None)
    start = time.perf_counter()
    for number in range(int(seconds * rate)):
        pause = start + number / rate - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        text = f'{{"payload":"{PAYLOAD}","properties":{{"at":"{time.perf_counter()}"}}}}'
        producer.transport.write(masked(text.encode()))
    await asyncio.sleep(0.3)
    consumer.transport.close()
    producer.transport.close()
    return sorted(delays[len(delays) // 10 :])


def commit_s(folder: Path) -> float:
    """The time of one durable commit of one row, by a bare loop."""
    database = sqlite3.connect(folder / "commit.db", isolation_level=None)
    database.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (b BLOB);")
    times: list[float] = []
    for _ in range(300):
        start = time.perf_counter()
        database.execute("INSERT INTO t VALUES (?)", (os.urandom(150),))
        times.append(time.perf_counter() - start)
    database.close()
    return statistics.median(times)


def measure(seconds: float, folder: Path) -> None:
    def run(kind: str, what: Callable[[Server], Awaitable[T]]) -> T:
        with tempfile.TemporaryDirectory(dir=folder) as data, Server(kind, Path(data)) as server:

            async def main() -> T:
                return await what(server)

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main())

    kinds = {"an entry each": "", "batchingEnabled": "?batchingEnabled=true"}
    floor = run("echo", lambda server: exchange(server, "", seconds, SOCKETS))
    single = run("echo", lambda server: exchange(server, "", seconds, 1))
    print(f"{f'echo floor, {SOCKETS} sockets, {IN_FLIGHT} in flight':<38}{floor}")
    print(f"{f'echo floor, 1 socket, {IN_FLIGHT} in flight':<38}{single}")
    for name, query in kinds.items():
        rate = run("penstock", lambda server, q=query: exchange(server, q, seconds, SOCKETS))
        print(f"{f'durable publish, {name}':<38}{rate}   {rate.value / floor.value:.2f} of the floor")
    for name, query in kinds.items():
        rate = run("penstock", lambda server, q=query: deliver(server, seconds, q))
        ratios = (
            f"{rate.value / floor.value:.2f} of the floor, {rate.value / single.value:.2f} of one socket's"
        )
        print(f"{f'delivery with acks, {name}':<38}{rate}   {ratios}")
    commit = commit_s(folder)
    delays = run("penstock", lambda server: latency(server, seconds))
    p50, p99 = delays[len(delays) // 2], delays[int(len(delays) * 0.99)]
    print(
        f"publish to delivery at 1,000/s: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms, which is "
        f"{p99 / commit:.1f} durable commits of {commit * 1e3:.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--folder", type=Path, help="where the data goes (default: a temporary folder)")
    parser.add_argument("--serve", choices=("echo", "penstock"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(given.serve, given.folder))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measure(given.seconds, Path(folder))


if __name__ == "__main__":
    main()
