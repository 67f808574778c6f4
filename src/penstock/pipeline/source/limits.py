"""How a batch's limit is dealt out to the logs, and how often a stream that has nothing to do asks for more."""

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

K = TypeVar("K")

# Between the calls of a query that has been idle for a while; an answer comes at once all the same.
IDLE_MS: Final = 2000


def share(backlog: Mapping[K, int], most: int | None, turn: int = 0) -> dict[K, int]:
    """At most `most` of the items of `backlog`, in proportion to what there is in each.

    Every log with messages gets some; if there are more such logs than `most`, they take turns:
    `turn` is how much was dealt out before. Order of the logs counts: it must be the same at every turn.
    """
    waiting = [key for key, count in backlog.items() if count > 0]
    total = sum(backlog[key] for key in waiting)
    if most is None or total <= most:
        return {key: backlog[key] for key in waiting}
    if most < len(waiting):
        return {waiting[(turn + n) % len(waiting)]: 1 for n in range(most)}
    # One for each, and of what is left as much as its part; what rounding left goes to the largest remainders.
    left, rest = most - len(waiting), total - len(waiting)
    takes = {key: 1 + left * (backlog[key] - 1) // rest for key in waiting}
    by_remainder = sorted(waiting, key=lambda key: -(left * (backlog[key] - 1) % rest))
    for key in by_remainder[: most - sum(takes.values())]:
        takes[key] += 1
    return takes


def fit(sizes: Mapping[K, int], most: int, turn: int = 0) -> list[K]:
    """Which items are taken so that their sizes are `most` together at most, but one in any case. They take turns
    to be the first."""
    keys = list(sizes)
    fitting: list[K] = []
    left = most
    for n in range(len(keys)):
        key = keys[(turn + n) % len(keys)]
        if sizes[key] <= left or not fitting:
            fitting.append(key)
            left -= sizes[key]
    return fitting


class Minimum:
    """Holds a batch back until `least` messages wait, or until `most_s` have passed since the last batch. A query's first
    batch is not held back: it is unknown how long its messages have waited."""

    def __init__(self, least: int, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = least
        self._most_s = most_s
        self._clock = clock
        self._last: float | None = None

    def holds(self, waiting: int) -> bool:
        """Whether the batch has to wait; if not, its time is what the next one counts from."""
        now = self._clock()
        if waiting < self._least and self._last is not None and now - self._last < self._most_s:
            return True
        self._last = now
        return False


class PollInterval:
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
