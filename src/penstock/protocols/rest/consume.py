"""Consumer instances over HTTP: create, fetch, delete (PIP-64, Consume messages)."""

import asyncio
from functools import partial
from typing import Annotated, Final, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from penstock.broker.schemas import Schemas
from penstock.codec.lookup import codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName, check_local
from penstock.model.policy import ConsumerOptions, DeadLetter, SubscriptionType
from penstock.model.schema import SchemaInfo
from penstock.protocols.caller import Caller
from penstock.protocols.clients import client_of
from penstock.protocols.declarations import Declaration, declared
from penstock.protocols.group_start import ensure_at_group
from penstock.protocols.http.answers import JSON_TYPE, NO_CONTENT, to_json
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Params
from penstock.protocols.values import Values

from .encoding import Encoding
from .instances import Fetch, Instance
from .messages import DEFAULT_MESSAGES, ReadMessage, form_of
from .operations import ALWAYS, BOUNDS, CONSUMING, INSTANCE, SHIPPED, TIMEOUT, TOPIC, Ms, Target
from .partition import Answered
from .parts import Bounds
from .prepared import Prepared, write_all
from .services import Services

FETCH: Final = (TIMEOUT, *BOUNDS)
GROUP_MAX: Final = 255  # characters of a consumer group's name
DEFAULT_TIMEOUT_MS: Final = 1000  # a fetch that does not say waits a little, as Kafka's REST proxy does


class GroupPosition(Struct, frozen=True, forbid_unknown_fields=True):
    """The position of a consumer group of Kafka."""

    group: Annotated[str, Meta(min_length=1, max_length=GROUP_MAX)]


