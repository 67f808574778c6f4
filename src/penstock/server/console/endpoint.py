"""Serves `/console`: the page with its files, and below `/console/api` what only it asks.

If the console is off, its files are still served: the page at `/docs` is made of them.
"""

from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, Dialect, not_allowed
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.failure import fail
from penstock.protocols.http.operations import Operation
from penstock.protocols.http.params import Params
from penstock.protocols.rest.services import Services as RestServices
from penstock.server.metrics.pipelines import Pipelines

from . import tail
from .assets import STATIC, Assets
from .history import History
from .operations import OPERATIONS, Services

PATH: Final = "/console"
_BY_PATH: Final = {operation.path: operation for operation in OPERATIONS}


class ConsoleEndpoint:
    """The console of one server; off without a `history`. `rest` is what streams share with the REST endpoint."""

    def __init__(
        self,
        context: ServerContext,
        history: History | None,
        rest: RestServices,
        pipelines: Pipelines,
        cluster_url: str = "",
    ) -> None:
        self.assets = Assets()
        self.enabled = history is not None
        self._context = context
        self._rest = rest
        self._services = None if history is None else Services(history, pipelines, cluster_url)

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await self._serve(exchange)
        except Exception as error:
            await fail(exchange, error, self._context, Dialect.REST)

    async def _serve(self, exchange: Exchange) -> None:
        path: str = exchange.scope["path"]
        if exchange.method not in ("GET", "HEAD"):
            raise not_allowed(exchange.method, ["GET", "HEAD"])
        if path.startswith(STATIC):
            await self.assets.file(exchange, path.removeprefix(STATIC))
        elif self._services is None:
            raise PenstockError(ErrorKind.NOT_FOUND, "the console is off: console.enabled")
        elif path in (PATH, f"{PATH}/"):
            await self.assets.page(exchange)
        elif path == tail.PATH and exchange.method == "GET":
            caller, params = await self._admit(exchange, tail.OPERATION)
            await tail.tail(self._rest, caller, exchange, params)
        elif path in _BY_PATH:
            await self._answer(exchange, path, self._services)
        else:
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {path[:200]}")

    async def _answer(self, exchange: Exchange, path: str, services: Services) -> None:
        operation = _BY_PATH[path]
        caller, params = await self._admit(exchange, operation)
        body = await operation.handler(caller, services, params)
        await exchange.give(Answer(body=body, headers={"cache-control": "no-store"}))

    async def _admit(self, exchange: Exchange, operation: Operation) -> tuple[Caller, Params]:
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        return caller, Params(exchange.scope["query_string"], operation.parameters)
