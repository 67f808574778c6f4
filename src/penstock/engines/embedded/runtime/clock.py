"""The real clock over the running event loop."""

import asyncio
import time
from collections.abc import Callable

from penstock.engines.embedded.ports import Timer


class LoopClock:
    """`ports.Clock` by the operating system's clocks and asyncio's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, delay_ms) / 1000, callback)
