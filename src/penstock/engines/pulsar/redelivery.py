"""When messages come again: those given back after their delay, those not acknowledged in time."""

import asyncio
from collections.abc import Callable

from penstock.runtime.clock import Clock, Timers

from .outstanding import Outstanding, Place, Row


class Redelivery:
    """Times of one consumer's messages of one topic. `ask` is called with the entries whose time has come, those of one
    moment together; `late` with messages that were not acknowledged in time."""

    def __init__(
        self,
        clock: Clock,
        out: Outstanding,
        ask: Callable[[list[Place]], None],
        late: Callable[[Place, int], None],
    ) -> None:
        self._clock = clock
        self._out = out
        self._ask = ask
        self._late = late
        self._timers = Timers(clock, _wanted)
        self._due: dict[Place, int] = {}

    def later(self, place: Place, bits: int, delay_ms: int) -> None:
        """These messages are to come again after a while."""
        if delay_ms <= 0:
            self._came((place, bits))
        else:
            self._timers.at(self._clock.monotonic_ms() + delay_ms, self._came, (place, bits))

    def watch(self, place: Place, row: Row, bits: int, timeout_ms: int) -> None:
        """These messages are to be acknowledged in time."""
        self._timers.at(self._clock.monotonic_ms() + timeout_ms, self._over, (place, row, bits))

    def _came(self, what: tuple[Place, int]) -> None:
        place, bits = what
        if not self._due:
            asyncio.get_running_loop().call_soon(self._ask_all)
        self._due[place] = self._due.get(place, 0) | bits

    def _ask_all(self) -> None:
        due, self._due = self._due, {}
        places = self._out.due(due)
        if places:
            self._ask(places)

    def _over(self, what: tuple[Place, Row, int]) -> None:
        place, row, bits = what
        if row.out & bits and self._out.row(place) is row:
            self._late(place, row.out & bits)

    def forget(self) -> None:
        """A seek: nothing of before comes again."""
        self._timers.close()
        self._due.clear()

    close = forget


def _wanted(what: object) -> bool:
    """Whether a deadline still means something."""
    return not (isinstance(what, tuple) and len(what) == 3 and not what[1].out & what[2])
