"""A client whose credentials were verified."""

from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

ROLE_CHARACTERS_MAX: Final = 256


class Principal(msgspec.Struct, frozen=True, gc=False):
    """A role, by which `method` it was shown, and until when (ms since the epoch; None: without end).

    `proxy`: who was authenticated and acts for it; None where it came by itself.
    """

    role: str
    expires_ms: int | None = None
    method: str = ""
    proxy: "Principal | None" = None

    @property
    def chain(self) -> "tuple[Principal, ...]":
        """The principal and those it came through; each must be allowed what is asked for."""
        return (self,) if self.proxy is None else (self, *self.proxy.chain)

    @property
    def authenticated(self) -> "Principal":
        """Who opened the connection or sent the request."""
        return self if self.proxy is None else self.proxy.authenticated

    @property
    def ends_first(self) -> "Principal":
        """That of the chain whose credentials end first."""
        ending = [one for one in self.chain if one.expires_ms is not None]
        return min(ending, key=lambda one: one.expires_ms or 0, default=self)

    def renewed(self, shown: "Principal") -> "Principal | None":
        """The same under new credentials of one of the chain; None where they are of none of them."""
        if shown.role == self.role:
            return msgspec.structs.replace(shown, proxy=self.proxy)
        proxy = None if self.proxy is None else self.proxy.renewed(shown)
        return None if proxy is None else msgspec.structs.replace(self, proxy=proxy)


def check_role(role: str) -> str:
    """Return a role's name, or raise UNAUTHENTICATED for what can be none."""
    if not role.strip() or len(role) > ROLE_CHARACTERS_MAX or not role.isprintable():
        raise PenstockError(ErrorKind.UNAUTHENTICATED, "the credentials name no role that could be one")
    return role
