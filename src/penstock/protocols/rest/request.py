"""POST …/request: publish one message and answer with its reply (PIP-371)."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from penstock.broker.producer import Producer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import BodyError, to_json
from penstock.protocols.http.decoding import DECODE_ERRORS
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.long_poll import LongPoll
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.limits import Limits
from penstock.protocols.trace import traced
from penstock.protocols.values import value_of

from . import shipped
from .operations import COUNT, PRODUCING, SHIPPED, TOPIC, Target
from .produce import job_of
from .produce_shapes import ProduceMessage, ProduceRequest
from .publishing import Job, prepare
from .services import Services

_message = msgspec.json.Decoder(ProduceMessage)

DEFAULT_TIMEOUT_MS: Final = 30_000  # longer than most servers think, shorter than most clients wait

QUERIES_MAX: Final = 1024  # that are remembered taken apart
QUERY_BYTES_MAX: Final = 32

_TIMEOUTS: Final[dict[bytes, int]] = {}  # by the query
_TIMEOUT: Final = (Parameter("timeout", "How long to wait, in ms.", COUNT),)


class ReplyAnswer(Struct, rename="camel"):
    """The reply to a request (PIP-371); its content is base64, and also JSON if it names a version of
    the topic's schema."""

    request_message_id: str
    reply_content: bytes
    is_error_result: bool
    schema_version: int | UnsetType = UNSET
    reply_value: Any = UNSET


operations: Final = Table("request", TOPIC, SHIPPED)


@operations.on(
    "POST",
    "/request",
    summary="Publish one message and wait for its reply (PIP-371).",
    description="The message alone, or one in `messages`. In the dialect that Pulsar shipped it may have a "
    "`payload`, as in publishing there.",
    parameters=_TIMEOUT,
    request=ProduceRequest,
    answer=ReplyAnswer,
    errors=(*PRODUCING, ErrorKind.REQUEST_TIMEOUT),
)
async def request(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> None:
    caller.may_produce(target.topic)
    timeout_ms = _timeout_ms(exchange.scope["query_string"])
    rest.broker.requests.check(timeout_ms)  # before a topic is made for it
    body = await exchange.body(rest.limits.max_request_bytes)
    if rest.pass_on is not None and await rest.passed_on(exchange, body):
        return
    trace = exchange.trace()
    producer, message = _text(rest, target, body, trace) or await _any(rest, target, body, trace)
    async with LongPoll(rest.polls, exchange) as poll:
        reply = await poll.until(producer.request(message, timeout_ms), None)
        if reply is None:
            if poll.gone:
                raise ClientGoneError  # the wait is withdrawn; the message stays
            raise PenstockError(ErrorKind.UNAVAILABLE, "the server is shutting down; the request is stored")
    answer = ReplyAnswer(
        request_message_id=str(reply.request_id),
        reply_content=reply.content,
        is_error_result=reply.is_error,
        schema_version=UNSET if reply.schema_version is None else reply.schema_version,
        reply_value=value_of(rest.broker.schemas, target.topic, reply),
    )
    await exchange.answer(to_json(answer))


def _timeout_ms(query: bytes) -> int:
    known = _TIMEOUTS.get(query)
    if known is not None:
        return known
    timeout_ms = Params(query, _TIMEOUT).number("timeout") or DEFAULT_TIMEOUT_MS
    if len(query) <= QUERY_BYTES_MAX and b"&" not in query and query.startswith(b"timeout="):  # and no token
        if len(_TIMEOUTS) >= QUERIES_MAX:
            _TIMEOUTS.clear()
        _TIMEOUTS[query] = timeout_ms
    return timeout_ms


def _text(
    rest: Services, target: Target, body: bytes, trace: dict[str, str] | None
) -> tuple[Producer, OutMessage] | None:
    """The commonest request: a text and nothing else, to a topic that is known to take them. None if it does not
    fit; then nothing has happened."""
    try:
        given = _plain.decode(body)
    except DECODE_ERRORS:
        return None
    only: _PlainMessage = given
    if given.messages:
        if len(given.messages) > 1 or given.value is not UNSET or given.payload is not UNSET:
            return None
        only = given.messages[0]
    text = only.value
    if only.payload is not UNSET:
        if text is not UNSET or not target.shipped:
            return None
        text = only.payload
    cached = rest.producers.ready(target.topic)
    if cached is None or text is UNSET:
        return None
    version = rest.producers.string_version(target.topic, cached)
    if version is None:
        return None
    message = OutMessage(payload=text.encode(), schema_version=version)
    if trace is not None:
        message.properties = traced(None, trace)
    return cached.producer, message


async def _any(
    rest: Services, target: Target, body: bytes, trace: dict[str, str] | None
) -> tuple[Producer, OutMessage]:
    job = _job(target, body, rest.limits, trace)
    if len(job.messages) != 1:
        raise BodyError(ErrorKind.BAD_MESSAGE, "a request is one message")
    cached, prepared = await prepare(rest, job)
    return cached.producer, prepared.ready[0].out


def _job(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None) -> Job:
    """What a body asks for: one message, in an array or alone. Under a shipped path it may have a `payload` instead
    of a value, as in publishing there."""
    if target.shipped:
        try:
            glance = _glance.decode(body)
        except DECODE_ERRORS:
            pass  # its error is raised below
        else:
            if glance.payload is not UNSET:
                return shipped.job_of(target, _enveloped(body), limits, trace)
            if any(message.payload is not UNSET for message in glance.messages):
                return shipped.job_of(target, body, limits, trace)
    try:
        _message.decode(body)
    except DECODE_ERRORS:
        return job_of(target, body, limits, trace)
    return job_of(target, _enveloped(body), limits, trace)


def _enveloped(message: bytes) -> bytes:
    return b'{"messages":[' + message + b"]}"


class _PlainMessage(Struct, forbid_unknown_fields=True, gc=False):
    """A text, in either dialect."""

    value: str | UnsetType = UNSET
    payload: str | UnsetType = UNSET


class _PlainRequest(_PlainMessage, forbid_unknown_fields=True, gc=False):
    """A text alone, or in an array."""

    messages: list[_PlainMessage] = []


_plain = msgspec.json.Decoder(_PlainRequest)


class _Message(Struct):
    payload: str | UnsetType | None = UNSET


class _Glance(_Message):
    """Enough of a body to recognize its dialect."""

    messages: list[_Message] = []


_glance = msgspec.json.Decoder(_Glance)
