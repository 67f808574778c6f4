"""Ranges of 1 MiB of x-kafka against the same server stack with the bytes held in memory.

    python -m benchmarks.kafka_rest [SECONDS]

`hot` asks for the same range again and again, `warm` for the ranges of a log that fits into the endpoint's memory,
`cold` for those of a log that does not, each of which is read from the store, decoded and framed anew.
"""

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any, cast

import httpx
import uvloop

from . import servers

MIB = 1 << 20
CONNECTIONS = 4
ROUNDS = 5
LOGS = (
    ("hot", 4, 1),
    ("warm", 16, 16),
    ("cold", 96, 96),
)  # name, MiB of the log, how many ranges are asked for
SIZES = (100, 1000, 10_000)


# -- the floor, in a process of its own


async def floor(port: int) -> None:
    from penstock.protocols.limits import Limits
    from penstock.protocols.load import Load
    from penstock.server.config import HttpSettings
    from penstock.server.http import HttpServer
    from penstock.server.listeners import Listener, bind

    body = bytes(range(256)) * (MIB // 256)
    headers = [
        (b"accept-ranges", b"bytes"),
        (b"vary", b"Accept, Accept-Charset, Accept-Encoding"),
        (b"content-type", b"application/x-kafka"),
        (b"content-range", b"bytes 0-1048575/4194304"),
        (b"content-length", b"%d" % len(body)),
    ]

    class Ranges:
        """The application: `serve` where a server hands over requests, the call where it speaks ASGI."""

        async def serve(self, exchange: Any) -> None:
            await self(exchange.scope, exchange.receive, exchange.send)

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 206, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    server = HttpServer(Ranges(), HttpSettings(), Limits(), Load(1000, 1000, 1 << 30))
    await server.open([Listener(bind(f"127.0.0.1:{port}"))])
    print("ready", flush=True)
    await server.run_until(asyncio.Event(), lambda: None)


@contextmanager
def floor_server() -> Iterator[int]:
    port = servers.free_port()
    command = [sys.executable, "-m", "benchmarks.kafka_rest", "floor", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield port
        finally:
            process.terminate()


# -- the client: counts, and looks at nothing but the head


class _Reader(asyncio.Protocol):
    def __init__(self, requests: "cycle[bytes]", until: float) -> None:
        self._requests = requests
        self._until = until
        self._left = 0
        self._head = b""
        self.bytes = 0
        self.failed = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def _ask(self) -> None:
        if asyncio.get_running_loop().time() >= self._until:
            self._transport.close()
            self.done.set_result(None)
        else:
            self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            at = self._head.find(b"\r\n\r\n")
            if at < 0:
                return
            head, data, self._head = self._head[:at].lower(), self._head[at + 4 :], b""
            self.failed += b" 206 " not in head
            self._left = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
        self._left -= len(data)
        self.bytes += len(data)
        if not self._left:
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.failed += 1
            self.done.set_result(None)


async def measure(port: int, ranges: int, seconds: float) -> float:
    """MiB a second."""
    loop = asyncio.get_running_loop()
    requests = cycle(
        f"GET /kafka/topics/bench/0 HTTP/1.1\r\nHost: localhost\r\nRange: bytes={n * MIB}-{n * MIB + MIB - 1}\r\n\r\n".encode()
        for n in range(ranges)
    )
    until = loop.time() + seconds
    readers = []
    for _ in range(CONNECTIONS):
        _, reader = await loop.create_connection(lambda: _Reader(requests, until), "127.0.0.1", port)
        readers.append(reader)
    await asyncio.gather(*(reader.done for reader in readers))
    assert not any(reader.failed for reader in readers), "a request failed"
    return sum(reader.bytes for reader in readers) / MIB / seconds


def fill(port: int, payload_bytes: int, mib: int) -> None:
    """A log of that many MiB."""
    from penstock.protocols.kafka_rest.framing import render

    frames, _ = render([bytes(payload_bytes)] * min(9000, MIB // payload_bytes))
    log = f"http://127.0.0.1:{port}/kafka/topics/bench/0"
    with httpx.Client(timeout=60) as client:
        size = 0
        while size < mib * MIB:
            answer = client.post(log, content=frames, headers={"content-type": "application/x-kafka"})
            assert answer.status_code == 204, answer.text
            size += len(frames)


def main() -> None:
    if sys.argv[1:2] == ["floor"]:
        uvloop.run(floor(int(sys.argv[2])))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    print(f"{'log':>5} {'bytes':>6} {'floor MiB/s':>12} {'penstock':>9} {'ratio':>6} {'min':>6} {'max':>6}")
    for name, mib, ranges in LOGS:
        for size in SIZES:
            low, high = [], []
            with floor_server() as floor_port, servers.penstock() as (port, _):
                fill(port, size, mib)
                for each in (floor_port, port):
                    uvloop.run(measure(each, ranges, 1.0))
                for _ in range(ROUNDS):
                    low.append(uvloop.run(measure(floor_port, ranges, seconds)))
                    high.append(uvloop.run(measure(port, ranges, seconds)))
            ratios = [b / a for a, b in zip(low, high, strict=True)]
            print(
                f"{name:>5} {size:>6} {statistics.median(low):>12.0f} {statistics.median(high):>9.0f}"
                f" {statistics.median(ratios):>6.2f} {min(ratios):>6.2f} {max(ratios):>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
