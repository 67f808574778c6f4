"""Consumer instances over HTTP: create, fetch, delete (PIP-64, Consume messages)."""

import asyncio
from functools import partial
from typing import Final
from urllib.parse import quote

import msgspec

from penstock.codec.lookup import codec_for
from penstock.engines.embedded.broker import Broker
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName, check_local
from penstock.model.policy import ConsumerOptions, DeadLetter, SubscriptionType
from penstock.model.schema import SchemaInfo
from penstock.protocols.caller import Caller, client_of
from penstock.protocols.declarations import Declaration, declared
from penstock.protocols.http.answers import JSON_TYPE, NO_CONTENT, to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll, LongPolls
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Params
from penstock.protocols.limits import Limits
from penstock.protocols.values import Values

from .answer_shapes import FetchAnswer
from .consume_shapes import ConsumerAnswer, ConsumerRequest, consumer_request
from .decoding import Decoding
from .fetch import Fetch
from .instances import Instance, Instances
from .messages import encode_messages
from .operations import ALWAYS, BOUNDS, CONSUMING, SHIPPED, TIMEOUT, TOPIC
from .produce_shapes import decoded
from .read import DEFAULT_MESSAGES, FORMS
from .target import Target

FETCH: Final = (TIMEOUT, *BOUNDS)
DEFAULT_TIMEOUT_MS: Final = 1000  # a fetch that does not say waits a little, as Kafka's REST proxy does

_CONSUMER: Final = (
    "/subscription/{subscription}/consumer/{consumer_id}",
    "/subscription/{subscription}/consumers/{consumer_id}",
)


