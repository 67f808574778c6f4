"""The endpoint of the schema registry: the state read from the broker's documents, and requests to operations."""

import asyncio
from typing import Final

import msgspec

from penstock.broker.capability import offered
from penstock.model.confluent import ConfluentError
from penstock.model.subjects import BAD_SCHEMA
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import accepted, content_type, find_handler, not_acceptable
from penstock.protocols.confluent.failures import failed
from penstock.protocols.context import ServerContext
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.operations import Handlers

from .call import RegistryCall
from .operations import MEDIA, table
from .registry import Registry
from .subjects import Subjects
from .topics import TopicSubjects

PREFIX: Final = "/registry"
_TAKEN: Final = (*MEDIA, "application/octet-stream")
_BODY_MAX: Final = 4 << 20


class RegistryEndpoint:
    """Serves `/registry` and everything below it."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._handlers = Handlers(table)
        self._registry: Registry | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, exchange: Exchange) -> None:
        kind = accepted(exchange, MEDIA)
        try:
            await exchange.give(await self._answer(exchange, kind))
        except ClientGoneError:
            return
        except Exception as error:
            await failed(exchange, error, self._context, kind or MEDIA[0])

    async def _answer(self, exchange: Exchange, kind: str | None) -> Answer:
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        registry = await self._load()
        handler, names = find_handler(self._handlers, exchange)
        if kind is None:
            raise not_acceptable()
        body = b""
        if exchange.method in ("POST", "PUT"):
            content_type(exchange, _TAKEN)
            body = await exchange.body(min(_BODY_MAX, self._context.limits.max_request_bytes))
        call = RegistryCall(registry, caller, names, exchange, body)
        await registry.sync(call.subject if "subject" in names else None)
        try:
            value = await handler(call)
            if exchange.method in ("PUT", "DELETE"):
                self._context.audit.changed(caller.role, exchange.scope, 200, proxy=caller.proxy)
        except RecursionError:
            raise ConfluentError(BAD_SCHEMA, "Invalid schema: it is nested too deeply") from None
        if isinstance(value, Answer):
            return msgspec.structs.replace(value, headers={"content-type": kind})
        return Answer(raw=to_json(value), headers={"content-type": kind})

    async def _load(self) -> Registry:
        """The registry, whose state is read with the first request. Raises NOT_SUPPORTED, UNAVAILABLE."""
        broker, fleet = self._context.broker, self._context.fleet
        records = offered(broker.registry_records, "schema registry")
        async with self._loading:
            if self._registry is None:
                subjects = Subjects()
                await records.open(subjects.learn)
                topics = TopicSubjects(broker, subjects)
                self._registry = Registry(subjects, records, topics, "" if fleet is None else fleet.id)
        return self._registry
