"""Pings to the peer of a WebSocket, and what it means when no pong comes."""

import secrets
from typing import Protocol

from penstock.runtime.clock import Clock, Timer


class Pinged(Protocol):
    """A connection over which pings are sent."""

    def ping(self, payload: bytes) -> None:
        """Send a ping."""

    def unanswered(self) -> None:
        """No pong came in time."""


class Keepalive:
    """Pings every `interval_s`, the time of the last round trip less, and expects a pong within `timeout_s`.

    With an interval of None there are no pings, without a timeout no pong is expected.
    """

    def __init__(
        self, interval_s: float | None, timeout_s: float | None, connection: Pinged, clock: Clock
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._connection: Pinged | None = connection
        self._timer: Timer | None = None
        self._payload: bytes | None = None  # of the ping that has no pong yet
        self._sent_ms = 0
        self._trip_ms = 0

    def start(self) -> None:
        """Begin, once the connection is open."""
        if self._interval_s and self._connection is not None:
            delay_ms = max(0.0, self._interval_s * 1000 - self._trip_ms)
            self._timer = self._clock.call_later(delay_ms, self._send)

    def _send(self) -> None:
        assert self._connection is not None
        self._payload = secrets.token_bytes(4)  # the state of the `random` module is the application's
        self._sent_ms = self._clock.monotonic_ms()
        self._connection.ping(self._payload)
        if self._timeout_s is None:
            self.start()
        else:
            self._timer = self._clock.call_later(self._timeout_s * 1000, self._expire)

    def _expire(self) -> None:
        connection = self._connection
        self.stop()
        if connection is not None:
            connection.unanswered()

    def answered(self, payload: bytes) -> None:
        """A pong came; one to no ping of ours, or an earlier one, says nothing."""
        if payload != self._payload:
            return
        self._trip_ms = self._clock.monotonic_ms() - self._sent_ms
        self._payload = None
        if self._timeout_s is not None:
            self._cancel()
            self.start()

    def stop(self) -> None:
        """No more pings, for good: nothing knows the connection from here any more."""
        self._cancel()
        self._payload = self._connection = None

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
