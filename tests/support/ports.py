"""Ports of servers that are ended and started again where they were."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_port() -> Iterator[int]:
    """A port for one server after the other: between two of them no other program gets it.

    A server binds beside the socket that keeps it, as neither of the two listens then and both say `SO_REUSEADDR`.
    Clients are refused where no server listens. Elsewhere than on Linux the port is only found.
    """
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        port: int = kept.getsockname()[1]
        if sys.platform != "linux":
            kept.close()
        yield port
