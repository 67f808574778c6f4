"""The load generator where there is no Go: as benchmarks/load, it reads a `Run` and prints a `Result`.

It takes as much of a processor as the server under load.
"""

import asyncio
import resource
import sys
import time
from abc import ABC, abstractmethod
from functools import partial
from typing import cast

import msgspec
import uvloop

from .generator import STAMP, Peer, Result, Run, post
from .servers import process_cpu_s

DRAIN_S = 2.0  # for answers to what was sent before the end


class Meter:
    """Counts answers, and keeps how long each took while the measured time lasts."""

    def __init__(self, limit: int) -> None:
        self.count = self.failed = 0
        self.full = asyncio.Event()
        self.measuring = False
        self.delays: list[float] = []
        self._limit = limit

    def add(self, count: int) -> None:
        self.count += count
        if 0 < self._limit <= self.count:
            self.full.set()

    def took(self, *seconds: float) -> None:
        if self.measuring:
            self.delays += seconds

    async def measure(self, run: Run) -> Result:
        counted = 0
        if run.warm_s > 0:
            await self._wait(run.warm_s)
            counted = self.count
        self.measuring = True
        at, server, own = time.perf_counter(), process_cpu_s(run.pid), own_cpu_s()
        await self._wait(run.seconds)
        self.measuring = False
        self.delays.sort()
        return Result(
            self.count - counted,
            time.perf_counter() - at,
            0,
            process_cpu_s(run.pid) - server,
            own_cpu_s() - own,
            *(self._share(share) for share in (0.5, 0.99, 1)),
        )

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.full.wait()
        except TimeoutError:
            pass

    def _share(self, share: float) -> float:
        at = min(len(self.delays) - 1, int(share * len(self.delays)))
        return self.delays[at] * 1000 if self.delays else 0.0


def own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Connection(asyncio.Protocol, ABC):
    """One connection of a group."""

    def __init__(self, peer: Peer, meter: Meter) -> None:
        self.peer = peer
        self.meter = meter
        self.buffer = b""
        self.stopped = False
        self.ready = asyncio.Event()
        self.done = asyncio.Event()  # everything that was sent is answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.meter.failed += not self.done.is_set()
        self.ready.set()
        self.done.set()

    @abstractmethod
    def start(self) -> None:
        """Begin to send."""


class HttpConnection(Connection):
    """Sends requests one after the other, and acknowledges what a fetch brought."""

    number = 0
    fetched = 0  # messages, until they are acknowledged

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.ready.set()

    def start(self) -> None:
        self.sent = time.perf_counter()
        self.transport.write(self.peer.requests[self.number % len(self.peer.requests)].encode())
        self.number += 1

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
        if not found or len(body) < int(length or 0):
            return
        self.meter.failed += not self.buffer.startswith(b"HTTP/1.1 2")
        self.buffer = b""
        if self.peer.kind == "fetch" and not self.fetched:
            if self.peer.counts:
                self.fetched, commit = body.count(self.peer.counts.encode()), self.peer.text.encode()
            else:
                ids = [each[: each.index(b'"')] for each in body.split(b'"messageId":"')[1:]]
                self.fetched = len(ids)
                commit = b'{"messageIds":[' + b",".join(b'"' + each + b'"' for each in ids) + b"]}"
            if self.fetched and self.peer.path:
                self.transport.write(post(self.peer.path, commit))
                return
        if self.peer.measured:
            self.meter.add(1 if self.peer.kind == "http" else self.fetched)
            self.meter.took(time.perf_counter() - self.sent)
        self.fetched = 0
        if self.stopped:
            self.done.set()
        else:
            self.start()


class WebSocket(Connection):
    """Publishes, or answers deliveries."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        head = f"GET {self.peer.path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self.transport.write((head + key).encode())

    def start(self) -> None:
        self.sent = [time.perf_counter()] * self.peer.in_flight
        self.frame = masked(self.peer.text.encode())
        if self.peer.kind == "publish":
            self.transport.write(self.frame * self.peer.in_flight)
        elif self.peer.kind == "paced":
            self.begun = time.perf_counter()
            self.number = 0
            self._next()

    def _next(self) -> None:
        self.done.set()
        if not self.stopped and not self.transport.is_closing():
            at = f"{time.time_ns():0{len(STAMP)}}"
            self.transport.write(masked(self.peer.text.replace(STAMP, at).encode()))
            self.number += 1
            due = self.begun + self.number / self.peer.per_second - time.perf_counter()
            asyncio.get_running_loop().call_later(max(0.0, due), self._next)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        if not self.ready.is_set():
            head, _, data = data.partition(b"\r\n\r\n")
            assert b" 101 " in head.partition(b"\r\n")[0], head
            self.ready.set()
        frames, self.buffer = split(data)
        if frames and self.peer.kind == "consume":
            self._delivered(frames)
        elif frames:
            self._answered([each for each in frames if self.peer.counts.encode() in each])

    def _delivered(self, frames: list[bytes]) -> None:
        before, after = self.peer.before.encode(), self.peer.after.encode()
        ids = [each.split(b'"messageId":"', 1)[1].partition(b'"')[0] for each in frames]
        self.transport.write(b"".join(masked(before + each + after) for each in ids))
        if self.peer.measured:
            now = time.time_ns()
            sent = [each.partition(b'"at":"')[2][: len(STAMP)] for each in frames]
            self.meter.took(*((now - int(at)) / 1e9 for at in sent if at))
            self.meter.add(len(frames))

    def _answered(self, frames: list[bytes]) -> None:
        self.meter.failed += sum(self.peer.good.encode() not in each for each in frames)
        if self.peer.kind == "paced":
            return
        now = time.perf_counter()
        taken, self.sent = self.sent[: len(frames)], self.sent[len(frames) :]
        if self.peer.measured:
            self.meter.add(len(frames))
            self.meter.took(*(now - at for at in taken))
        if not self.stopped:
            self.sent += [now] * len(frames)
            self.transport.write(self.frame * len(frames))
        elif not self.sent:
            self.done.set()


def masked(payload: bytes) -> bytes:
    """A client's text frame, masked with zeros, which costs nothing here."""
    size = len(payload)
    head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return head + bytes(4) + payload


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The payloads of the text frames of a server, and what is left of the last."""
    at, frames = 0, []
    while len(data) - at >= 2:
        size, start = data[at + 1], at + 2
        if size >= 126:
            start = at + (4 if size == 126 else 10)
            size = int.from_bytes(data[at + 2 : start], "big")
        if start + size > len(data):
            break
        if data[at] == 0x81:
            frames.append(data[start : start + size])
        at = start + size
    return frames, data[at:]


async def generate(run: Run) -> Result:
    loop = asyncio.get_running_loop()
    meter = Meter(run.count)
    opened: list[Connection] = []
    for peer in sorted(run.peers, key=lambda peer: peer.kind != "consume"):
        kind: type[Connection] = HttpConnection if peer.kind in ("http", "fetch") else WebSocket
        for _ in range(peer.connections):
            _, connection = await loop.create_connection(partial(kind, peer, meter), "127.0.0.1", run.port)
            await connection.ready.wait()
            opened.append(connection)
    for connection in opened:
        connection.start()
    result = await meter.measure(run)
    for connection in opened:
        connection.stopped = True
        if connection.peer.kind in ("consume", "paced"):
            connection.done.set()
    try:
        async with asyncio.timeout(DRAIN_S):
            for connection in opened:
                await connection.done.wait()
    except TimeoutError:
        pass
    result.failed = meter.failed
    for connection in opened:
        connection.done.set()
        connection.transport.close()
    return result


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Run)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(generate(given))))
