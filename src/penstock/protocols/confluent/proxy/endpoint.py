"""The endpoint of the REST proxy: requests to operations, and their errors with the proxy's codes."""

from collections.abc import Awaitable, Callable

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import content_type, find_handler, not_acceptable
from penstock.protocols.confluent.failures import failed
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.operations import Handlers

from .call import ProxyCall, not_found
from .codes import BY_KIND, RETRIABLE
from .formats import MEDIA, TAKEN, accepted
from .operations import table
from .services import Services


class ProxyEndpoint:
    """Serves `/rest` and everything below it. `load` gives the schema registry, `url` is where clients reach the proxy (empty: as they
    came)."""

    def __init__(
        self, context: ServerContext, load: Callable[[], Awaitable[Registry]], url: str = ""
    ) -> None:
        self.services = Services(context, load, url)
        self._context = context
        self._handlers = Handlers(table)

    async def __call__(self, exchange: Exchange) -> None:
        kind = accepted(exchange)
        names: dict[str, str] = {}
        try:
            answer = await self._answer(exchange, kind, names)
            if answer is not None:
                await exchange.give(answer)
        except ClientGoneError:
            return
        except Exception as error:
            await failed(
                exchange, _worded(error, names), self._context, kind or MEDIA[0], BY_KIND, RETRIABLE.code
            )

    async def _answer(self, exchange: Exchange, kind: str | None, names: dict[str, str]) -> Answer | None:
        """None if the operation has answered. `names` becomes what stands in the path."""
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        handler, found = find_handler(self._handlers, exchange)
        names |= found
        if kind is None:
            raise not_acceptable()
        media = content_type(exchange, TAKEN) if exchange.method == "POST" else None
        body = await exchange.body(self._context.limits.max_request_bytes)
        value = await handler(ProxyCall(self.services, caller, names, exchange, body, media))
        if value is None:
            return None
        if isinstance(value, Answer):
            return msgspec.structs.replace(value, headers={"content-type": kind, **value.headers})
        return Answer(raw=to_json(value), headers={"content-type": kind})


def _worded(error: Exception, names: dict[str, str]) -> Exception:
    """An error of the broker with the text that clients know."""
    if isinstance(error, PenstockError):
        if error.kind is ErrorKind.TOPIC_NOT_FOUND and "topic" in names:
            return PenstockError(error.kind, not_found(names["topic"]))
        if error.kind is ErrorKind.PARTITION_NOT_FOUND:
            return PenstockError(error.kind, "Partition not found.")
    return error
