"""Clocks for tests: one that is stopped, and one that runs and can be advanced."""

import asyncio
import heapq
import time
from collections.abc import Callable

from penstock.runtime.clock import LoopClock, Timer


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """`Clock` that moves only by `advance`."""

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


class AdvancingClock(LoopClock):
    """`Clock` that runs, and can be advanced: timers due by then fire at once. For one loop."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._pending: set[_Due] = set()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self._ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = _Due(self._exact_ms() + max(0.0, delay_ms), callback, self._pending)
        timer.arm(max(0.0, delay_ms))
        return timer

    async def advance(self, ms: int) -> None:
        """Let `ms` pass at once, then let the loop do what became due, in the order of its times."""
        self._ahead_ms += ms
        now = self._exact_ms()
        for timer in sorted(self._pending, key=lambda one: one.due_ms):
            timer.arm(max(0.0, timer.due_ms - now))
        await settle()

    def _exact_ms(self) -> float:
        return time.monotonic_ns() / 1_000_000 + self._ahead_ms


class _Due:
    """A call that is to come at a time of an `AdvancingClock`."""

    __slots__ = ("_callback", "_handle", "_pending", "due_ms")

    def __init__(self, due_ms: float, callback: Callable[[], None], pending: "set[_Due]") -> None:
        self.due_ms = due_ms
        self._callback = callback
        self._pending = pending
        self._handle: asyncio.TimerHandle | None = None
        pending.add(self)

    def arm(self, delay_ms: float) -> None:
        """Have it come after `delay_ms` of the loop's time."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._pending.discard(self)
        self._callback()

    def cancel(self) -> None:
        self._pending.discard(self)
        if self._handle is not None:
            self._handle.cancel()


async def settle(rounds: int = 20) -> None:
    """Let every callback that is ready, and what those make ready, run."""
    for _ in range(rounds):
        await asyncio.sleep(0)
