"""What proxies say of the clients that they pass on: whether those came over TLS (`X-Forwarded-Proto`).

Anyone can send the header, so that it counts from the peers of `http.trusted_proxies` alone. The name that a client used is
in `Host`, which a proxy has to pass on: web pages are checked by it (`origins`), and `X-Forwarded-Host` is not looked at.
"""

import ipaddress
from collections.abc import Iterable
from typing import Final, Literal

from penstock.protocols.http.answers import Header

HttpScheme = Literal["http", "https"]

_SCHEMES: Final[dict[bytes, HttpScheme]] = {
    b"http": "http",
    b"https": "https",
    b"ws": "http",  # some name the upgraded protocol
    b"wss": "https",
}


class TrustedProxies:
    """Peers whose header counts, by their addresses and networks (`10.0.0.0/8`). Raises ValueError for anything else."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(each) for each in networks]

    def include(self, host: str) -> bool:
        """Whether the address of a peer is one of theirs."""
        if not self._networks:
            return False
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped  # a socket for both versions shows IPv4 so
        return any(address in network for network in self._networks)


def forwarded_scheme(headers: Iterable[Header], own: HttpScheme) -> HttpScheme:
    """The scheme that the client used; `own` is that of the connection, if the proxy names none.

    Of a list, which chained proxies make, the first is that of the client.
    """
    found = own
    for name, value in headers:
        if name == b"x-forwarded-proto":
            found = _SCHEMES.get(value.partition(b",")[0].strip().lower(), own)
    return found
