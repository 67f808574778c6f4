"""Waiting by the clock that tests turn."""

import asyncio

from penstock.runtime.clock import Clock


async def pause(clock: Clock, ms: float) -> None:
    """Complete after `ms`."""
    over = asyncio.Event()
    timer = clock.call_later(ms, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
