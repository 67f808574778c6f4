"""The endpoint of version 3."""

from typing import Final

from penstock.broker.cluster_view import ClusterView, Nodes
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import accepted, find_handler, not_acceptable
from penstock.protocols.confluent.failures import failed
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.operations import Handlers

from .broker_view import BrokerView
from .call import V3Call
from .groups import table as groups
from .topics import MEDIA
from .topics import table as topics

OPERATIONS: Final = (*topics, *groups)


class V3Endpoint:
    """Serves `/rest/v3` and everything below it."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._handlers = Handlers(OPERATIONS)
        self._view: ClusterView = context.broker.cluster_view or BrokerView(context)
        self._nodes: Nodes | None = None

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await exchange.give(await self._answer(exchange))
        except ClientGoneError:
            return
        except Exception as error:
            await failed(exchange, error, self._context, MEDIA[0])

    async def _answer(self, exchange: Exchange) -> Answer:
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        handler, names = find_handler(self._handlers, exchange)
        if accepted(exchange, MEDIA) is None:
            raise not_acceptable()
        value = await handler(V3Call(caller, names, exchange, b"", self._view, await self._view.nodes()))
        return Answer(raw=to_json(value), headers={"content-type": MEDIA[0]})
