"""Counts and times every HTTP request, writes the access log, and counts what requests carry in the allowance of
their role: one layer round all endpoints."""

import logging
from time import perf_counter
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.protocols.rates import SCOPE_KEY, Allowance
from penstock.protocols.transport import PIECE_BYTES, send_in_pieces
from penstock.runtime.statistics import SECONDS, Histogram

access = logging.getLogger("penstock.access")

# Labels are of a small set, whatever is asked for: each value is a series for ever.
_ENDPOINTS: Final = frozenset(("topics", "stages", "entries", "kafka", "admin", "lookup", "ws", "metrics"))
_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"))

NO_ANSWER: Final = 499  # the peer hung up first; the number that proxies use


class RequestMetrics:
    """An ASGI application round another, and what it counted."""

    def __init__(self, inner: ASGIApp, *, log_access: bool = False, rated: bool = False) -> None:
        """`rated`: roles have rates. Both options may change while the server runs."""
        self._inner = inner
        self.log_access = log_access
        self.rated = rated
        self.requests: dict[tuple[str, str, int], int] = {}
        self.seconds: dict[str, Histogram] = {}
        self.in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        rated = self.rated
        began = perf_counter()
        status = NO_ANSWER
        size = 0

        async def sent(event: Message) -> None:
            nonlocal status, size
            if event["type"] == "http.response.start":
                status = event["status"]
            else:
                length = len(event.get("body", b""))
                size += length
                if length > PIECE_BYTES:
                    await send_in_pieces(scope, event, send)
                    if rated:
                        await _spend(scope, event)
                    return
            await send(event)
            if rated:
                await _spend(scope, event)

        self.in_progress += 1
        try:
            await self._inner(scope, _spending(scope, receive) if rated else receive, sent)
        finally:
            self.in_progress -= 1
            self._count(scope, status, size, perf_counter() - began)

    def _count(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        path: str = scope["path"]
        end = path.find("/", 1)
        endpoint = path[1:end] if end > 0 else path[1:]
        if endpoint not in _ENDPOINTS:
            endpoint = "pages"
        method = scope["method"]
        key = (endpoint, method if method in _METHODS else "other", status)
        self.requests[key] = self.requests.get(key, 0) + 1
        histogram = self.seconds.get(endpoint)
        if histogram is None:
            histogram = self.seconds[endpoint] = Histogram(SECONDS)
        histogram.observe(seconds)
        if self.log_access:
            client = scope.get("client") or ("", 0)
            # The path alone: a query may hold a token.
            access.info(
                "request",
                extra={
                    "client": client[0],
                    "method": method,
                    "path": path,
                    "status": status,
                    "bytes": size,
                    "ms": round(seconds * 1000, 3),
                    "role": scope.get("penstock.role"),
                    **({"proxy": scope["penstock.proxy"]} if "penstock.proxy" in scope else {}),
                },
            )


def _spending(scope: Scope, receive: Receive) -> Receive:
    async def received() -> Message:
        event = await receive()
        await _spend(scope, event)
        return event

    return received


async def _spend(scope: Scope, event: Message) -> None:
    """Count a body in the role's allowance: a whole one after it was given, the parts of those that go on as fast as
    the role may have them."""
    body = event.get("body")
    allowance: Allowance | None = scope.get(SCOPE_KEY)
    if not body or allowance is None:
        return
    if event.get("more_body"):
        await allowance.spend(0, len(body))
    else:
        allowance.take(0, len(body))
