"""The listening sockets."""

import errno
import ipaddress
import socket
import ssl
from typing import NamedTuple

from .config import host_and_port


class StartError(Exception):
    """The server cannot start, for a reason outside of it; one sentence."""


class Listener(NamedTuple):
    """A bound socket, and the context of TLS where it speaks it."""

    bound: socket.socket
    context: ssl.SSLContext | None = None
    handshake_s: float = 10.0

    def url(self, scheme: str) -> str:
        """The address to reach it at; `scheme` is that of TLS where it speaks it."""
        return url_of(self.bound, scheme)


def bind(listen: str) -> socket.socket:
    """A bound socket that does not listen yet, so that no client connects before the endpoints are open."""
    host, port = host_and_port(listen)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        reason = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise StartError(f"cannot listen on {listen}: {reason}") from None
    bound.setblocking(False)
    return bound


def is_loopback(bound: socket.socket) -> bool:
    """Whether only this machine reaches a bound socket: by its address, which names were resolved to."""
    address = ipaddress.ip_address(bound.getsockname()[0].partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """The address to reach it at: a wildcard address is reached by the loopback one."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"
