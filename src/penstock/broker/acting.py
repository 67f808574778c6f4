"""For whom an engine before a cluster acts: the caller whose request or connection the running task serves.

It is a context variable, as only such an engine asks, and whatever lies between an endpoint and the engine would have to
pass it on. Tasks that are started meanwhile act for the same caller.
"""

from contextvars import ContextVar
from typing import Final

import msgspec

from penstock.model.secret import Secret


class Acting(msgspec.Struct, frozen=True):
    """A caller: its role, and its token where it showed one."""

    role: str
    token: Secret = Secret()


ACTING: Final[ContextVar[Acting | None]] = ContextVar("acting", default=None)


def acting_role() -> str:
    """The role of that caller; empty where the server acts for itself, or for all alike."""
    acting = ACTING.get()
    return "" if acting is None else acting.role
