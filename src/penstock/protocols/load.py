"""What all connections of all doors are and hold together, and the bounds on it."""

from collections import Counter
from ipaddress import IPv6Address


class Load:
    """Connections by address, and bytes: received and not yet answered, written and not yet taken."""

    def __init__(self, connections_max: int, connections_per_address: int, bytes_max: int) -> None:
        self.connections_max = connections_max
        self.connections_per_address = connections_per_address
        self.bytes_max = bytes_max
        self._by_address: Counter[str] = Counter()
        self.connections = 0
        self.refused = 0  # connections that were one too many
        self.held = 0  # of request bodies; changed as they come and are answered
        self.unwritten = (
            0  # of answers, frames and commands that wait; counted where writing waits, and now and then
        )

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

    @property
    def full(self) -> bool:
        """Whether nothing more is to be taken on."""
        return self.held + self.unwritten > self.bytes_max

    def full_reason(self) -> str:
        """The sentence for whoever is sent away."""
        return f"the server holds limits.max_bytes_in_flight = {self.bytes_max} bytes of others; try again"


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