class ConsumerRequest(Declaration, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of a consumer instance. Schema fields name the schema that its messages are read by.

    `id` is one given by an earlier answer: while that instance lives, it is the answer again. `initial_position` counts if the
    subscription is new.
    """

    name: str | None = None
    id: str | None = None
    subscription_type: str | None = None
    initial_position: Literal["earliest", "latest", "Earliest", "Latest"] | GroupPosition = "latest"
    durable: bool = True
    priority_level: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    receiver_queue_size: Annotated[int, Meta(ge=1, le=50_000)] = 1000
    ack_timeout_ms: Ms = 0
    negative_ack_redelivery_delay_ms: Ms = 60_000
    max_redeliver_count: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    dead_letter_topic: str | None = None
    consumer_timeout_ms: Annotated[int, Meta(ge=1, le=2**40)] | None = None


class ConsumerAnswer(Struct, kw_only=True):
    """A consumer instance; `schema_version` is the topic's version of the schema it reads by, if it is one."""

    id: str
    base_uri: str
    name: str
    schema_version: int | None
    consumer_timeout_ms: int


class FetchAnswer(Struct):
    """Messages to acknowledge."""

    messages: list[ReadMessage]


NO_MESSAGES: Final = b'{"messages":[]}'
_request: Final = msgspec.json.Decoder(ConsumerRequest)


operations: Final = Table("consume", TOPIC, SHIPPED)


@operations.on(
    "POST",
    "/subscription/{subscription}",
    summary="Create a consumer instance.",
    request=ConsumerRequest,
    request_needed=False,
    answer=ConsumerAnswer,
    errors=(
        *ALWAYS,
        ErrorKind.MISDIRECTED,
        ErrorKind.CONSUMER_NOT_FOUND,
        ErrorKind.TOPIC_NOT_FOUND,
        ErrorKind.CONSUMER_BUSY,
        ErrorKind.SUBSCRIPTION_BUSY,
        ErrorKind.NOT_SUPPORTED,
        ErrorKind.INCOMPATIBLE_SCHEMA,
        ErrorKind.NEEDS_KEY_VALUE_SCHEMA,
        ErrorKind.NEEDS_VALUE_SCHEMA,
        ErrorKind.BAD_KEY_SCHEMA,
        ErrorKind.BAD_VALUE_SCHEMA,
        ErrorKind.BAD_JSON,
        ErrorKind.TOO_MANY_REQUESTS,
    ),
)
async def create(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    topic, subscription, limits = target.topic, target.subscription, rest.limits
    caller.may_consume(topic, subscription)
    body = await exchange.body(limits.max_request_bytes)
    wanted = exchange.decoded(body, _request, b"{}")
    found = None
    if wanted.id is not None:
        found = rest.instances.find(wanted.id, topic, subscription, caller.role)
        if found is None and await _recreated(rest, wanted.id, exchange, body):
            return
    if found is None:
        options = msgspec.structs.replace(consumer_options(topic, wanted), client=client_of(exchange.scope))
        caller.may_dead_letter(topic, subscription, options.dead_letter)
        reader = _reader(rest.broker.schemas, topic.base, wanted)
        if isinstance(wanted.initial_position, GroupPosition):
            await ensure_at_group(rest.broker, topic, subscription, wanted.initial_position.group)
        timeout_ms = wanted.consumer_timeout_ms or limits.consumer_timeout_ms
        found = await rest.instances.create(topic, subscription, options, reader, timeout_ms, caller)
    version = None if found.reader is None else rest.broker.schemas.find(topic.base, found.reader)
    answer = ConsumerAnswer(
        id=found.id,
        base_uri=_base_uri(rest, exchange, target, found),
        name=found.consumer.name,
        schema_version=version,
        consumer_timeout_ms=found.timeout_ms,
    )
    await exchange.answer(to_json(answer))


async def _recreated(rest: Services, id: str, exchange: Exchange, body: bytes) -> bool:
    """Whether the process that had an instance answered with it, or with a new one."""
    try:
        return await rest.remote_instances.answered(id, exchange, body=body)
    except PenstockError as error:
        if error.kind is ErrorKind.CONSUMER_NOT_FOUND:
            return False  # that process has ended
        raise


@operations.on(
    "DELETE",
    *INSTANCE,
    summary="Remove a consumer instance; what it had goes to the others.",
    status=204,
    errors=(*CONSUMING, ErrorKind.MISDIRECTED, ErrorKind.CONSUMER_NOT_FOUND),
)
async def delete(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    caller.may_consume(target.topic, target.subscription)
    found = await instance_of(rest, caller, target, exchange)
    if found is not None:
        await rest.instances.remove(found)
        await exchange.give(NO_CONTENT)


@operations.on(
    "GET",
    *(f"{path}/messages" for path in INSTANCE),
    summary="Fetch messages.",
    parameters=FETCH,
    answer=FetchAnswer,
    errors=(*CONSUMING, ErrorKind.MISDIRECTED, ErrorKind.CONSUMER_NOT_FOUND),
)
async def fetch(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    """Messages that are not written to the client are given back at once."""
    allowed = partial(caller.may_consume, target.topic, target.subscription)
    allowed()
    limits = rest.limits
    params = Params(exchange.scope["query_string"], FETCH)
    timeout = params.number("timeout", most=limits.max_wait_ms)
    wait_ms = DEFAULT_TIMEOUT_MS if timeout is None else timeout
    messages_max = min(params.number("max_messages") or DEFAULT_MESSAGES, limits.max_read_messages)
    bytes_max = min(params.number("max_bytes") or limits.max_read_bytes, limits.max_read_bytes)
    form = form_of(params)
    found = await instance_of(rest, caller, target, exchange, wait_ms=wait_ms)
    if found is None:
        return
    with rest.instances.hold([found], named=True):
        async with LongPoll(rest.polls, exchange) as poll:
            poll.watch(caller, allowed)
            values = Values(rest.broker.schemas, target.topic, found.reader, form)
            fetched = Fetch(rest.decoding, found.consumer, Bounds(messages_max, bytes_max))
            if found.turn.locked() and not await poll.until(_free(found.turn), wait_ms):
                await exchange.answer(NO_MESSAGES)
                return
            async with found.turn:
                await fetched.run(poll, wait_ms)
            if poll.lapsed is not None:
                fetched.give_back()
                raise poll.lapsed
            encoding = Encoding(rest.decoding, values)
            await _hand_out(exchange, poll, fetched, encoding, rest.instances.take_prepared(found, form))
            if fetched.may_go_on:
                rest.instances.prepare(found, encoding, Prepared(form, Bounds(messages_max, bytes_max)))


async def instance_of(
    rest: Services,
    caller: Caller,
    target: Target,
    exchange: Exchange,
    *,
    wait_ms: int | None = None,
    body: bytes | None = None,
) -> Instance | None:
    """The instance that a request names; None if another process has it, and answered the request: a fetch that waits for `wait_ms`, or
    one whose `body` was read. Raises CONSUMER_NOT_FOUND, MISDIRECTED, UNAVAILABLE."""
    try:
        return rest.instances.get(target.consumer, target.topic, target.subscription, caller.role)
    except PenstockError as error:
        if error.kind is not ErrorKind.CONSUMER_NOT_FOUND:
            raise
        remote = rest.remote_instances
        if wait_ms is None:
            answered = await remote.answered(target.consumer, exchange, body=body)
        else:
            answered = await remote.polled(target.consumer, exchange, wait_ms / 1000, NO_MESSAGES)
        if answered:
            return None
        raise


async def _hand_out(
    exchange: Exchange, poll: LongPoll, fetched: Fetch, encoding: Encoding, prepared: Prepared | None
) -> None:
    if not fetched.parts and fetched.consumer.close_reason is not None:
        raise fetched.consumer.close_reason
    taken, answered = False, Answered(exchange)
    try:
        texts = write_all(fetched.parts, encoding, prepared) or [b","]
        texts[0] = b'{"messages":[' + texts[0][1:]
        texts.append(b"]}")
        size = sum(map(len, texts))
        answered.count(size)
        await exchange.head(200, JSON_TYPE, (b"content-length", b"%d" % size))
        for text in texts:
            await exchange.part(text)
        await exchange.part(b"")  # servers wait for a slow client before the next part, not after one
        taken = await poll.client_took_it()
    finally:
        answered.count(0)
        if not taken:
            fetched.give_back()
    await exchange.end()


def _reader(schemas: Schemas, topic: TopicName, wanted: ConsumerRequest) -> SchemaInfo | None:
    """The schema a consumer reads by; raises INCOMPATIBLE_SCHEMA if it cannot read the topic's newest."""
    if wanted.schema_version is not None:
        try:
            return schemas.version(topic, wanted.schema_version).schema
        except PenstockError as error:
            raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, error.message) from None
    schema = declared(wanted)
    if schema is not None:
        schemas.check(topic, schema)
        newest = schemas.latest(topic)
        if newest is not None:
            codec_for(newest.schema, schema)
    return schema


def consumer_options(topic: TopicName, wanted: ConsumerRequest) -> ConsumerOptions:
    """The options of a request; raises BAD_PARAMETER, INVALID_NAME."""
    kind = SubscriptionType.named(wanted.subscription_type or "Exclusive")
    if kind is None:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"subscription_type must be one of {', '.join(t.value for t in SubscriptionType)}",
        )
    start = wanted.initial_position
    if isinstance(start, GroupPosition) and not wanted.durable:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, "a subscription that begins at a group's position is durable"
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
        start=EARLIEST if start in ("earliest", "Earliest") else LATEST,
        priority=wanted.priority_level,
        window=wanted.receiver_queue_size,
        flow=True,
        ack_timeout_ms=wanted.ack_timeout_ms,
        nack_delay_ms=wanted.negative_ack_redelivery_delay_ms,
        dead_letter=letter,
    )


def _base_uri(rest: Services, exchange: Exchange, target: Target, instance: Instance) -> str:
    """The URI of an instance: absolute if the request says how the server is reached."""
    topic = target.topic
    parts = [topic.tenant, topic.namespace, topic.local]
    if target.shipped:
        parts.insert(0, topic.domain)
    parts += ["subscription", target.subscription, "consumer", instance.id]
    path = "/topics/" + "/".join(quote(part, safe="") for part in parts)
    root: str = exchange.scope.get("root_path", "")
    return exchange.address + root + path


async def _free(turn: asyncio.Lock) -> bool:
    """Wait until no other fetch has the turn; another may be quicker, which costs no more than its turn."""
    async with turn:
        return True
