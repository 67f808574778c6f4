"""Ports for what cannot be told to choose one, or has to come back to the one it had."""

from pathlib import Path
from random import SystemRandom
from socket import socket


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, of those that the system gives to nobody by itself: no connection and no server of another
    test gets one before it is used, nor while who has it is started again."""
    try:
        given_from = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:  # no Linux
        given_from = 49_152
    first = 10_000 if given_from > 12_000 else 1024
    own = range(first, given_from)
    held: list[socket] = []
    try:
        # Where the system gives all of them, it chooses.
        for port in SystemRandom().sample(own, k=min(1000, len(own))) or [0] * count:
            one = socket()
            held.append(one)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
    raise AssertionError("no port is free")
