"""What a server says of itself: a welcome, its health, and its interface for people and for programs."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import msgspec

from penstock import __version__
from penstock.broker.cluster import ClusterFigures
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import error_body
from penstock.protocols.http.exchange import Exchange

from .console.assets import SECURITY
from .console.endpoint import ConsoleEndpoint
from .console.welcome import welcome

Page = tuple[int, str, bytes]

_JSON = "application/json"
_HTML = "text/html; charset=utf-8"
_DOCS = "/docs"


class Pages:
    """Serves all other paths: pages and documents."""

    def __init__(self, context: ServerContext, console: ConsoleEndpoint) -> None:
        self._context = context
        self._console = console
        self._pages: dict[str, Callable[[Exchange], Page]] = {
            "/": self._welcome,
            "/health/live": lambda _: (200, _JSON, b'{"status":"ok"}'),
            "/health/ready": self._ready,
            "/openapi.json": lambda _: (200, _JSON, self._openapi),
            "/asyncapi.json": self._asyncapi,
        }

    async def __call__(self, exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        page = self._pages.get(path)
        if page is None and path != _DOCS:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path}")
        if exchange.method not in ("GET", "HEAD"):
            raise PenstockError(ErrorKind.METHOD_NOT_ALLOWED, f"{exchange.method} is not for {path}")
        if page is None:
            await self._console.assets.page(exchange)
            return
        status, kind, body = page(exchange)
        await exchange.whole(status, [(b"content-type", kind.encode()), *SECURITY], body)

    def _welcome(self, exchange: Exchange) -> Page:
        if re.search(r"\btext/html\b", exchange.header(b"accept") or ""):
            return 200, _HTML, welcome(exchange, self._context.pulsar_url, console=self._console.enabled)
        body = {
            "penstock": __version__,
            "rest": "/topics/{tenant}/{namespace}/{topic}",
            "websocket": "/ws/v2/{producer|consumer|reader}/persistent/{tenant}/{namespace}/{topic}",
            "admin": "/admin/v2",
            **({"console": "/console"} if self._console.enabled else {}),
            "docs": _DOCS,
            "openapi": "/openapi.json",
            "asyncapi": "/asyncapi.json",
            "health": ["/health/live", "/health/ready"],
        }
        return 200, _JSON, msgspec.json.encode(body)

    def _ready(self, exchange: Exchange) -> Page:
        if self._context.draining:
            return 503, _JSON, error_body(ErrorKind.UNAVAILABLE, "the server is shutting down")
        cluster = self._context.broker.cluster
        figures = ClusterFigures() if cluster is None else cluster.figures()
        if figures.problem is not None:
            body = {
                "status": "not ready",
                "error_code": ErrorKind.UNAVAILABLE.codes.code,
                "reason": "cluster_unreachable",
                "message": figures.problem,
            }
            return 503, _JSON, msgspec.json.encode(body)
        ownership = figures.ownership
        if ownership is not None and ownership.refusal:
            body = {
                "status": "not ready",
                "error_code": ErrorKind.UNAVAILABLE.codes.code,
                "reason": "subscriptions_refused",
                "message": f"this process can serve no subscriptions: {ownership.refusal}",
            }
            return 503, _JSON, msgspec.json.encode(body)
        storage = self._context.broker.storage
        if storage.failing:
            return 503, _JSON, msgspec.json.encode({"status": "not ready", **storage.readiness()})
        # At its configured bound a server is well: taken out of service, it could not be emptied by its consumers.
        # A restart does not mend failing background work either: it is only counted, without names, as anyone may ask.
        failing = {
            kind.value: count for kind, count in self._context.broker.failures.counts().items() if count
        }
        warnings: dict[str, object] = {"failing": failing} if failing else {}
        fleet = self._context.fleet
        if fleet is not None and fleet.problem is not None:
            # Publishing and reading work, and other processes may have the same problem: all of them would be out of service.
            warnings["processes"] = fleet.problem
        return 200, _JSON, msgspec.json.encode({"status": "ready", **storage.readiness(), **warnings})

    @cached_property
    def _document(self) -> dict[str, Any]:
        from .reference import openapi  # here, as above and below: a server that is not asked starts without

        return openapi(self._context)

    @cached_property
    def _openapi(self) -> bytes:
        return msgspec.json.encode(self._document)

    @cached_property
    def _sockets(self) -> dict[str, Any]:
        from .reference import asyncapi

        return asyncapi()

    def _asyncapi(self, exchange: Exchange) -> Page:
        from penstock.protocols.websocket.asyncapi import servers

        return 200, _JSON, msgspec.json.encode({**self._sockets, "servers": servers(exchange.address)})
