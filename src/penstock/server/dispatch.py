"""The one application: every request passes its counts, its checks and its span, and goes to its endpoint.

HTTP comes as an `Exchange`, from our own connections (`serve`) or from another ASGI server; WebSockets come by ASGI. An
endpoint is found by one look into a dict, so that the hot ones wait for no regular expression.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.auth.workers import Workers
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.exchange import ClientGoneError, Event, Exchange, Receive, Scope, Send

from .fleet import FleetEndpoint
from .metrics.requests import RequestMetrics
from .origins import Origins
from .refusals import refuse, refuse_upgrade
from .tracing import Tracing

log = logging.getLogger(__name__)

Endpoint = Callable[[Exchange], Awaitable[None]]
SocketEndpoint = Callable[[Scope, Receive, Send], Awaitable[None]]  # of ASGI


class AsgiExchange(Exchange):
    """A request that some ASGI server carries."""

    __slots__ = ("_receive", "_send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(scope)
        self._receive = receive
        self._send = send

    async def receive_event(self) -> Event:
        return await self._receive()

    async def send_event(self, event: Event) -> None:
        await self._send(event)


class Application:
    """Endpoints by the first segment of the path, `sockets` those for WebSocket; `pages` has everything else."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        sockets: Mapping[str, SocketEndpoint],
        pages: Endpoint,
        origins: Origins,
        requests: RequestMetrics,
        tracing: Tracing | None = None,
        fleet: FleetEndpoint | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`workers`: only they, and requests that they pass on, are served; None: every client is."""
        self._endpoints = endpoints
        self._sockets = sockets
        self._pages = pages
        self._origins = origins
        self._requests = requests
        self._tracing = tracing
        self._fleet = fleet
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self.serve(AsgiExchange(scope, receive, send))
        elif kind == "websocket":
            await self._serve_socket(scope, receive, send)
        else:
            raise NotImplementedError(
                f"no ASGI protocol {kind!r} here: the server starts and stops the broker"
            )

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request over HTTP."""
        path: str = exchange.scope["path"]
        end = path.find("/", 1)
        name = path[1:end] if end > 0 else path[1:]
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            name, endpoint = "pages", self._pages
        requests = self._requests
        began = perf_counter()
        requests.in_progress += 1
        span = None if self._tracing is None else self._tracing.begin(exchange)
        try:
            await self._answer(exchange, endpoint)
        finally:
            if exchange.unfolded_bytes:
                exchange.release()
            requests.in_progress -= 1
            requests.count(name, exchange, perf_counter() - began)
            if span is not None:
                span.end(exchange.status)

    async def _answer(self, exchange: Exchange, endpoint: Endpoint) -> None:
        scope = exchange.scope
        try:
            if exchange.forwarded is not None and self._fleet is not None:
                self._fleet.accept(exchange)  # the process that the client reached has checked its origin
            elif self._workers is not None:
                self._check_worker(self._workers, exchange)
            else:
                preflight = self._origins.check(exchange)
                if preflight is not None:
                    await exchange.give(preflight)
                    return
            await endpoint(exchange)
        except ClientGoneError:
            return
        except RefusedError as error:
            await refuse(exchange, error, error.headers)
        except PenstockError as error:
            await refuse(exchange, error)
        except Exception:
            log.exception("request failed", extra={"method": scope["method"], "path": scope["path"]})
            await refuse(exchange, PenstockError(ErrorKind.INTERNAL, "internal error"))

    def _check_worker(self, workers: Workers, exchange: Exchange) -> None:
        """Raise FORBIDDEN unless a worker asks for itself, or begins a session."""
        if not exchange.scope["path"].startswith("/fleet/") and not workers.is_own(exchange.authorization):
            raise _for_workers()

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        try:
            if self._workers is not None:
                raise _for_workers()
            self._origins.check_socket(scope)
            endpoint = self._sockets.get(path[1:].partition("/")[0])
            if endpoint is None:
                raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path}")
            await endpoint(scope, receive, send)
        except PenstockError as error:
            await refuse_upgrade(send, error)
        except Exception:
            log.exception("request failed", extra={"method": None, "path": path})
            await refuse_upgrade(send, PenstockError(ErrorKind.INTERNAL, "internal error"))


def _for_workers() -> PenstockError:
    return PenstockError(ErrorKind.FORBIDDEN, "this address is for the workers of the server alone")
