"""Whether this process stood still so long that its groups may have thrown it out: it was frozen, or its machine slept."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 0.5
STALL_S: Final = 4.0  # well below the session timeout of members (`driver.member`)


CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed_s() -> float:
    """Time that also passes while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(CLOCK)


class Stalls:
    """Calls `noticed` on the loop after each stall; `stalled` holds from the end of a stall until that call."""

    def __init__(self, noticed: Callable[[], None], now_s: Callable[[], float] = elapsed_s) -> None:
        self._noticed = noticed
        self._now_s = now_s
        self._seen_s = now_s()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stalled(self) -> bool:
        """Whether this process stood still a moment ago, and `noticed` was not called yet."""
        return self._now_s() - self._seen_s >= STALL_S

    def beat(self) -> None:
        """Look now, and from now on."""
        if self.stalled:
            self._noticed()
        self._seen_s = self._now_s()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self.beat)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
