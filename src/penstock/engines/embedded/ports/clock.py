"""Time, as the broker asks for it."""

from collections.abc import Callable
from typing import Protocol


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
