"""The programs that call, as the statistics name them."""

from collections.abc import Mapping
from typing import Any, Final

from penstock.model.policy import ClientInfo

VERSION_CHARACTERS_MAX: Final = 200  # of a text that the client chooses and every answer of `stats` repeats


def client_of(scope: Mapping[str, Any]) -> ClientInfo:
    """The program that sends an HTTP request or opens a WebSocket, as the statistics name it: its version is its
    User-Agent."""
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    return ClientInfo(address_of(scope.get("client")), agent.decode("latin-1")[:VERSION_CHARACTERS_MAX])


def address_of(peer: object) -> str:
    """Host and port of a socket's peer, with an IPv6 address in brackets; "" if there is none."""
    if not isinstance(peer, tuple | list) or len(peer) < 2:
        return ""
    host = f"[{peer[0]}]" if ":" in str(peer[0]) else peer[0]
    return f"{host}:{peer[1]}"
