"""Request-reply (PIP-371) over WebSocket on both sides, next to echoes of the same server.

    python -m benchmarks.requests [--seconds 3] [--folder DIR]

One at a time: a round trip (request out, reply back, the worker's round trip between them) next to two echo
round trips; on a persistent topic one durable commit is added to those. Many at once: requests a second next
to the frames a second that the echo answers, whose frames cost it one decode and one answer each.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import uvloop

from .websocket import (
    IN_FLIGHT,
    MESSAGE,
    PAYLOAD,
    Meter,
    Peer,
    Rate,
    Server,
    commit_s,
    connect,
    exchange,
    masked,
)

T = TypeVar("T")

REQUEST = masked(f'{{"payload":"{PAYLOAD}","context":"1","requestTimeoutMillis":60000}}'.encode())
ECHO = masked(MESSAGE)
BASE = "public/default/requests"


def answer(peer: Peer, frames: list[bytes]) -> None:
    """A worker: reply to each message with a payload of its size."""
    peer.transport.write(
        b"".join(
            masked(b'{"messageId":"' + f[14 : f.index(b'"', 14)] + f'","replyContent":"{PAYLOAD}"}}'.encode())
            for f in frames
        )
    )


async def echo_trips(server: Server, seconds: float) -> list[float]:
    """Seconds of each echo round trip, one at a time."""
    return await trips(server, seconds, f"/ws/v2/producer/persistent/{BASE}", ECHO, b'"messageId"')


async def trips(server: Server, seconds: float, path: str, frame: bytes, end: bytes) -> list[float]:
    """Seconds from writing a frame to the one that holds `end`, one at a time."""
    times: list[float] = []
    over = asyncio.Event()
    sent = 0.0

    def came(peer: Peer, frames: list[bytes]) -> None:
        nonlocal sent
        if not any(end in f for f in frames):
            return
        now = time.perf_counter()
        times.append(now - sent)
        if now > until:
            over.set()
            return
        sent = time.perf_counter()
        peer.transport.write(frame)

    peer = await connect(server.port, path, came)
    until = time.perf_counter() + seconds
    sent = time.perf_counter()
    peer.transport.write(frame)
    await over.wait()
    peer.transport.close()
    return times[len(times) // 10 :]


async def worker(server: Server, domain: str) -> Peer:
    path = f"/ws/v2/consumer/{domain}/{BASE}/s?subscriptionType=Shared"
    return await connect(server.port, path, answer)


async def request_trips(server: Server, seconds: float, domain: str) -> list[float]:
    """Seconds of each request, one at a time."""
    working = await worker(server, domain)
    times = await trips(server, seconds, f"/ws/v2/producer/{domain}/{BASE}", REQUEST, b'"type":"reply"')
    working.transport.close()
    return times


async def many(server: Server, seconds: float, domain: str, sockets: int) -> Rate:
    """Requests a second with IN_FLIGHT under way in all."""
    meter = Meter(server)
    workers = [await worker(server, domain) for _ in range(sockets)]

    def came(peer: Peer, frames: list[bytes]) -> None:
        ends = sum(b'"type":"reply"' in f for f in frames)
        assert b'"timeout"' not in frames[0], frames[0]
        meter.count += ends
        peer.transport.write(REQUEST * ends)

    path = f"/ws/v2/producer/{domain}/{BASE}"
    peers = [await connect(server.port, path, came) for _ in range(sockets)]
    for peer in peers:
        peer.transport.write(REQUEST * (IN_FLIGHT // sockets))
    rate = await meter.rate(0.7, seconds)
    for peer in peers + workers:
        peer.transport.close()
    return rate


def measure(seconds: float, folder: Path) -> None:
    def run(kind: str, what: Callable[[Server], Awaitable[T]]) -> T:
        with tempfile.TemporaryDirectory(dir=folder) as data, Server(kind, Path(data)) as server:

            async def main() -> T:
                return await what(server)

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main())

    echo = statistics.median(run("echo", lambda server: echo_trips(server, seconds)))
    commit = commit_s(folder)
    print(f"{'echo round trip':<44}{echo * 1e6:8.0f} µs")
    print(f"{'durable commit of one row':<44}{commit * 1e6:8.0f} µs")
    for domain, floor in (("non-persistent", 2 * echo), ("persistent", 2 * echo + commit)):
        trip = statistics.median(run("penstock", lambda server, d=domain: request_trips(server, seconds, d)))
        of = "two echoes" + (" and a commit" if domain == "persistent" else "")
        print(f"{f'request and reply, {domain}':<44}{trip * 1e6:8.0f} µs   {trip / floor:.2f} of {of}")
    for sockets in (1, 8):
        # The echo with the same number of sockets a side and as much under way.
        peers = run("echo", lambda server, n=sockets: exchange(server, "", seconds, n, IN_FLIGHT // n))
        print(f"{f'echo floor, {sockets} sockets, {IN_FLIGHT} in flight':<44}{peers}")
        for domain in ("non-persistent", "persistent"):
            rate = run("penstock", lambda server, d=domain, n=sockets: many(server, seconds, d, n))
            name = f"requests, {domain}, {sockets} a side"
            print(f"{name:<44}{rate}   {rate.value / peers.value:.2f} of the floor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--folder", type=Path, help="where the data goes (default: a temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        measure(given.seconds, Path(folder))


if __name__ == "__main__":
    main()
