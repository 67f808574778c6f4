"""Peers that take too long: looked for now and then, so that a request that is in time pays for no timer."""

import asyncio
import socket
import struct
from typing import Final, NamedTuple

from penstock.protocols.holding import Holding
from penstock.protocols.limits import Limits

LINGER_S: Final = 2.0  # a peer that is still sending has so long to read why it is closed
LOOKS: Final = 4  # within the shortest of all times
LOOK_S_MIN: Final = 0.02
LOOK_S_MAX: Final = 1.0  # also how often the Date header is made

_AT_ONCE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: for no time


def cut(transport: asyncio.Transport) -> None:
    """Reset a connection. Merely closed, what its peer does not read would stay with the system."""
    found = transport.get_extra_info("socket")
    if found is not None:
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        except OSError:
            pass  # it is gone already
    transport.abort()


class Deadlines(NamedTuple):
    """The limits in seconds, and how much a peer has to move within them."""

    head_s: float
    body_s: float
    stall_s: float
    bytes_per_s: int
    linger_bytes: int  # of a body that is refused, read into nothing so that the refusal is heard

    @classmethod
    def of(cls, limits: Limits) -> "Deadlines":
        """As configured."""
        return cls(
            limits.head_ms / 1000,
            limits.body_ms / 1000,
            limits.stall_ms / 1000,
            limits.min_bytes_per_s,
            2 * limits.max_request_bytes,
        )

    @property
    def look_s(self) -> float:
        """How often to look."""
        least = min(self.head_s, self.body_s, self.stall_s)
        return min(LOOK_S_MAX, max(LOOK_S_MIN, least / LOOKS))


class Sending:
    """A peer that has to send something: since when."""

    __slots__ = ("_looked", "_of", "_since")

    def __init__(self) -> None:
        self._of: object = Sending  # nothing yet
        self._since = 0.0
        self._looked = 0.0

    def late(self, of: object, now: float, allowed_s: float, *, held_up: bool = False) -> bool:
        """Whether the expected `of`, of which there is one at a time, took longer than `allowed_s` by now.

        `held_up`: we are not reading; that time does not count.
        """
        if of is not self._of:
            self._of, self._since = of, now
        elif held_up:
            self._since += now - self._looked
        self._looked = now
        return now - self._since > allowed_s


class Taking:
    """A peer that has to read: the amount it took of the written bytes."""

    __slots__ = ("_left", "_since", "_taken")

    def __init__(self) -> None:
        self._left = 0
        self._since = 0.0
        self._taken = 0

    def late(self, left: int, now: float, stall_s: float, bytes_per_s: int) -> bool:
        """Whether, with `left` bytes still to be taken, it was too slow for `stall_s`."""
        if not left:
            self._left = 0
            return False
        if not self._left:
            self._since, self._taken = now, 0
        else:
            self._taken += max(0, self._left - left)
        self._left = left
        if now - self._since < stall_s:
            return False
        slow = self._taken < bytes_per_s * (now - self._since)
        self._since, self._taken = now, 0
        return slow

    def took(self, size: int) -> None:
        """It took `size` bytes, and more were written."""
        self._taken += size


class Unwritten:
    """What one connection has written and its peer not taken, as far as it is counted."""

    __slots__ = ("_counted", "_holding")

    def __init__(self, holding: Holding) -> None:
        self._holding = holding
        self._counted = 0

    def count(self, size: int) -> None:
        """It is `size` now: when writing has to wait, and when `look` is called."""
        if size != self._counted:
            self._holding.send(size - self._counted)
            self._counted = size
