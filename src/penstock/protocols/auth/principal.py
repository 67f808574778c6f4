"""A client whose credentials were verified, and the role that a client's certificate names.

That is the common name of its subject (Pulsar's `tls` method). Only a certificate that the handshake verified has
one: without a check the library shows none.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

ROLE_CHARACTERS_MAX: Final = 256


class Principal(msgspec.Struct, frozen=True, gc=False):
    """A role, by which `method` it was shown, and until when (ms since the epoch; None: without end).

    `proxy`: who was authenticated and acts for it; None if it came by itself.
    """

    role: str
    expires_ms: int | None = None
    method: str = ""
    proxy: "Principal | None" = None

    @property
    def chain(self) -> "tuple[Principal, ...]":
        """The principal and those it came through; each must be allowed the operation."""
        return (self,) if self.proxy is None else (self, *self.proxy.chain)

    @property
    def authenticated(self) -> "Principal":
        """The role that opened the connection or sent the request."""
        return self if self.proxy is None else self.proxy.authenticated

    @property
    def ends_first(self) -> "Principal":
        """That of the chain whose credentials end first."""
        ending = [one for one in self.chain if one.expires_ms is not None]
        return min(ending, key=lambda one: one.expires_ms or 0, default=self)

    def renewed(self, shown: "Principal") -> "Principal | None":
        """The same under new credentials of one of the chain; None if they are of none of them."""
        if shown.role == self.role:
            return msgspec.structs.replace(shown, proxy=self.proxy)
        proxy = None if self.proxy is None else self.proxy.renewed(shown)
        return None if proxy is None else msgspec.structs.replace(self, proxy=proxy)


def check_role(role: str) -> str:
    """Return a role's name, or raise UNAUTHENTICATED for what can be none."""
    if not role.strip() or len(role) > ROLE_CHARACTERS_MAX or not role.isprintable():
        raise PenstockError(ErrorKind.UNAUTHENTICATED, "the credentials name no role that could be one")
    return role


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
