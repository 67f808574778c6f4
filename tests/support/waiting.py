"""Waiting for a condition that other threads or processes make true, bounded generously: machines are busy."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pulsar

import penstock

BOUND_S = 60.0
LOOK_S = 0.01  # between two looks: nothing tells the test


def until(holds: Callable[[], object], bound_s: float = BOUND_S, said: Callable[[], object] = str) -> None:
    """Return once `holds()` is true; fails with what `said()` returns when it is not in time."""
    end = time.monotonic() + bound_s
    while not holds():
        assert time.monotonic() < end, said()
        time.sleep(LOOK_S)


async def until_async(holds: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """The same, while the loop of the test runs what makes it true."""
    async with asyncio.timeout(bound_s):
        while not holds():
            await asyncio.sleep(LOOK_S / 10)


def received_by(consumers: Sequence[Any], count: int) -> Iterator[tuple[int, Any]]:
    """Each message with the number of its consumer, until `count` have come; then what should not come any more.

    The consumers are those of this client or of Pulsar's official one.
    """
    end, found = time.monotonic() + BOUND_S, 0
    last = False
    while not last:
        assert time.monotonic() < end, f"{found} of {count} messages came"
        last = found >= count
        for number, consumer in enumerate(consumers):
            try:
                while True:
                    message = consumer.receive(100)
                    found += 1
                    yield number, message
            except (penstock.Timeout, pulsar.Timeout):
                pass
