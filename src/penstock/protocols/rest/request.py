"""POST …/request: publish one message and answer with its reply (PIP-371)."""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from penstock.engines.embedded.registry.schemas import Schemas
from penstock.engines.embedded.topic.requests import Reply, Requests
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.exchange import ClientGoneError, Exchange
from penstock.protocols.http.long_poll import LongPoll, LongPolls
from penstock.protocols.http.operations import Table
from penstock.protocols.http.params import Parameter, Params
from penstock.protocols.limits import Limits
from penstock.protocols.values import value_of

from . import shipped
from .answer_shapes import ReplyAnswer
from .operations import COUNT, PRODUCING, SHIPPED, TOPIC
from .produce import job_of
from .produce_shapes import DECODE_ERRORS, ProduceMessage, ProduceRequest
from .publishing import Job, Publishing
from .target import Target

_message = msgspec.json.Decoder(ProduceMessage)

DEFAULT_TIMEOUT_MS: Final = 30_000  # longer than most servers think, shorter than most clients wait

_TIMEOUT: Final = (Parameter("timeout", "How long to wait, in ms.", COUNT),)


class Ask:
    """Requests for a reply."""

    operations: Final = Table("request", TOPIC, SHIPPED)

    def __init__(
        self, publishing: Publishing, limits: Limits, waits: LongPolls, requests: Requests, schemas: Schemas
    ) -> None:
        self._schemas = schemas
        self._publishing = publishing
        self._limits = limits
        self._waits = waits
        self._requests = requests

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
    async def __call__(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_produce(target.topic)
        params = Params(exchange.scope["query_string"], _TIMEOUT)
        timeout_ms = params.number("timeout") or DEFAULT_TIMEOUT_MS
        self._requests.check(timeout_ms)  # before a topic is made for it
        body = await exchange.body(self._limits.max_request_bytes)
        job = _job(target, body, self._limits, exchange.trace())
        if len(job.messages) != 1:
            raise PenstockError(ErrorKind.BAD_MESSAGE, "a request is one message")
        cached, prepared = await self._publishing.prepare(job)
        replies: list[Reply] = []

        async def reply() -> bool:
            replies.append(await cached.producer.request(prepared.ready[0], timeout_ms))
            return True

        async with LongPoll(self._waits, exchange.receive) as poll:
            await poll.until(reply(), None)
            if not replies:
                if poll.gone:
                    raise ClientGoneError  # the wait is withdrawn; the message stays
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, "the server is shutting down; the request is stored"
                )
        (got,) = replies
        version = got.schema_version
        answer = ReplyAnswer(
            request_message_id=str(got.request_id),
            reply_content=got.content,
            is_error_result=got.is_error,
            schema_version=UNSET if version is None else version,
            reply_value=value_of(self._schemas, target.topic, got),
        )
        await exchange.answer(to_json(answer))


def _job(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None) -> Job:
    """What a body asks for: one message, in an array or alone. Under a shipped path it may have a `payload` instead
    of a value, as in publishing there."""
    if target.shipped:
        try:
            glance = _glance.decode(body)
        except DECODE_ERRORS:
            pass  # what is wrong with it is said below
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


class _Message(msgspec.Struct):
    payload: str | UnsetType | None = UNSET


class _Glance(_Message):
    """Enough of a body to tell its dialect."""

    messages: list[_Message] = []


_glance = msgspec.json.Decoder(_Glance)
