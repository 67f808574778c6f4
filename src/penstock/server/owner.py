"""What a worker does not serve itself: the process that owns the log answers, and the worker passes it on.

Publishing and WebSockets are a worker's own. Everything else is the owner's: it has the consumer instances, the administration
and the console, and the readers of logs get its bytes as they are.
"""

from typing import Final
from urllib.parse import urlsplit

from penstock.broker.fleet import Process, ProcessGoneError
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.worker import WorkerAccess
from penstock.protocols.admin.forwarding import OWN
from penstock.protocols.context import ServerContext
from penstock.protocols.forwarding import StoppingError, Waits, forward
from penstock.protocols.http.answers import error_body
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.rest.consume import NO_MESSAGES
from penstock.protocols.rest.endpoint import RestEndpoint

from .dispatch import Endpoint

WAIT_S: Final = 3600.0  # for the owner's answer to begin: the owner bounds each wait
_JSON: Final = (b"content-type", b"application/json")


class LogOwner:
    """The process that owns the log, as its workers reach it."""

    def __init__(self, access: WorkerAccess) -> None:
        """Raises BAD_PARAMETER for a secret that is too short."""
        self.fleet = ProcessFleet(access.secret)
        self._process = Process(id=access.id, url=f"http://{access.http}")
        self.fleet.learn(self._process)
        self._draining = False
        self._waits = Waits()

    async def __call__(self, exchange: Exchange) -> None:
        """Have the owner answer a request."""
        await self.answer(exchange, None)

    async def answer(self, exchange: Exchange, body: bytes | None) -> None:
        """As a call, for a request whose body was read. Raises UNAVAILABLE while the owner cannot be reached, and once this
        process stops."""
        if self._draining:
            raise _draining()
        try:
            async with self._waits.hold(exchange):
                await forward(self.fleet, self._process.id, exchange, WAIT_S, body)
        except ProcessGoneError as error:
            raise PenstockError(ErrorKind.UNAVAILABLE, str(error)) from None
        except StoppingError:
            path: str = exchange.scope["path"]
            empty = _empty(path.rstrip("/"))
            if empty is None:
                raise _draining() from None
            await exchange.answer(empty)

    def drain(self) -> None:
        """End every wait: for what only reads, unless its answer has begun. Everything else is finished."""
        self._draining = True
        self._waits.end(lambda exchange: exchange.method == "GET" and not exchange.started)


def _empty(path: str) -> bytes | None:
    """What a fetch by a consumer instance answers that finds nothing; None for other requests."""
    if "/consumer/" in path and path.endswith("/messages"):
        return NO_MESSAGES
    return b"[]" if "/instances/" in path and path.endswith("/records") else None


def _draining() -> PenstockError:
    return PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down")


def publishing(rest: RestEndpoint, owner: LogOwner) -> Endpoint:
    """Serves `/topics`: publishes here, everything else by the owner."""

    async def serve(exchange: Exchange) -> None:
        await (rest if rest.publishes(exchange) else owner)(exchange)

    return serve


def own_statistics(admin: Endpoint, owner: LogOwner) -> Endpoint:
    """Serves `/admin`: the statistics of this process's WebSockets here, everything else by the owner."""

    async def serve(exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        await (admin if path == OWN or path.startswith(f"{OWN}/") else owner)(exchange)

    return serve


def own_metrics(context: ServerContext, metrics: Endpoint, owner: LogOwner) -> Endpoint:
    """Serves `/metrics`: this process's at its own address, the owner's at the shared one."""

    async def serve(exchange: Exchange) -> None:
        reached = exchange.scope.get("server") or ("", None)
        own = urlsplit(context.own_url).port
        await (metrics if reached[1] == own else owner)(exchange)

    return serve


def pages(context: ServerContext, owner: LogOwner) -> Endpoint:
    """Serves paths outside the endpoints: `/health/live` here, everything else by the owner. A worker is ready if the owner is,
    and the worker is not stopping."""

    async def serve(exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        if path == "/fleet" or path.startswith("/fleet/"):  # sessions of processes, not of clients
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path[:200]}")
        if path == "/health/live" and exchange.method in ("GET", "HEAD"):
            await exchange.whole(200, [_JSON], b'{"status":"ok"}')
        elif path == "/health/ready" and context.draining:
            body = error_body(ErrorKind.UNAVAILABLE, "the server is shutting down")
            await exchange.whole(503, [_JSON], body)
        else:
            await owner(exchange)

    return serve
