"""Counts and times every HTTP request, and writes the access log."""

import logging
from typing import Final

from penstock.protocols.http.exchange import Exchange
from penstock.runtime.statistics import SECONDS, Histogram

access = logging.getLogger("penstock.access")

# Labels are of a small set, whatever is asked for: each value is a series for ever.
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))


class RequestMetrics:
    """Counters of requests. `log_access` may change while the server runs."""

    def __init__(self, *, log_access: bool = False) -> None:
        self.log_access = log_access
        self.requests: dict[tuple[str, str, int], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.in_progress = 0

    def count(self, endpoint: str, exchange: Exchange, seconds: float) -> None:
        """Count a request to `endpoint` (one of few names) that is over, after so many seconds."""
        method, status = exchange.method, exchange.status
        key = endpoint, method if method in _METHODS else "other", status
        self.requests[key] = self.requests.get(key, 0) + 1
        histogram = self.seconds.get(endpoint)
        if histogram is None:
            histogram = self.seconds[endpoint] = Histogram(SECONDS)
        histogram.observe(seconds)
        if self.log_access:
            scope = exchange.scope
            client = scope.get("client") or ("", 0)
            # The path alone: a query may hold a token.
            access.info(
                "request",
                extra={
                    "client": client[0],
                    "method": method,
                    "path": scope["path"],
                    "status": status,
                    "bytes": exchange.size,
                    "ms": round(seconds * 1000, 3),
                    "role": scope.get("penstock.role"),
                    **({"proxy": scope["penstock.proxy"]} if "penstock.proxy" in scope else {}),
                },
            )
