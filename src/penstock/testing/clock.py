"""A clock that tests turn."""

import asyncio
import heapq
from collections.abc import Callable


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """`Clock` that stands still until `advance`."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start = now_ms
        self._passed = 0
        self._count = 0
        self._timers: list[tuple[float, int, _Timer]] = []

    def now_ms(self) -> int:
        return self._start + self._passed

    def monotonic_ms(self) -> int:
        return self._passed

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(callback)
        self._count += 1
        heapq.heappush(self._timers, (self._passed + max(0.0, delay_ms), self._count, timer))
        return timer

    def turn(self, ms: int) -> None:
        """Let `ms` pass, calling each timer at its time; what they start on the loop runs later."""
        end = self._passed + ms
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._passed = max(self._passed, int(due))
            if timer.callback is not None:
                timer.callback()
        self._passed = end

    async def advance(self, ms: int) -> None:
        """Let `ms` pass, then let the loop do what became due."""
        self.turn(ms)
        await settle()


async def settle(rounds: int = 20) -> None:
    """Let every callback that is ready, and what those make ready, run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
