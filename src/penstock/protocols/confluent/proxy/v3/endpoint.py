"""The endpoint of version 3."""

from typing import Final

from penstock.model.errors import PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import accepted, find_handler, not_acceptable
from penstock.protocols.confluent.failures import failed
from penstock.protocols.confluent.proxy.codes import BY_KIND, RETRIABLE
from penstock.protocols.confluent.proxy.services import Services
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.operations import Handlers

from .call import KNOWN_ERRORS, V3Call
from .groups import table as groups
from .records import table as records
from .topics import MEDIA
from .topics import table as topics

OPERATIONS: Final = (*topics, *groups, *records)


class V3Endpoint:
    """Serves `/rest/v3` and everything below it."""

    def __init__(self, proxy: Services) -> None:
        self._proxy = proxy
        self._context = proxy.context
        self._handlers = Handlers(OPERATIONS)
        self._cluster = ""  # its id, once it was asked

    async def __call__(self, exchange: Exchange) -> None:
        try:
            await self._answer(exchange)
        except ClientGoneError:
            return
        except Exception as error:
            known = KNOWN_ERRORS.get(error.kind) if isinstance(error, PenstockError) else None
            await failed(exchange, known or error, self._context, MEDIA[0], BY_KIND, RETRIABLE.code)

    async def _answer(self, exchange: Exchange) -> None:
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        handler, names = find_handler(self._handlers, exchange)
        if accepted(exchange, MEDIA) is None:
            raise not_acceptable()
        if not self._cluster:
            self._cluster = (await self._proxy.view.nodes()).cluster
        value = await handler(V3Call(caller, names, exchange, self._proxy, self._cluster))
        if isinstance(value, Answer):
            await exchange.give(value)
        elif value is not None:  # else it has answered
            await exchange.give(Answer(raw=to_json(value), headers={"content-type": MEDIA[0]}))
