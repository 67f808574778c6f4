"""Calls that are made again while a server cannot be reached: a server that restarts ends no query."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.model.errors import PenstockError

T = TypeVar("T")

START_S: Final = 6.0  # at a query's start, when a wrong address has to fail soon
AWAY_S: Final = 90.0  # for a query that runs: a restart, with a store to be recovered
BACKOFF_S: Final = 0.1  # doubled each time
BACKOFF_MAX_S: Final = 2.0

log = logging.getLogger(__name__)


class Outage:
    """How long a server has been away, and whether that is too long. Its beginning and its end are logged."""

    def __init__(self, most_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_s = most_s
        self._clock = clock
        self._since: float | None = None
        self._tries = 0

    def wait_s(self, error: PenstockError) -> float:
        """How long to wait before the next try. Raises `error` if it is final, or after enough tries."""
        if not error.retriable:
            raise error
        now = self._clock()
        if self._since is None:
            self._since = now
        wait_s = min(BACKOFF_S * 2.0 ** min(self._tries, 30), BACKOFF_MAX_S)
        if now + wait_s - self._since > self._most_s:
            raise error
        if not self._tries:
            log.warning("%s; it is asked again for %.0f s", error.message, self._most_s)
        self._tries += 1
        return wait_s

    def over(self) -> None:
        """The server answered."""
        if self._tries and self._since is not None:
            log.warning("the server answers again, after %.1f s", self._clock() - self._since)
        self._since, self._tries = None, 0


def retrying(
    call: Callable[[], T],
    most_s: float = AWAY_S,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The result of `call`, made again while what it raises may pass, for `most_s`."""
    absence = Outage(most_s, clock)
    while True:
        try:
            result = call()
        except PenstockError as error:
            wait_s = absence.wait_s(error)
        else:
            absence.over()
            return result
        sleep(wait_s)
