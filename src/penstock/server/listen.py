"""The listening socket."""

import errno
import socket

from .config import host_and_port


class StartError(Exception):
    """The server cannot start, for a reason outside of it; one sentence."""


def bind(listen: str) -> socket.socket:
    """A bound socket that does not listen yet, so that nobody connects before the doors are open."""
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


def url_of(bound: socket.socket, scheme: str = "http") -> str:
    """The address to reach it at: a wildcard address is reached by the loopback one."""
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"
