"""What outlasts a request needs its permission all the time: it is checked again when permissions change, and ends
when the credentials do."""

from collections.abc import Callable
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.clock import Clock, Timer

TIMER_MS_MAX: Final = 24 * 60 * 60 * 1000  # a timer of years would outgrow the loop's


def expired() -> PenstockError:
    return PenstockError(ErrorKind.UNAUTHENTICATED, "the credentials have expired")


class PermissionWatches:
    """All that are open, of every endpoint."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.open: set[PermissionWatch] = set()

    def review(self) -> None:
        """Permissions changed: check every one again."""
        for watch in list(self.open):
            watch.review()


class PermissionWatch:
    """That of one connection, stream or wait.

    `check` raises FORBIDDEN if it may not go on, and is called when permissions change; `ended` is
    called with the reason, once, also with UNAUTHENTICATED when `expires_ms` (ms since the epoch; None: never) has come.
    """

    __slots__ = ("_check", "_ended", "_expires_ms", "_timer", "_watches", "open")

    def __init__(
        self,
        watches: PermissionWatches,
        expires_ms: int | None,
        check: Callable[[], object],
        ended: Callable[[PenstockError], None],
    ) -> None:
        self.open = True
        self._watches = watches
        self._expires_ms = expires_ms
        self._check = check
        self._ended = ended
        self._timer: Timer | None = None
        watches.open.add(self)
        self._wait()

    def _wait(self) -> None:
        if self._expires_ms is not None:
            left = self._expires_ms - self._watches.clock.now_ms()
            self._timer = self._watches.clock.call_later(max(0, min(left, TIMER_MS_MAX)), self._look)

    def _look(self) -> None:
        assert self._expires_ms is not None
        if self._watches.clock.now_ms() >= self._expires_ms:
            self._end(expired())
        else:
            self._wait()

    def review(self) -> None:
        """Check again whether it may go on."""
        try:
            self._check()
        except PenstockError as error:
            self._end(error)

    def _end(self, error: PenstockError) -> None:
        if self.open:
            self.close()
            self._ended(error)

    def close(self) -> None:
        """What it watches ended by itself."""
        self.open = False
        self._watches.open.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
