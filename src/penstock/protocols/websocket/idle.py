"""Noticing that nothing happens any more, without touching a clock for each frame."""

from collections.abc import Callable

from penstock.runtime.clock import Clock, Timer

_LOOKS = 4  # in one idle time: what is idle is noticed within a quarter more than it


class IdleWatch:
    """Calls `expired` when the number that `activity` tells stayed the same for `idle_ms` (0: never)."""

    def __init__(
        self, clock: Clock, idle_ms: int, activity: Callable[[], int], expired: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._activity = activity
        self._expired = expired
        self._seen = -1
        self._since = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self._idle_ms > 0:
            self._look()

    def _look(self) -> None:
        now = self._clock.monotonic_ms()
        seen = self._activity()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since >= self._idle_ms:
            self._timer = None
            self._expired()
            return
        self._timer = self._clock.call_later(max(1, self._idle_ms // _LOOKS), self._look)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
