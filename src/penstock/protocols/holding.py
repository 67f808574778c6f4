"""What one connection has the server hold, counted for all and for its principal (`load`)."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError

from .load import Load, Share, network_of

ROOM_S: Final = 5.0  # a request waits no longer for room
LEAST: Final = (
    64  # a principal with less than this part of the whole is served, though others have all the rest,
)
LEAST_FREE: Final = 5  # until together they are beyond the whole by this part of it
STATE_KEY: Final = "penstock.holding"  # the key of a connection's memory in the state of an ASGI scope


class Holding:
    """What one connection has the server hold, counted for all and for its principal."""

    __slots__ = ("_load", "_share", "closed", "received", "unwritten")

    def __init__(self, load: Load, address: str) -> None:
        self._load = load
        self._share = load.share_of(network_of(address))
        self.closed = False
        self.received = 0
        self.unwritten = 0

    def beside(self) -> "Holding":
        """Another of the same principal, for what outlasts the connection."""
        return Holding(self._load, self._share.name)  # a name is its own network

    def belong(self, role: str) -> None:
        """From now on it is held for a role rather than for an address."""
        name = f"role {role!r}"
        share = self._share
        if share.name == name or self.closed:
            return
        size = self.received + self.unwritten
        share.bytes -= size
        self._share = self._load.share_of(name)
        self._share.bytes += size
        self._load.release(share)

    def receive(self, size: int) -> None:
        """Count `size` bytes more that were received and not answered; below zero: fewer."""
        if self.closed:
            return
        self.received += size
        self._load.held += size
        self._share.bytes += size
        if size < 0 and self._share.waiting:
            self._load.grant(self._share)

    def send(self, size: int) -> None:
        """Count `size` more unsent bytes; below zero: fewer."""
        if self.closed:
            return
        self.unwritten += size
        self._load.unwritten += size
        self._share.bytes += size
        if size < 0 and self._share.waiting:
            self._load.grant(self._share)

    @property
    def over(self) -> bool:
        """Whether the principal holds more than it may: nothing more is accepted for it."""
        load = self._load
        free = load.bytes_max - load.held - load.unwritten
        return self._share.bytes > load.factor * free and self._beyond_least(free)

    def _beyond_least(self, free: int) -> bool:
        """Whether it may be refused: a principal that holds little is served, while others are only a little beyond the
        bound."""
        load = self._load
        return self._share.bytes > load.bytes_max // LEAST or free * LEAST_FREE < -load.bytes_max

    @property
    def far_over(self) -> bool:
        """Whether it holds so much more that waiting for room is not enough while more comes."""
        load = self._load
        free = load.bytes_max - load.held - load.unwritten
        return self._share.bytes > 2 * load.factor * free and self._beyond_least(free)

    def refuse(self) -> tuple[ErrorKind, str]:
        """The error for a request of a principal beyond its share, or beyond the bound of all; it is counted."""
        load = self._load
        if load.full or load.share >= 1 or not self._share.bytes:
            load.refused_full += 1
            return ErrorKind.UNAVAILABLE, load.full_reason()
        load.refused_share += 1
        return (
            ErrorKind.TOO_MANY_REQUESTS,
            f"{self._share.name} has its share (limits.max_bytes_in_flight_share = {load.share:g}) of "
            f"limits.max_bytes_in_flight = {load.bytes_max} bytes in flight; try again",
        )

    def slow(self) -> None:
        """Count that something of the principal has to wait."""
        self._load.slowed += 1

    # -- room for bytes to send

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more may be held."""
        return self._load.has_room(self._share, size)

    def reserve(self, size: int) -> bool:
        """Count `size` bytes that are about to be read or encoded; False, and nothing is counted, without room."""
        if self._share.waiting or not self._load.has_room(self._share, size):
            return False
        self.send(size)
        return True

    async def reserved(self, size: int) -> None:
        """Wait for room, and count `size` bytes that are about to be read or encoded."""
        if self.closed or self.reserve(size):
            return
        share = self._share
        answer = self._load.wait_for_room(share, size, self)
        try:
            counted = await answer
        except asyncio.CancelledError:
            if (
                answer.done() and not answer.cancelled() and answer.result()
            ):  # granted, and not wanted any more
                self._took_over(share, size)
                self.send(-size)
            raise
        if counted:
            self._took_over(share, size)

    async def reserved_soon(self, size: int) -> None:
        """The same for what a client waits for; raises TOO_MANY_REQUESTS or UNAVAILABLE if there is no room soon."""
        if not self.reserve(size):
            try:
                async with asyncio.timeout(ROOM_S):
                    await self.reserved(size)
            except TimeoutError:
                raise PenstockError(*self.refuse()) from None

    def _took_over(self, share: Share, size: int) -> None:
        """The grant to a share is this connection's, which may belong to another by now, or be closed."""
        if self.closed or share is not self._share:
            share.bytes -= size
            if self.closed:
                self._load.unwritten -= size
                return
            self._share.bytes += size
        self.unwritten += size

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, soon, when there may be room again; it has to look whether there is."""
        self._load.call_when_room(callback)

    def close(self) -> None:
        """The connection is gone, and with it all that was held."""
        if self.closed:
            return
        self.receive(-self.received)
        self.send(-self.unwritten)
        self.closed = True
        share = self._share
        if share.waiting:  # requests of this connection no longer wait, and go first
            share.waiting = deque(sorted(share.waiting, key=lambda one: one[2] is not self))
            self._load.grant(share)
        self._load.release(self._share)


def holding_of(scope: Mapping[str, Any]) -> Holding | None:
    """What the connection of an ASGI scope holds; None if no server of ours counts."""
    state = scope.get("state")
    return None if state is None else state.get(STATE_KEY)
