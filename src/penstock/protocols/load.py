"""The connections of all endpoints, the bytes that the server holds for them, and the bounds on both.

Bytes are counted once for all and once for the principal that caused them: the role, or the address if no role is
known yet. A principal may hold a part of the room that is still free (`limits.max_bytes_in_flight_share`): one alone
can use most of it, many leave some to each other, and none can fill it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from ipaddress import IPv6Address
from typing import Final, Protocol

SHARE: Final = 0.75  # of the room that one principal alone may hold
LOOK_S: Final = 0.1  # those that wait for room left by others look so often
_UNSHARED: Final = 1e9  # times the free memory: the bound of all is reached first


class Holder(Protocol):
    """A connection that waits for room; once it is closed nothing is held for it any more."""

    closed: bool


class Share:
    """What one principal has the server hold."""

    __slots__ = ("bytes", "holdings", "name", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes = 0
        self.holdings = 0
        # For room, the oldest first: how much, what completes when there is room, and for which connection.
        self.waiting: deque[tuple[int, asyncio.Future[bool], Holder]] = deque()


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
        self.unwritten = 0  # unsent: read and encoded for a client that has not taken it
        self.refused_share = 0  # requests, frames and connections of principals beyond their share
        self.refused_full = 0  # those beyond the bound of all
        self.slowed = 0  # times that a principal beyond its share had to wait
        self._shares: dict[str, Share] = {}
        self._pressed: set[Share] = set()  # those with requests that wait for room
        self._callbacks: dict[Callable[[], None], None] = {}  # to be called when there may be room, each once
        self._looking: asyncio.TimerHandle | None = None

    # -- connections

    def enter(self, address: str) -> str:
        """Count a connection; if it is one too many, nothing is counted and the reason is returned."""
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
        """Set the bound of held memory; memory already held stays."""
        self.bytes_max = bytes_max
        self.share = share
        # A principal may hold so many times the free memory. Alone it comes to `share` of the whole: x = f (1 - x).
        self.factor = _UNSHARED if share >= 1 else share / (1 - share)

    @property
    def free(self) -> int:
        """The bytes that may still be accepted, by all together; below zero if it is too much already."""
        return self.bytes_max - self.held - self.unwritten

    @property
    def full(self) -> bool:
        """Whether nothing more is accepted."""
        return self.held + self.unwritten > self.bytes_max

    def full_reason(self) -> str:
        """The sentence for a caller that is refused."""
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
        if self._callbacks and self.free >= 0:
            callbacks, self._callbacks = self._callbacks, {}
            for callback in callbacks:
                callback()

    def _look_again(self) -> None:
        self._looking = None
        self.look()
        if self._pressed or self._callbacks:
            self._look_later()

    def _look_later(self) -> None:
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look_again)

    def call_when_room(self, callback: Callable[[], None]) -> None:
        """Call back once, soon, when there may be room again; it has to look whether there is."""
        self._callbacks[callback] = None
        self._look_later()

    # -- for holdings

    def share_of(self, name: str) -> Share:
        """The share of a principal, which has one more holding from now on."""
        found = self._shares.get(name)
        if found is None:
            found = self._shares[name] = Share(name)
        found.holdings += 1
        return found

    def release(self, share: Share) -> None:
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

    def wait_for_room(self, share: Share, size: int, holder: Holder) -> asyncio.Future[bool]:
        """Complete with True when `size` bytes more were counted in a share, with False when the holder is closed."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        share.waiting.append((size, answer, holder))
        self._pressed.add(share)
        self.slowed += 1
        self._look_later()
        return answer

    def grant(self, share: Share) -> None:
        """Let those go on that wait for room, the oldest first, as far as there is any."""
        waiting = share.waiting
        while waiting:
            size, answer, holder = waiting[0]
            if holder.closed and not answer.done():
                answer.set_result(False)
            elif not answer.done():
                if not self.has_room(share, size):
                    return
                self.unwritten += size
                share.bytes += size
                answer.set_result(True)
            waiting.popleft()
        self._pressed.discard(share)


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
