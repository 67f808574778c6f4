"""For whom an engine before a cluster acts: the caller whose request or connection the running task serves.

It is a context variable, as only such an engine asks, and whatever lies between an endpoint and the engine would have to
pass it on. Tasks that are started within it act for the same caller.
"""

from contextvars import ContextVar
from hashlib import sha256
from typing import Final

import msgspec

from penstock.model.secret import Secret


class Acting(msgspec.Struct, frozen=True):
    """A caller: its role, and its own token if the cluster is reached with callers' tokens; never a proxy's token. `proxy` is the
    role of the proxy that it came through."""

    role: str
    token: Secret = Secret()
    proxy: str | None = None

    @property
    def key(self) -> str:
        """The key of the caller's connections and producers in the cluster: the role, its proxy, and a digest of the token."""
        if not self.token:
            return self.role if self.proxy is None else f"{self.role}\0\0{self.proxy}"
        return f"{self.role}\0{sha256(self.token.reveal().encode()).hexdigest()}"


ACTING: Final[ContextVar[Acting | None]] = ContextVar("acting", default=None)


# Whether the running task serves another process of the service: what this process does not have is not asked of a third one.
FOR_PROCESS: Final[ContextVar[bool]] = ContextVar("for_process", default=False)


def acting_key() -> str:
    """The key of the current caller; empty if the server acts for itself, or for all callers alike."""
    acting = ACTING.get()
    return "" if acting is None else acting.key
