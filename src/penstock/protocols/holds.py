"""What lasts longer than a request holds on to its permission: it is asked again when permissions change, and ends
when the credentials do."""

from collections.abc import Callable
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock, Timer

TIMER_MS_MAX: Final = 24 * 60 * 60 * 1000  # a timer of years would outgrow the loop's

EXPIRED: Final = "the credentials have expired"


def expired() -> PenstockError:
    return PenstockError(ErrorKind.UNAUTHENTICATED, EXPIRED)


class Holds:
    """Everything that lasts, of every endpoint."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._held: set[Hold] = set()

    def add(self, hold: "Hold") -> None:
        self._held.add(hold)

    def discard(self, hold: "Hold") -> None:
        self._held.discard(hold)

    def __len__(self) -> int:
        return len(self._held)

    def review(self) -> None:
        """Permissions changed: ask for every one again."""
        for hold in list(self._held):
            hold.review()


class Hold:
    """One connection, stream or wait.

    `check` raises FORBIDDEN where it may not go on, and is called when permissions change; `ended` is told why,
    once, also UNAUTHENTICATED when `expires_ms` (ms since the epoch; None: never) has come.
    """

    __slots__ = ("_check", "_ended", "_expires_ms", "_holds", "_timer", "open")

    def __init__(
        self,
        holds: Holds,
        expires_ms: int | None,
        check: Callable[[], object],
        ended: Callable[[PenstockError], None],
    ) -> None:
        self.open = True
        self._holds = holds
        self._expires_ms = expires_ms
        self._check = check
        self._ended = ended
        self._timer: Timer | None = None
        holds.add(self)
        self._wait()

    def _wait(self) -> None:
        if self._expires_ms is not None:
            left = self._expires_ms - self._holds.clock.now_ms()
            self._timer = self._holds.clock.call_later(max(0, min(left, TIMER_MS_MAX)), self._look)

    def _look(self) -> None:
        assert self._expires_ms is not None
        if self._holds.clock.now_ms() >= self._expires_ms:
            self._end(expired())
        else:
            self._wait()

    def review(self) -> None:
        """Ask again whether it may go on."""
        try:
            self._check()
        except PenstockError as error:
            self._end(error)

    def _end(self, error: PenstockError) -> None:
        if self.open:
            self.close()
            self._ended(error)

    def close(self) -> None:
        """It is over by itself."""
        self.open = False
        self._holds.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
