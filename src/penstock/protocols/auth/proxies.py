"""Proxies: a proxy authenticates as itself and names the principal that it acts for.

The rule is Pulsar's. A role in `auth.proxy_roles` must name an original principal, which must not be a proxy role;
any other role must not name one. Permissions are then asked of both.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

from .principal import Principal, check_role

HEADER: Final = b"x-original-principal"  # Pulsar's, of HTTP requests


class Original(msgspec.Struct, frozen=True):
    """What a client says of the principal that it acts for; credentials of that principal are `method` and `data`."""

    principal: str = ""
    method: str = ""
    data: bytes = b""

    @property
    def has_credentials(self) -> bool:
        """Whether there is something to authenticate."""
        return bool(self.data)

    def __bool__(self) -> bool:
        return bool(self.principal.strip()) or self.has_credentials


NONE: Final = Original()


class RefusedOriginalError(PenstockError):
    """FORBIDDEN: the authenticated role and the original principal do not go together."""

    def __init__(self, message: str, role: str, original: str) -> None:
        super().__init__(ErrorKind.FORBIDDEN, message)
        self.role = role
        self.original = original

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.role, self.original)


class ProxyRoles:
    """The roles that act for others, and only for others."""

    def __init__(self, roles: Iterable[str] = ()) -> None:
        self._roles = frozenset(roles)

    def __bool__(self) -> bool:
        return bool(self._roles)

    def check(self, principal: Principal, original: Original, *, same_allowed: bool = False) -> None:
        """Raise RefusedOriginalError unless `principal` may, and does as it must, act for `original`.

        `same_allowed`: a role that is not a proxy's may name itself, as requests that Pulsar's proxy passes on with
        the client's own credentials do.
        """
        role, named = principal.role, original.principal.strip()
        if role not in self._roles:
            if original and not (same_allowed and named == role and not original.has_credentials):
                raise RefusedOriginalError(
                    f"role {role!r} is not in auth.proxy_roles: it must not name an original principal",
                    role,
                    named,
                )
            return
        if not named:
            raise RefusedOriginalError(
                f"role {role!r} is in auth.proxy_roles: it must name the original principal", role, ""
            )
        if named in self._roles:
            raise RefusedOriginalError(
                f"the original principal {named[:80]!r} is in auth.proxy_roles itself", role, named
            )
        check_role(named)

    def acting(self, principal: Principal, original: Original, shown: Principal | None) -> Principal:
        """The original principal through `principal`, both checked before; `shown`: by separate credentials."""
        named = original.principal.strip()
        if shown is None:
            return Principal(named, None, "", principal)
        if shown.role != named:
            raise RefusedOriginalError(
                f"the forwarded credentials are of another role than the original principal {named[:80]!r}",
                principal.role,
                named,
            )
        return msgspec.structs.replace(shown, proxy=principal)


def named_in(headers: Iterable[tuple[bytes, bytes]]) -> Original:
    """The original principal of an HTTP request; raises BAD_PARAMETER for several, or for invalid UTF-8."""
    found = [value for name, value in headers if name == HEADER]
    if not found:
        return NONE
    if len(found) > 1:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "there is more than one X-Original-Principal")
    try:
        return Original(found[0].decode())
    except UnicodeDecodeError:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "X-Original-Principal is not UTF-8") from None
