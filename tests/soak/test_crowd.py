"""A crowd over HTTP, WebSocket and Pulsar's protocol at a time: each is served, again and again, and leaves nothing.

300 connections in `make test`, 2,000 in `make soak`, which tells what they cost.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest
from websockets.asyncio.client import ClientConnection, connect

from penstock.server.resources import allow_connections
from penstock.testing.server import launch
from penstock.wire.frames import FrameDecoder, encode
from penstock.wire.pulsar_pb2 import BaseCommand, CommandConnect, CommandPing

SOAK: Final = os.environ.get("PENSTOCK_SOAK") == "1"
EACH: Final = 667 if SOAK else 100
AT_ONCE: Final = 50
MB_EACH: Final = 0.25  # most of them are WebSockets, with a consumer and its tasks
BOUND_S: Final = 120

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="figures of another process need Linux"),
]

HELLO: Final = encode(
    BaseCommand(type=BaseCommand.CONNECT, connect=CommandConnect(client_version="crowd", protocol_version=21))
)
PING: Final = encode(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


def figures(pid: int) -> tuple[float, int]:
    """MB in memory, and open files."""
    process = Path(f"/proc/{pid}")
    line = next(x for x in (process / "status").read_text().splitlines() if x.startswith("VmRSS"))
    return int(line.split()[1]) / 1024, sum(1 for _ in (process / "fd").iterdir())


async def opened(url: str) -> Pair:
    host, _, port = url.partition("://")[2].rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def over_http(pair: Pair) -> None:
    reader, writer = pair
    writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await reader.readuntil(b'"ok"}')).startswith(b"HTTP/1.1 200")


async def over_pulsar(pair: Pair) -> None:
    reader, writer = pair
    writer.write(PING)
    size = int.from_bytes(await reader.readexactly(4), "big")
    (frame,) = FrameDecoder().feed(size.to_bytes(4, "big") + await reader.readexactly(size))
    assert frame.type == BaseCommand.PONG


async def over_websocket(socket: ClientConnection) -> None:
    await socket.send('{"type": "isEndOfTopic", "context": "c"}')
    assert '"c"' in str(await socket.recv())


async def in_turn(work: list[object]) -> list[object]:
    """Some at a time, in order."""
    done: list[object] = []
    for start in range(0, len(work), AT_ONCE):
        done += await asyncio.gather(*work[start : start + AT_ONCE])  # type: ignore[call-overload]
    return done


async def test_a_mixed_crowd(tmp_path: Path) -> None:
    allow_connections(4 * EACH + 200)
    with launch(tmp_path / "data", "--log", "json", "--set", "limits.head_ms=200000") as server:
        pid = server.process.pid
        before = figures(pid)
        path = f"{server.ws}/ws/v2/consumer/persistent/public/default/t/s{{}}?subscriptionType=Shared"

        async def hello() -> Pair:
            pair = await opened(server.pulsar)
            pair[1].write(HELLO)
            await pair[0].readexactly(int.from_bytes(await pair[0].readexactly(4), "big"))
            return pair

        async with asyncio.timeout(BOUND_S * 2):
            http = await in_turn([opened(server.url) for _ in range(EACH)])
            binary = await in_turn([hello() for _ in range(EACH)])
            sockets = await in_turn([_socket(path.format(n % 20)) for n in range(EACH)])
            for _ in range(3):
                await in_turn([over_http(pair) for pair in http])  # type: ignore[arg-type]
                await in_turn([over_pulsar(pair) for pair in binary])  # type: ignore[arg-type]
                await in_turn([over_websocket(socket) for socket in sockets])  # type: ignore[arg-type]
            during = figures(pid)
            for _, writer in [*http, *binary]:  # type: ignore[misc]
                writer.close()
            await in_turn([socket.close() for socket in sockets])  # type: ignore[attr-defined]
            await in_turn([writer.wait_closed() for _, writer in [*http, *binary]])  # type: ignore[misc]
            while figures(pid)[1] > before[1] + 10:
                await asyncio.sleep(0.05)  # the server closes them by itself: nothing tells
        after = figures(pid)
        print(
            f"\n{3 * EACH} connections: {before[0]:.0f} MB and {before[1]} files before, {during[0]:.0f} MB and "
            f"{during[1]} during, {after[0]:.0f} MB and {after[1]} after"
        )
        assert during[1] >= before[1] + 3 * EACH
        assert during[0] - before[0] < 3 * EACH * MB_EACH


async def _socket(url: str) -> ClientConnection:
    return await connect(url, proxy=None, compression=None, ping_interval=None, open_timeout=60)
