"""What a server says of itself: a welcome, its health, and its interface for people and for programs."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from penstock import __version__
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import error_body
from penstock.protocols.http.exchange import Exchange

Page = tuple[int, str, bytes]

_JSON = "application/json"
_HTML = "text/html; charset=utf-8"


class Pages:
    """Serves everything that is no endpoint."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._pages: dict[str, Callable[[str], Page]] = {
            "/": self._welcome,
            "/health/live": lambda _: (200, _JSON, b'{"status":"ok"}'),
            "/health/ready": self._ready,
            "/openapi.json": lambda _: (200, _JSON, self._openapi),
            "/asyncapi.json": lambda _: (200, _JSON, self._asyncapi),
            "/docs": lambda _: (200, _HTML, self._reference),
        }

    async def __call__(self, exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        page = self._pages.get(path)
        if page is None:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path}")
        if exchange.method not in ("GET", "HEAD"):
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, f"{exchange.method} is not for {path}")
        status, kind, body = page(exchange.header(b"accept") or "")
        headers = [
            (b"content-type", kind.encode()),
            (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await exchange.whole(status, headers, body)

    def _welcome(self, accept: str) -> Page:
        if re.search(r"\btext/html\b", accept):
            from .reference import welcome

            return 200, _HTML, welcome(__version__).encode()
        body = {
            "penstock": __version__,
            "rest": "/topics/{tenant}/{namespace}/{topic}",
            "websocket": "/ws/v2/{producer|consumer|reader}/persistent/{tenant}/{namespace}/{topic}",
            "admin": "/admin/v2",
            "docs": "/docs",
            "openapi": "/openapi.json",
            "asyncapi": "/asyncapi.json",
            "health": ["/health/live", "/health/ready"],
        }
        return 200, _JSON, msgspec.json.encode(body)

    def _ready(self, accept: str) -> Page:
        if self._context.draining:
            return 503, _JSON, error_body(ErrorKind.UNAVAILABLE, "the server is shutting down")
        cluster = self._context.broker.cluster
        if cluster is not None and cluster.problem is not None:
            body = {
                "status": "not ready",
                "error_code": ErrorKind.UNAVAILABLE.codes.code,
                "reason": "cluster_unreachable",
                "message": cluster.problem,
            }
            return 503, _JSON, msgspec.json.encode(body)
        storage = self._context.broker.storage
        if storage.failing:
            return 503, _JSON, msgspec.json.encode({"status": "not ready", **storage.readiness()})
        # At its configured bound a server is well: taken out of service, it could not be emptied by its consumers.
        return 200, _JSON, msgspec.json.encode({"status": "ready", **storage.readiness()})

    @cached_property
    def _document(self) -> dict[str, Any]:
        from .reference import openapi  # here, as above and below: a server that is not asked starts without

        return openapi(self._context)

    @cached_property
    def _openapi(self) -> bytes:
        return msgspec.json.encode(self._document)

    @cached_property
    def _asyncapi(self) -> bytes:
        from .reference import asyncapi

        return msgspec.json.encode(asyncapi())

    @cached_property
    def _reference(self) -> bytes:
        from .reference import render

        return render(self._document).encode()
