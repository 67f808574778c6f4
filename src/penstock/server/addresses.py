"""The two ends of a connection, as ASGI's scopes name them."""

import asyncio
import socket
from typing import Any


def remote_address(transport: asyncio.Transport) -> tuple[str, int] | None:
    """Host and port of the peer; None if it has none, or is gone already."""
    bound: socket.socket | None = transport.get_extra_info("socket")
    try:
        found: Any = transport.get_extra_info("peername") if bound is None else bound.getpeername()
    except OSError:
        return None
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def local_address(transport: asyncio.Transport) -> tuple[str, int | None] | None:
    """Host and port that the peer reached; a path and None of a socket of the file system."""
    bound: socket.socket | None = transport.get_extra_info("socket")
    found: Any = transport.get_extra_info("sockname") if bound is None else bound.getsockname()
    if isinstance(found, tuple):
        return str(found[0]), int(found[1])
    return (found, None) if isinstance(found, str) else None


def is_tls(transport: asyncio.Transport) -> bool:
    """Whether what is written goes through TLS."""
    return bool(transport.get_extra_info("sslcontext"))
