"""How long to wait before trying again."""

from __future__ import annotations

import random
from typing import Final

FIRST_S: Final = 0.1  # as in Pulsar's clients
MAX_S: Final = 30.0

# The system's: the state of the `random` module belongs to the application, and forked processes share theirs.
_RANDOM: Final = random.SystemRandom()


class Backoff:
    """Each wait is up to twice the one before; a random part keeps many clients from coming at once."""

    def __init__(self, first_s: float = FIRST_S, max_s: float = MAX_S) -> None:
        self._first_s = self._next_s = first_s
        self._max_s = max_s

    def next_s(self) -> float:
        """The next wait."""
        wait, self._next_s = self._next_s, min(self._max_s, 2 * self._next_s)
        return wait * _RANDOM.uniform(0.8, 1.0)

    def reset(self) -> None:
        """It went well."""
        self._next_s = self._first_s
