"""Letting the store's threads have Python's lock (the GIL) while the event loop is busy.

A thread that waits for the lock may demand it only when one holder has had it for a whole switch interval. A
busy loop releases it between its callbacks, for moments too short for a sleeping thread to wake up in, and
each of them starts that wait again. Measured on two cores, an append then took whole seconds. So
when answers of the threads are pending and none came for a while, the loop pauses for as long as a thread needs
to wake up; what the thread then does is mostly SQLite's work, which needs no lock. Measured again: 3 ms, for a
tenth of the loop.
"""

import asyncio
import time
from typing import Final

AFTER_S: Final = 0.001  # most answers take less; also the finest that uvloop's timers know
PAUSE_S: Final = 0.00005  # to wake a thread on a sleeping core takes about this long


class GilYield:
    """Counts the answers that are pending. For the loop's thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._pending = 0
        self._answered = False
        self._watching = False

    def asked(self, count: int = 1) -> None:
        """A thread was asked for `count` answers."""
        self._pending += count
        if not self._watching:
            self._watching = True
            self._loop.call_later(AFTER_S, self._look)

    def answered(self, count: int = 1) -> None:
        """`count` answers have come."""
        self._pending -= count
        self._answered = True

    def _look(self) -> None:
        if not self._pending:
            self._watching = False
            return
        if not self._answered:
            time.sleep(PAUSE_S)
        self._answered = False
        self._loop.call_later(AFTER_S, self._look)
