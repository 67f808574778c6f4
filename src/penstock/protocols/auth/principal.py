"""Somebody whose credentials were verified."""

from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

ROLE_CHARACTERS_MAX: Final = 256


class Principal(msgspec.Struct, frozen=True, gc=False):
    """A role, by which `method` it was shown, and until when (ms since the epoch; None: without end)."""

    role: str
    expires_ms: int | None = None
    method: str = ""


def check_role(role: str) -> str:
    """Return a role's name, or raise UNAUTHENTICATED for what can be none."""
    if not role.strip() or len(role) > ROLE_CHARACTERS_MAX or not role.isprintable():
        raise PenstockError(ErrorKind.UNAUTHENTICATED, "the credentials name no role that could be one")
    return role
