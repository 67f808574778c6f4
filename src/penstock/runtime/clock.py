"""Time: the clock that the broker asks, and many deadlines behind one timer of it."""

import asyncio
import heapq
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

SWEEP_MIN: Final = 4096  # deadlines at which a sweep of unwanted ones pays


class Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Make the call not come; harmless after it came."""
        ...


class Clock(Protocol):
    """Time; tests turn it."""

    def now_ms(self) -> int:
        """Wall clock, ms since the epoch."""
        ...

    def monotonic_ms(self) -> int:
        """A clock that never goes back, ms."""
        ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` on the loop after `delay_ms`."""
        ...


class LoopClock:
    """`Clock` by the operating system's clocks and asyncio's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, delay_ms) / 1000, callback)


class Timers:
    """A heap of `(due, callback, argument)`. Deadlines no longer `wanted` stay in it until they are most of it:
    long deadlines that are nearly always settled early would fill the memory."""

    def __init__(self, clock: Clock, wanted: Callable[[Any], bool] = lambda argument: True) -> None:
        self._clock = clock
        self._wanted = wanted
        self._sweep_at = SWEEP_MIN
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._count = 0
        self._timer: Timer | None = None
        self._armed_for = 0

    def at(self, due_ms: int, callback: Callable[[Any], None], argument: Any) -> None:
        """Call `callback(argument)` when the monotonic clock reaches `due_ms`."""
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, callback, argument))
        if self._timer is None or due_ms < self._armed_for:
            self._arm()

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if self._wanted(entry[3])]
        heapq.heapify(self._heap)
        self._sweep_at = max(SWEEP_MIN, 2 * len(self._heap))  # so that it costs O(1) a deadline

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._armed_for = self._heap[0][0]
            self._timer = self._clock.call_later(self._armed_for - self._clock.monotonic_ms(), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.monotonic_ms()
        try:
            while self._heap and self._heap[0][0] <= now:
                _, _, callback, argument = heapq.heappop(self._heap)
                callback(argument)
        finally:  # a call that fails is not the others' end
            self._arm()

    def close(self) -> None:
        """Forget every deadline."""
        self._heap.clear()
        self._arm()

    def __len__(self) -> int:
        return len(self._heap)
