"""How long to wait before the next attempt. Pure, but for the dice."""

import random
from collections.abc import Callable
from typing import Final

FIRST_S: Final = 1.0
MOST_S: Final = 60.0
HEALTHY_S: Final = 60.0  # who ran so long had no trouble with how it began

_RANDOM: Final = random.SystemRandom()  # the state of the `random` module belongs to the application


class Backoff:
    """Doubled with each failure, at most MOST_S; between half of it and all of it, so that many do not come at once."""

    def __init__(self, dice: Callable[[], float] = _RANDOM.random) -> None:
        self._dice = dice
        self._failures = 0

    def next_s(self, ran_s: float) -> float:
        """Seconds to wait after a run of `ran_s`."""
        if ran_s >= HEALTHY_S:
            self._failures = 0
        most = min(MOST_S, FIRST_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return most * (0.5 + 0.5 * self._dice())
