"""The endpoint of the schema registry: the state read from the broker's documents, and requests to operations."""

import asyncio
from typing import Final

import msgspec

from penstock.broker.capability import offered
from penstock.broker.fleet import ProcessGoneError
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.model.subjects import BAD_SCHEMA, topic_of
from penstock.protocols.caller import Caller
from penstock.protocols.confluent.content import accepted, content_type, find_handler, not_acceptable
from penstock.protocols.confluent.failures import failed
from penstock.protocols.context import ServerContext
from penstock.protocols.forwarding import forward
from penstock.protocols.http.answers import Answer, to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.operations import Handlers

from .call import RegistryCall, sees
from .kept import KeptAnswers, key_of
from .operations import known, knows
from .passing import pass_on
from .registry import Registry
from .subjects import Subjects
from .table import MEDIA, rights, table, writing
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
        self._kept = KeptAnswers()
        if context.broker.registry_records is not None:
            context.broker.registry_records.number_schemas = self._number_schemas

    async def __call__(self, exchange: Exchange) -> None:
        try:
            answer = await self._answer(exchange)
            if answer is not None:
                await exchange.give(answer)
        except ClientGoneError:
            return
        except Exception as error:
            await failed(exchange, error, self._context, accepted(exchange, MEDIA) or MEDIA[0])

    async def _answer(self, exchange: Exchange) -> Answer | None:
        """The answer; None if another process gave it."""
        caller = await Caller.admit(self._context, exchange.authorization, exchange.scope)
        other = self._context.broker.other_registry
        registry = (self._registry or await self.load()) if other is None else None
        key = None
        if registry is not None and exchange.method == "GET":
            key = key_of(exchange)
            kept = self._kept.find(key, registry.revision)
            if kept is not None and sees(caller, topic_of(kept.subject)):
                return kept.answer
        handler, names = find_handler(self._handlers, exchange)
        kind = accepted(exchange, MEDIA)
        if kind is None:
            raise not_acceptable()
        body = b""
        if exchange.method in ("POST", "PUT"):
            content_type(exchange, _TAKEN)
            body = await exchange.body(min(_BODY_MAX, self._context.limits.max_request_bytes))
        call = RegistryCall(
            registry, caller, names, exchange, body, topic_of if other is None else other.topic_of
        )
        try:
            if handler in rights:
                rights[handler](call)
            if registry is None:
                answer = await pass_on(offered(other, "schema registry"), self._context, call, handler)
            else:
                if not knows(call):
                    await registry.sync(call.subject if "subject" in names else None)
                value = known(call, handler)
                if value is None:
                    if handler in writing and await self._passed(exchange, body):
                        return None
                    value = await handler(call)
                answer = value if isinstance(value, Answer) else Answer(raw=to_json(value))
                answer = msgspec.structs.replace(answer, headers={"content-type": kind})
                if key is not None and call.shown is not None:
                    self._kept.keep(key, call.shown, answer)
            if exchange.method in ("PUT", "DELETE") and answer.status < 400:
                self._context.audit.changed(caller.role, exchange.scope, 200, proxy=caller.proxy)
        except RecursionError:
            raise ConfluentError(BAD_SCHEMA, "Invalid schema: it is nested too deeply") from None
        return answer

    async def _passed(self, exchange: Exchange, body: bytes) -> bool:
        """Whether the process that wrote last answered: it goes on being the writer, as another one has to take over first."""
        fleet, records = self._context.fleet, self._context.broker.registry_records
        if fleet is None or records is None or exchange.forwarded is not None:
            return False
        if records.writer not in fleet.counts:
            return False
        try:
            await forward(fleet, records.writer, exchange, body=body)
        except (ProcessGoneError, PenstockError):  # this one takes over
            if exchange.started:
                raise
            return False
        return True

    async def _number_schemas(self) -> None:
        await (await self.load()).sync()

    async def load(self) -> Registry:
        """The registry, whose state is read with the first request. Raises NOT_SUPPORTED, UNAVAILABLE."""
        broker, fleet = self._context.broker, self._context.fleet
        records = offered(broker.registry_records, "schema registry")
        async with self._loading:
            if self._registry is None:
                await records.catch_up()  # fails before there is something that learns
                subjects = Subjects()
                await records.open(subjects.learn)
                topics = TopicSubjects(broker, subjects)
                self._registry = Registry(subjects, records, topics, "" if fleet is None else fleet.id)
        return self._registry
