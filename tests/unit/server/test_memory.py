"""When memory is given back to the system."""

import asyncio
import threading

from penstock.protocols.load import Load
from penstock.server.memory import LOOKS, Trimming


async def test_many_handshakes_are_a_rush() -> None:
    """What TLS handshakes have is not counted as held, and goes with them all the same."""
    load = Load(1000, 1000, 256 * 1024 * 1024)
    trimmed = threading.Semaphore(0)
    trimming = Trimming(load, trimmed.release)
    load.handshakes = 700
    trimming.look()
    load.handshakes = 0
    trimming.look()
    assert await asyncio.to_thread(trimmed.acquire, timeout=20)
    for _ in range(LOOKS):
        trimming.look()


async def test_a_few_handshakes_are_none() -> None:
    load = Load(1000, 1000, 256 * 1024 * 1024)
    trimmed: list[None] = []
    trimming = Trimming(load, lambda: trimmed.append(None))
    for handshakes in (20, 0, 20, 0):
        load.handshakes = handshakes
        trimming.look()
    await asyncio.get_running_loop().run_in_executor(trimming._executor, lambda: None)
    assert trimmed == []
