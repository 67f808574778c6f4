"""Credentials that end while a connection lasts: the client is asked for new ones, and cut off without (5.3).

Pulsar's brokers look every minute and ask once the credentials have expired; here a client is asked before, so that
it is never without.
"""

from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.model.errors import PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.permission_watch import TIMER_MS_MAX, PermissionWatch
from penstock.runtime.clock import Timer
from penstock.wire.pulsar_pb2 import AuthData, BaseCommand, CommandAuthChallenge

from .output import send

if TYPE_CHECKING:
    from .session import Session

AHEAD_MS: Final = 30_000  # asked so long before the end, or when half of the time is left
AGAIN_MS: Final = 1000  # not more often than this: the answer may be the same token again
REFRESH: Final = b"PulsarAuthRefresh"  # what Pulsar's clients know to mean: send the credentials again
PROTOCOL_VERSION: Final = 21


class Refresh:
    """The credentials of one connection."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._hold: PermissionWatch | None = None
        self._timer: Timer | None = None
        self._method = ""
        self._expires_ms = 0

    def follow(self, who: Caller, method: str | None) -> None:
        """From now on the connection goes by these; `method` None: the client cannot be asked for others."""
        self.close()
        self._hold = who.watch(self._session.review, self._ended)
        if method is not None and who.expires_ms is not None:
            self._method, self._expires_ms = method, who.expires_ms
            self._plan()

    def _plan(self) -> None:
        clock = self._session.broker.clock
        left = self._expires_ms - clock.now_ms()
        wait = max(left - AHEAD_MS, left // 2)
        if wait >= AGAIN_MS:  # else there is no time for an answer
            due = self._ask if wait <= TIMER_MS_MAX else self._plan
            self._timer = clock.call_later(min(wait, TIMER_MS_MAX), due)

    def _ask(self) -> None:
        self._timer = None
        challenge = CommandAuthChallenge(
            server_version=f"Penstock {__version__}",
            challenge=AuthData(auth_method_name=self._method, auth_data=REFRESH),
            protocol_version=PROTOCOL_VERSION,
        )
        send(
            self._session.output,
            BaseCommand(type=BaseCommand.AUTH_CHALLENGE, auth_challenge=challenge),
        )

    def _ended(self, reason: PenstockError) -> None:
        self._session.output.cut(reason.message)

    def close(self) -> None:
        """Nothing is to be watched any more."""
        if self._hold is not None:
            self._hold.close()
            self._hold = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
