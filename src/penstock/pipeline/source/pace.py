"""How often a stream that has nothing to do asks for more."""

import time
from collections.abc import Callable
from typing import Final

# Between the calls of a query that has been idle for a while; an answer comes at once all the same.
IDLE_MS: Final = 2000


class Pace:
    """Spark asks again 10 ms after an answer, all the time; the server is made to answer late instead.

    The wait is `least_ms` after a batch, and doubles from answer to answer while there is nothing. It counts from
    the answer before, so that a trigger that comes seldom never waits.
    """

    def __init__(self, least_ms: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._least_ms = least_ms
        self._most_ms = max(least_ms, IDLE_MS)
        self._clock = clock
        self.busy()

    def busy(self) -> None:
        """There was something to do, here or in another source of the query."""
        self._interval_ms = self._least_ms
        self._last = self._clock()

    def idle(self) -> None:
        """There was nothing."""
        self._interval_ms = min(2 * self._interval_ms, self._most_ms)
        self._last = self._clock()

    @property
    def wait_ms(self) -> int:
        """How long the next answer may take."""
        passed = (self._clock() - self._last) * 1000
        return max(0, round(self._interval_ms - passed))