class Consume:
    """Consumer requests."""

    operations: Final = Table("consume", TOPIC, SHIPPED)

    def __init__(
        self, broker: Broker, limits: Limits, waits: LongPolls, instances: Instances, decoding: Decoding
    ) -> None:
        self._decoding = decoding
        self._broker = broker
        self._limits = limits
        self._waits = waits
        self._instances = instances

    @operations.on(
        "POST",
        "/subscription/{subscription}",
        summary="Create a consumer instance.",
        request=ConsumerRequest,
        request_needed=False,
        answer=ConsumerAnswer,
        errors=(
            *ALWAYS,
            ErrorKind.TOPIC_NOT_FOUND,
            ErrorKind.CONSUMER_BUSY,
            ErrorKind.SUBSCRIPTION_BUSY,
            ErrorKind.INCOMPATIBLE_SCHEMA,
            ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
            ErrorKind.NEEDS_VALUE_SCHEMA,
            ErrorKind.BAD_KEY_SCHEMA,
            ErrorKind.BAD_VALUE_SCHEMA,
            ErrorKind.BAD_JSON,
            ErrorKind.TOO_MANY_REQUESTS,
        ),
    )
    async def create(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_consume(target.topic, target.subscription)
        body = await exchange.body(self._limits.max_request_bytes)
        wanted = decoded(consumer_request, body or b"{}")
        found = (
            None
            if wanted.id is None
            else self._instances.find(wanted.id, target.topic, target.subscription, caller.role)
        )
        if found is None:
            options = msgspec.structs.replace(
                consumer_options(target.topic, wanted), client=client_of(exchange.scope)
            )
            caller.may_dead_letter(target.topic, target.subscription, options.dead_letter)
            reader = self._reader(target.topic, wanted)
            timeout_ms = wanted.consumer_timeout_ms or self._limits.consumer_timeout_ms
            found = await self._instances.create(
                target.topic,
                target.subscription,
                options,
                reader,
                timeout_ms,
                caller.role,
                caller.proxy,
            )
        version = None if found.reader is None else self._broker.schemas.find(target.topic.base, found.reader)
        answer = ConsumerAnswer(
            id=found.id,
            base_uri=base_uri(exchange, target, found),
            name=found.consumer.name,
            schema_version=version,
            consumer_timeout_ms=found.timeout_ms,
        )
        await exchange.answer(to_json(answer))

    def _reader(self, topic: TopicName, wanted: ConsumerRequest) -> SchemaInfo | None:
        """The schema a consumer reads by; raises INCOMPATIBLE_SCHEMA where it cannot read the topic's newest."""
        if wanted.schema_version is not None:
            try:
                return self._broker.schemas.version(topic.base, wanted.schema_version).schema
            except PenstockError as error:
                raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, error.message) from None
        schema = declared(
            Declaration(
                schema_type=wanted.schema_type,
                key_schema=wanted.key_schema,
                value_schema=wanted.value_schema,
                key_value_encoding=wanted.key_value_encoding,
            )
        )
        if schema is not None:
            self._broker.schemas.check(topic.base, schema)
            newest = self._broker.schemas.latest(topic.base)
            if newest is not None:
                codec_for(newest.schema, schema)
        return schema

    @operations.on(
        "DELETE",
        *_CONSUMER,
        summary="Remove a consumer instance; what it had goes to the others.",
        status=204,
        errors=(*CONSUMING, ErrorKind.CONSUMER_NOT_FOUND),
    )
    async def delete(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_consume(target.topic, target.subscription)
        found = self._instances.get(target.consumer, target.topic, target.subscription, caller.role)
        await self._instances.remove(found)
        await exchange.give(NO_CONTENT)

    @operations.on(
        "GET",
        *(f"{path}/messages" for path in _CONSUMER),
        summary="Fetch messages.",
        parameters=FETCH,
        answer=FetchAnswer,
        errors=(*CONSUMING, ErrorKind.CONSUMER_NOT_FOUND),
    )
    async def fetch(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        """What is handed out and not written is given back at once."""
        caller.may_consume(target.topic, target.subscription)
        params = Params(exchange.scope["query_string"], FETCH)
        timeout = params.number("timeout", most=self._limits.max_wait_ms)
        messages_max = params.number("max_messages") or DEFAULT_MESSAGES
        bytes_max = params.number("max_bytes") or self._limits.max_read_bytes
        form = next(form for form in FORMS if form == params.choice("encoding"))
        found = self._instances.get(target.consumer, target.topic, target.subscription, caller.role)
        found.asking += 1
        try:
            async with LongPoll(self._waits, exchange.receive) as poll:
                poll.watch(caller, partial(caller.may_consume, target.topic, target.subscription))
                fetched = Fetch(
                    self._decoding,
                    found.consumer,
                    Values(self._broker.schemas, target.topic, found.reader, form),
                    min(messages_max, self._limits.max_read_messages),
                    min(bytes_max, self._limits.max_read_bytes),
                )
                wait_ms = DEFAULT_TIMEOUT_MS if timeout is None else timeout
                if found.turn.locked() and not await poll.until(_free(found.turn), wait_ms):
                    await exchange.answer(b'{"messages":[]}')
                    return
                async with found.turn:
                    await fetched.run(poll, wait_ms)
                if poll.lapsed is not None:
                    fetched.give_back()
                    raise poll.lapsed
                await self._hand_out(exchange, poll, fetched)
        finally:
            found.asking -= 1
            self._instances.find(found.id, target.topic, target.subscription, caller.role)

    @staticmethod
    async def _hand_out(exchange: Exchange, poll: LongPoll, fetched: Fetch) -> None:
        if not fetched.found and fetched.consumer.close_reason is not None:
            raise fetched.consumer.close_reason
        body = b'{"messages":' + encode_messages(fetched.found) + b"}"
        taken = False
        try:
            await exchange.head(200, JSON_TYPE, (b"content-length", b"%d" % len(body)))
            await exchange.part(body)
            await exchange.part(b"")  # servers wait for a slow client before the next part, not after one
            taken = await poll.client_took_it()
        finally:
            if not taken:
                fetched.give_back()
        await exchange.end()


def consumer_options(topic: TopicName, wanted: ConsumerRequest) -> ConsumerOptions:
    """Core's options; raises BAD_PARAMETER, INVALID_NAME."""
    kind = SubscriptionType.named(wanted.subscription_type or "Exclusive")
    if kind is None:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"subscription_type must be one of {', '.join(t.value for t in SubscriptionType)}",
        )
    letter = None
    if wanted.max_redeliver_count is not None:
        name = wanted.dead_letter_topic or ""
        if name:
            name = str(TopicName.parse(name) if "/" in name else topic.base.sibling(name))
        letter = DeadLetter(wanted.max_redeliver_count, name)
    elif wanted.dead_letter_topic is not None:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "dead_letter_topic needs max_redeliver_count")
    return ConsumerOptions(
        name="" if wanted.name is None else check_local("consumer", wanted.name),
        type=kind,
        durable=wanted.durable,
        start=EARLIEST if wanted.initial_position.lower() == "earliest" else LATEST,
        priority=wanted.priority_level,
        window=wanted.receiver_queue_size,
        flow=True,
        ack_timeout_ms=wanted.ack_timeout_ms,
        nack_delay_ms=wanted.negative_ack_redelivery_delay_ms,
        dead_letter=letter,
    )


def base_uri(exchange: Exchange, target: Target, instance: Instance) -> str:
    """Where an instance is asked for: absolute where the request tells how the server is reached."""
    topic = target.topic
    parts = [topic.tenant, topic.namespace, topic.local]
    if target.shipped:
        parts.insert(0, topic.domain)
    parts += ["subscription", target.subscription, "consumer", instance.id]
    path = "/topics/" + "/".join(quote(part, safe="") for part in parts)
    host = exchange.header(b"host")
    root = exchange.scope.get("root_path", "")
    return f"{exchange.scope.get('scheme', 'http')}://{host}{root}{path}" if host else root + path


async def _free(turn: asyncio.Lock) -> bool:
    """Wait until nobody has the turn; somebody else may be quicker, which costs no more than their turn."""
    async with turn:
        return True
