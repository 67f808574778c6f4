"""A load generator that costs little: raw keep-alive connections that send the same bytes again and again."""

import asyncio
import re
import time
from typing import cast

import msgspec

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Result(msgspec.Struct):
    """What one run did: requests a second, and how long each took (s, sorted)."""

    per_second: float
    latencies: list[float]
    failed: int

    def percentile(self, share: float) -> float:
        return self.latencies[min(len(self.latencies) - 1, int(share * len(self.latencies)))]


class _Connection(asyncio.Protocol):
    def __init__(self, request: bytes, until: float, done: asyncio.Future[None]) -> None:
        self.request = request
        self.until = until
        self.done = done
        self.latencies: list[float] = []
        self.failed = 0
        self._buffer = b""
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._next()

    def _next(self) -> None:
        self._sent = time.perf_counter()
        if self._sent >= self.until:
            self.transport.close()
            if not self.done.done():
                self.done.set_result(None)
            return
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        if head < 0:
            self._buffer = buffer
            return
        found = _LENGTH.search(buffer, 0, head)
        length = int(found.group(1)) if found else 0
        if len(buffer) < head + 4 + length:
            self._buffer = buffer
            return
        self._buffer = b""
        self.latencies.append(time.perf_counter() - self._sent)
        self.failed += not buffer.startswith(b"HTTP/1.1 2")
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.failed += 1
            self.done.set_result(None)


def post(path: str, body: bytes) -> bytes:
    """A request's bytes."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def run(port: int, request: bytes, connections: int, seconds: float) -> Result:
    """Send `request` over `connections` connections, one after the other on each, for `seconds`."""
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    made: list[_Connection] = []
    waits = []
    for _ in range(connections):
        done: asyncio.Future[None] = loop.create_future()
        connection = _Connection(request, started + seconds, done)
        await loop.create_connection(lambda c=connection: c, "127.0.0.1", port)
        made.append(connection)
        waits.append(done)
    await asyncio.gather(*waits)
    took = time.perf_counter() - started
    latencies = sorted(x for c in made for x in c.latencies)
    return Result(len(latencies) / took, latencies, sum(c.failed for c in made))
