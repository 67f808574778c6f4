"""The role in a client's certificate: the common name of its subject (Pulsar's `tls` method).

Only a certificate that the handshake verified tells one: without a check the library shows none.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Transport(Protocol):
    """A connection that may know its peer's certificate (asyncio's and uvloop's do)."""

    def get_extra_info(self, name: str, default: Any = None) -> Any: ...


def peer_role(transport: Transport) -> str | None:
    """The common name of the peer's verified certificate; None without one, or with several names."""
    return _role(transport.get_extra_info("peercert"))


def scope_role(scope: Mapping[str, Any]) -> str | None:
    """The same for an ASGI request, in whose state the server leaves its connection's certificate."""
    return _role(scope.get("state", {}).get("peercert"))


def _role(certificate: Mapping[str, Any] | None) -> str | None:
    if not certificate:
        return None
    parts = (pair for part in certificate.get("subject", ()) for pair in part)
    names = [value for key, value in parts if key == "commonName" and value]
    return str(names[0]) if len(names) == 1 else None
