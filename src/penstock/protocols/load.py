"""What all connections of all endpoints are and hold together, and the bounds on it.

Bytes are counted once for all and once for the principal that caused them: the role, or the address where no role is
known yet. A principal may hold a part of the room that is still free (`limits.max_bytes_in_flight_share`): one alone
can use most of it, many leave some to each other, and none can fill it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from typing import Any, Final

from penstock.model.errors import ErrorKind, PenstockError

SHARE: Final = 0.75  # of the room that one principal alone may hold
ROOM_S: Final = 5.0  # a request waits no longer for room
LOOK_S: Final = 0.1  # those that wait for room left by others look so often
LEAST: Final = (
    64  # a principal with less than this part of the whole is served, though others have all the rest,
)
LEAST_FREE: Final = 5  # until together they are beyond the whole by this part of it
STATE_KEY: Final = "penstock.holding"  # where the state of an ASGI scope has what its connection holds
_UNSHARED: Final = 1e9  # times what is free: the bound of all is reached first


class Share:
    """What one principal has the server hold."""

    __slots__ = ("bytes", "holdings", "name", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.holdings = 0
        # For room, the oldest first: how much, who is told, and for which connection it is.
        self.waiting: deque[tuple[int, asyncio.Future[None], Holding]] = deque()


class Load:
    """Connections by address, and bytes: received and not yet answered, written and not yet taken."""

    def __init__(
        self, connections_max: int, connections_per_address: int, bytes_max: int, share: float = SHARE
    ) -> None:
        self.connections_max = connections_max
        self.connections_per_address = connections_per_address
        self.bound_bytes(bytes_max, share)
        self._by_address: Counter[str] = Counter()
        self.connections = 0
        self.refused = 0  # connections that were one too many
        self.handshakes = 0  # of the connections, those whose TLS handshake is not complete
        self.held = 0  # received: bodies and frames, whole or in part, until they are answered
        self.unwritten = 0  # to be sent: what is read for a client, encoded for it, and not taken by it
        self.refused_share = 0  # requests, frames and connections of principals beyond their share
        self.refused_full = 0  # those beyond the bound of all
        self.slowed = 0  # times that a principal beyond its share had to wait
        self._shares: dict[str, Share] = {}
        self._pressed: set[Share] = set()  # those with requests that wait for room
        self._told: dict[Callable[[], None], None] = {}  # to be called when there may be room, each once
        self._looking: asyncio.TimerHandle | None = None

    # -- connections

    def enter(self, address: str) -> str:
        """Count a connection; where it is one too many, nothing is counted and the sentence why is returned."""
        if self.connections >= self.connections_max:
            self.refused += 1
            return f"the server has limits.max_connections = {self.connections_max} connections"
        address = network_of(address)
        if self._by_address[address] >= self.connections_per_address:
            self.refused += 1
            return f"{address} has limits.max_connections_per_address = {self.connections_per_address} connections"
        self.connections += 1
        self._by_address[address] += 1
        return ""

    def leave(self, address: str) -> None:
        """A connection that was counted is gone."""
        address = network_of(address)
        self.connections -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    # -- bytes

    def bound_bytes(self, bytes_max: int, share: float) -> None:
        """Bound what is held; what is held already stays."""
        self.bytes_max = bytes_max
        self.share = share
        # A principal may hold so many times what is free. Alone it comes to `share` of the whole: x = f (1 - x).
        self.factor = _UNSHARED if share >= 1 else share / (1 - share)

    @property
    def free(self) -> int:
        """What may still be taken on, by all together; below zero where it is too much already."""
        return self.bytes_max - self.held - self.unwritten

    @property
    def full(self) -> bool:
        """Whether nothing more is to be taken on."""
        return self.held + self.unwritten > self.bytes_max

    def full_reason(self) -> str:
        """The sentence for who is refused."""
        return f"the server holds limits.max_bytes_in_flight = {self.bytes_max} bytes of others; try again"

    @property
    def principals(self) -> int:
        """How many principals hold something, or have a connection."""
        return len(self._shares)

    @property
    def largest(self) -> int:
        """What the principal holds that holds most."""
        return max((share.bytes for share in self._shares.values()), default=0)

    def look(self) -> None:
        """Called now and then: let those go on that wait for room which others left."""
        for share in tuple(self._pressed):
            self.grant(share)
        if self._told and self.free >= 0:
            told, self._told = self._told, {}
            for callback in told:
                callback()

    def _look_again(self) -> None:
        self._looking = None
        self.look()
        if self._pressed or self._told:
            self._look_later()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, soon, when there may be room again; it has to look whether there is."""
        self._told[callback] = None
        self._look_later()

    # -- for holdings

    def share_of(self, name: str) -> Share:
        """The share of a principal, which has one more holding from now on."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = Share(name)
        found.holdings += 1
        return found

    def let_go(self, share: Share) -> None:
        """One holding of a share is gone."""
        share.holdings -= 1
        if not share.holdings:
            del self._shares[share.name]
            self._pressed.discard(share)

    def has_room(self, share: Share, size: int) -> bool:
        """Whether a principal may have `size` bytes more held: a first piece always, while there is room at all."""
        size = min(
            size, self.bytes_max // 8
        )  # else a small bound would never let a single large message through
        free = self.free - size
        return free >= 0 and (not share.bytes or share.bytes + size <= self.factor * free)

    def wait_for_room(self, share: Share, size: int, holding: "Holding") -> "asyncio.Future[None]":
        """Complete when `size` bytes more were counted in a share."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append((size, answer, holding))
        self._pressed.add(share)
        self.slowed += 1
        self._look_later()
        return answer

    def grant(self, share: Share) -> None:
        """Let those go on that wait for room, the oldest first, as far as there is any."""
        waiting = share.waiting
        while waiting:
            size, answer, holding = waiting[0]
            if not answer.done():
                if not holding.closed and not self.has_room(share, size):
                    return
                self.unwritten += size
                share.bytes += size
                answer.set_result(None)
            waiting.popleft()
        self._pressed.discard(share)


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
        self._load.let_go(share)

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
        """Count `size` bytes more that are to be sent; below zero: fewer."""
        if self.closed:
            return
        self.unwritten += size
        self._load.unwritten += size
        self._share.bytes += size
        if size < 0 and self._share.waiting:
            self._load.grant(self._share)

    @property
    def over(self) -> bool:
        """Whether the principal holds more than it may: nothing more is to be taken on for it."""
        load = self._load
        free = load.bytes_max - load.held - load.unwritten
        return self._share.bytes > load.factor * free and self._beyond_least(free)

    def _beyond_least(self, free: int) -> bool:
        """Whether it may be refused: who holds little is served, while others are only a little beyond the bound."""
        load = self._load
        return self._share.bytes > load.bytes_max // LEAST or free * LEAST_FREE < -load.bytes_max

    @property
    def far_over(self) -> bool:
        """Whether it holds so much more that waiting for room is no answer to what goes on coming."""
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

    # -- room for what is to be sent

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
            await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled():  # granted, and not wanted any more
                self._took_over(share, size)
                self.send(-size)
            raise
        self._took_over(share, size)

    async def reserved_soon(self, size: int) -> None:
        """The same for what a client waits for; raises TOO_MANY_REQUESTS or UNAVAILABLE where there is no room soon."""
        if not self.reserve(size):
            try:
                async with asyncio.timeout(ROOM_S):
                    await self.reserved(size)
            except TimeoutError:
                raise PenstockError(*self.refuse()) from None

    def _took_over(self, share: Share, size: int) -> None:
        """What was granted to a share is this connection's, which may belong to another by now, or be closed."""
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
        if share.waiting:  # what is for this connection waits no more, and goes first
            share.waiting = deque(sorted(share.waiting, key=lambda one: one[2] is not self))
            self._load.grant(share)
        self._load.let_go(self._share)


def holding_of(scope: Mapping[str, Any]) -> Holding | None:
    """What the connection of an ASGI scope holds; None where no server of ours counts."""
    state = scope.get("state")
    return None if state is None else state.get(STATE_KEY)


def network_of(address: str) -> str:
    """What an address is counted as: of IPv6 the network of 64 bits, which one peer has all addresses of."""
    if ":" not in address:
        return address
    try:
        whole = IPv6Address(address)
    except ValueError:
        return address
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)
    return f"{IPv6Address(int(whole) >> 64 << 64)}/64"
