"""The audit log: refused callers, and what an administrator changed. One JSON line each, without any secret.

Queries and headers are never part of it, as they may hold tokens. Refusals are bounded in number, lest a client
without rights fill the disk.
"""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

log = logging.getLogger("penstock.audit")

REFUSALS_PER_MINUTE: Final = 600
INTERVAL_S: Final = 60.0  # of a `LogLimit`


class LogLimit:
    """Bounds log lines that any client can cause: at most `most` of one kind in a minute, the others are counted."""

    def __init__(self, most: int, now: Callable[[], float] = monotonic) -> None:
        self._most = most
        self._now = now
        self._began = float("-inf")
        self._written = 0
        self._suppressed = 0

    def admit(self) -> bool:
        """Count a line; whether to write it."""
        now = self._now()
        if now - self._began >= INTERVAL_S:
            self._began, self._written = now, 0
        if self._written < self._most:
            self._written += 1
            return True
        self._suppressed += 1
        return False

    def suppressed(self) -> int:
        """How many were not written, once: 0 until the interval in which that was is over."""
        if not self._suppressed or self._now() - self._began < INTERVAL_S:
            return 0
        count, self._suppressed = self._suppressed, 0
        return count


class Audit:
    """Writes the lines of one server."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._limit = LogLimit(REFUSALS_PER_MINUTE, now)
        self.unauthenticated = self.forbidden = 0  # since the start

    def refused_credentials(self, reason: str, scope: Mapping[str, Any] | None = None) -> None:
        """A client could not authenticate."""
        self.unauthenticated += 1
        self._refusal("credentials refused", {"reason": reason, **_who(scope)})

    def refused_permission(
        self, role: str | None, action: str, where: str, *, proxy: str | None = None
    ) -> None:
        """A role asked for what it may not do; `proxy`: the role that asked for `role`."""
        self.forbidden += 1
        about = {"role": role, "action": action, "where": where}
        self._refusal("permission refused", {**about, **_through(proxy)})

    def changed(
        self, role: str | None, scope: Mapping[str, Any], status: int, *, proxy: str | None = None
    ) -> None:
        """An administrator changed something; `proxy`: the role that did it for `role`."""
        about = {"role": role, "method": scope["method"], "path": scope["path"], "status": status}
        log.info("administered", extra={**about, **_through(proxy), **_who(scope)})

    def _refusal(self, event: str, about: dict[str, Any]) -> None:
        self.tell()
        if self._limit.admit():
            log.warning(event, extra=about)

    def tell(self) -> None:
        """Write the number of suppressed refusals, if their minute is over; also called at intervals."""
        count = self._limit.suppressed()
        if count:
            log.warning("refusals kept back", extra={"count": count})


def _through(proxy: str | None) -> dict[str, Any]:
    return {} if proxy is None else {"proxy": proxy}


def _who(scope: Mapping[str, Any] | None) -> dict[str, Any]:
    client = None if scope is None else scope.get("client")
    return {} if client is None else {"client": client[0]}
