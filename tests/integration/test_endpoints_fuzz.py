"""Frames that are not quite right, on the WebSocket and the binary endpoint: the server answers or closes, writes no
error of its own, keeps nothing, and others go on meanwhile."""

import asyncio
import gc
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.support.waiting import until_async

from penstock.broker.settings import BrokerSettings
from penstock.protocols.limits import Limits
from penstock.server.config import Config, DataSettings, HttpSettings, PulsarSettings
from penstock.server.run import serve
from penstock.testing.server import Address

from .fuzz_frames import PATHS, odd_conversation, odd_text, websocket_frame

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
TALKS = 2_000 if SOAK else 150
AT_ONCE = 10
TALK_S = 60
FIRST_S = 3  # for the first answer, where there may be none: a busy machine takes its time

pytestmark = pytest.mark.timeout(900 if SOAK else 300)


@asynccontextmanager
async def served() -> AsyncIterator[Address]:
    """A server on the loop of the test, so that all its tasks can be counted."""
    config = Config(
        http=HttpSettings(listen="127.0.0.1:0"),
        pulsar=PulsarSettings(listen="127.0.0.1:0"),
        data=DataSettings(store="memory"),
        broker=BrokerSettings(max_message_bytes=100_000),
        limits=Limits(max_frame_bytes=100_000),
    )
    stop, found = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.get_running_loop().create_task(
        serve(config, ready=lambda *urls: found.set_result(Address(*urls)), stop=stop)
    )
    try:
        yield await found
    finally:
        stop.set()
        await running


async def exchange(url: str, *sent: bytes, first_s: float = FIRST_S) -> bytes:
    """Say all of it, hear what comes, and hang up: after a moment of silence, or when the server did."""
    host, _, port = url.partition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    heard = b""
    try:
        async with asyncio.timeout(TALK_S):
            for piece in sent:
                writer.write(piece)
                await writer.drain()
            while True:
                async with asyncio.timeout(0.1 if heard else first_s):
                    piece = await reader.read(65_536)
                if not piece:
                    break
                heard += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except ConnectionError:
            pass
    return heard


async def hammer(server: Address, one: Callable[[random.Random], Awaitable[bytes]]) -> list[bytes]:
    """Many connections, some at a time, while somebody else is served; then nothing is left of them."""
    async with httpx.AsyncClient(base_url=server.url, timeout=TALK_S) as http:
        over, served_others = asyncio.Event(), 0

        async def others() -> None:
            nonlocal served_others
            while not over.is_set():
                body = {"messages": [{"value": f"{served_others}"}]}
                answer = await http.post("/topics/public/default/others", json=body)
                assert answer.status_code == 200
                served_others += 1
                await asyncio.sleep(0.01)  # its pace

        await one(random.Random(0))  # what is made once and stays
        await http.get("/metrics")
        await gone(http)
        before = tasks()
        busy = asyncio.get_running_loop().create_task(others())
        heard: list[bytes] = []
        for start in range(0, TALKS, AT_ONCE):
            heard += await asyncio.gather(
                *(one(random.Random(20260401 + number)) for number in range(start, start + AT_ONCE))
            )
        over.set()
        await busy
        assert served_others
        got = await http.get("/topics/public/default/others/partitions/0/offsets")
        assert got.json()["latest"] == served_others
        await gone(http)
        await until_async(lambda: tasks() <= before)
    return heard


def tasks() -> int:
    gc.collect()
    return len(asyncio.all_tasks())


async def gone(http: httpx.AsyncClient) -> None:
    """Wait until the server has no connection but this one, and holds nothing for any."""
    async with asyncio.timeout(TALK_S):
        while True:
            lines = (await http.get("/metrics")).text.splitlines()
            figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
            held = [
                float(value)
                for name, value in figures.items()
                if name.startswith(
                    ("penstock_connections{", "penstock_request_bytes_held", "penstock_output_bytes")
                )
            ]
            if sum(held) <= 1:
                return
            await asyncio.sleep(0.02)  # the server closes connections by itself: nothing tells


def no_errors(caplog: pytest.LogCaptureFixture) -> None:
    """The server never was surprised."""
    surprised = [
        (record.name, record.getMessage(), record.exc_info)
        for record in caplog.records
        if record.levelno >= logging.ERROR
    ]
    assert not surprised, surprised[:3]


@pytest.mark.parametrize("role", PATHS)
@pytest.mark.parametrize("heads", ["right heads", "odd heads"])
async def test_websocket_frames(role: str, heads: str, caplog: pytest.LogCaptureFixture) -> None:
    upgrade = (
        f"GET {PATHS[role]} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    async with served() as server:

        async def one(dice: random.Random) -> bytes:
            frames = [
                websocket_frame(dice, odd_text(dice, role), odd=heads == "odd heads")
                for _ in range(dice.randint(1, 8))
            ]
            return await exchange(server.url, upgrade, *frames, first_s=TALK_S)

        heard = await hammer(server, one)
    assert sum(answer.startswith(b"HTTP/1.1 101") for answer in heard) > TALKS * 0.9
    no_errors(caplog)


async def test_commands_of_pulsars_protocol(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:

        async def one(dice: random.Random) -> bytes:
            return await exchange(server.pulsar, odd_conversation(dice))

        heard = await hammer(server, one)
    assert sum(len(answer) > 50 for answer in heard) > TALKS // 2  # most of it was understood
    no_errors(caplog)


@pytest.mark.parametrize("endpoint", ["http", "pulsar"])
async def test_noise(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        url = server.url if endpoint == "http" else server.pulsar

        async def one(dice: random.Random) -> bytes:
            return await exchange(url, dice.randbytes(dice.randint(1, 2000)))

        await hammer(server, one)
    no_errors(caplog)
