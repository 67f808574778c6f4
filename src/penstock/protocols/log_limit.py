"""Log lines that a stranger can cause: the first of an interval are written, the others counted."""

from collections.abc import Callable
from time import monotonic
from typing import Final

INTERVAL_S: Final = 60.0


class LogLimit:
    """The lines of one kind: at most `most` in a minute."""

    def __init__(self, most: int, now: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._now = now
        self._began = float("-inf")
        self._written = 0
        self._kept_back = 0

    def admit(self) -> bool:
        """Count a line; whether it is to be written."""
        now = self._now()
        if now - self._began >= INTERVAL_S:
            self._began, self._written = now, 0
        if self._written < self._most:
            self._written += 1
            return True
        self._kept_back += 1
        return False

    def kept_back(self) -> int:
        """How many were not written, to be told once: 0 until the interval in which that was is over."""
        if not self._kept_back or self._now() - self._began < INTERVAL_S:
            return 0
        count, self._kept_back = self._kept_back, 0
        return count
