"""The audit log: who was refused, and what an administrator changed. One JSON line each, without any secret.

Queries and headers are never part of it, as they may hold tokens. Refusals are bounded in number, lest somebody
without rights fill the disk.
"""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

log = logging.getLogger("penstock.audit")

REFUSALS_PER_MINUTE: Final = 600
_MINUTE_S: Final = 60.0


class Audit:
    """Writes the lines of one server."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._minute = 0.0
        self._written = 0
        self._kept_back = 0
        self.unauthenticated = self.forbidden = 0  # since the start

    def refused_credentials(self, reason: str, scope: Mapping[str, Any] | None = None) -> None:
        """Somebody could not say who they are."""
        self.unauthenticated += 1
        self._refusal("credentials refused", {"reason": reason, **_who(scope)})

    def refused_permission(self, role: str | None, action: str, where: str) -> None:
        """Somebody asked for what they may not do."""
        self.forbidden += 1
        self._refusal("permission refused", {"role": role, "action": action, "where": where})

    def changed(self, role: str | None, scope: Mapping[str, Any], status: int) -> None:
        """An administrator changed something."""
        about = {"role": role, "method": scope["method"], "path": scope["path"], "status": status}
        log.info("administered", extra={**about, **_who(scope)})

    def _refusal(self, event: str, about: dict[str, Any]) -> None:
        now = self._now()
        if now - self._minute >= _MINUTE_S:
            if self._kept_back:
                log.warning("refusals kept back", extra={"count": self._kept_back})
            self._minute, self._written, self._kept_back = now, 0, 0
        if self._written >= REFUSALS_PER_MINUTE:
            self._kept_back += 1
            return
        self._written += 1
        log.warning(event, extra=about)


def _who(scope: Mapping[str, Any] | None) -> dict[str, Any]:
    client = None if scope is None else scope.get("client")
    return {} if client is None else {"client": client[0]}
