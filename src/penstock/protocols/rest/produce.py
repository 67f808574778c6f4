"""POST of messages to a topic or a partition, in PIP-64's dialect."""

from typing import Any, Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Declaration
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.limits import Limits

from . import receipts
from .answer_shapes import ProduceAnswer
from .operations import PRODUCING, TOPIC
from .produce_shapes import (
    DECODE_ERRORS,
    Bodies,
    Envelope,
    PlainRequest,
    ProduceMessage,
    ProduceRequest,
    RawProduceRequest,
    ValueRequest,
)
from .producer_cache import ProducerCache
from .publishing import Job, Publishing, check_count
from .target import Target

_plain = msgspec.json.Decoder(PlainRequest)
_values = msgspec.json.Decoder(ValueRequest)
_bodies: Bodies[Envelope, ProduceMessage] = Bodies(ProduceRequest, RawProduceRequest, ProduceMessage)

_PRODUCE: Final[dict[str, Any]] = {"request": ProduceRequest, "answer": ProduceAnswer, "errors": PRODUCING}


class Produce:
    """Produce requests of PIP-64."""

    operations: Final = Table("produce", TOPIC)

    def __init__(self, publishing: Publishing, limits: Limits, producers: ProducerCache) -> None:
        self._publishing = publishing
        self._limits = limits
        self._cached = producers
        self._receipts = receipts.Receipts()

    @operations.on(
        "POST", "/partitions/{partition}", summary="Publish messages to one partition.", **_PRODUCE
    )
    @operations.on("POST", "", summary="Publish messages.", **_PRODUCE)
    async def __call__(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_produce(target.topic)
        body = await exchange.body(self._limits.max_request_bytes)
        trace = exchange.trace()
        if trace is None:
            done = (
                await self._publish_plain(target, body)
                or await self._publish_values(target, body)
                or await self._publish(target, body, None)
            )
        else:
            done = await self._publish(target, body, trace)
        await exchange.answer(done)

    async def _publish_plain(self, target: Target, body: bytes) -> bytes | None:
        """The fast path: texts and nothing else, to one partition of a topic that is known to take them.

        None where it does not fit; then nothing has happened.
        """
        try:
            messages = _plain.decode(body).messages
        except DECODE_ERRORS:
            return None
        if len(messages) > self._limits.max_messages_per_request:
            return None
        cached = self._cached.ready(target.topic)
        if cached is None:
            return None
        scheme = cached.topic_schemas.string()
        if scheme is None or scheme.version is None:
            return None
        payloads = [message.value.encode() for message in messages]
        if not cached.producer.takes_plain(payloads, target.partition):
            return None
        placement = await cached.producer.publish_plain(payloads, scheme.version, target.partition)
        return self._receipts.plain(placement, scheme.version)

    async def _publish_values(self, target: Target, body: bytes) -> bytes | None:
        """The same for values of one schema that is named; None where one of them is not plain, or bad."""
        try:
            request = _values.decode(body)
        except DECODE_ERRORS:
            return None
        declaration = Declaration(
            schema_type=request.schema_type,
            schema_version=request.schema_version,
            value_schema=request.value_schema,
        )
        if declaration.empty or not 0 < len(request.messages) <= self._limits.max_messages_per_request:
            return None
        cached = self._cached.ready(target.topic)
        if cached is None:
            return None
        scheme = await cached.topic_schemas.scheme(declaration, register=False)
        if scheme.codec is None or scheme.pair is not None or scheme.fresh is not None:
            return None
        encode = scheme.codec.encode
        try:
            payloads = [encode(message.value) for message in request.messages if message.value is not None]
        except PenstockError:
            return None
        whole = len(payloads) == len(request.messages)
        if not whole or not cached.producer.takes_plain(payloads, target.partition):
            return None
        placement = await cached.producer.publish_plain(payloads, scheme.version, target.partition)
        return self._receipts.plain(placement, scheme.version)

    async def _publish(self, target: Target, body: bytes, trace: dict[str, str] | None) -> bytes:
        done = await self._publishing.publish(job_of(target, body, self._limits, trace))
        return receipts.answer(done.results, done.versions, done.version, own_versions=done.own_versions)


def job_of(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None = None) -> Job:
    """What a body asks for, in general; raises what is wrong with the request as a whole."""
    envelope, messages = _bodies.read(body)
    check_count(len(messages), limits)
    return Job(
        target=target,
        producer_name=envelope.producer_name or "",
        declaration=Declaration(
            schema_type=envelope.schema_type,
            schema_version=envelope.schema_version,
            key_schema=envelope.key_schema,
            value_schema=envelope.value_schema,
            key_value_encoding=envelope.key_value_encoding,
        ),
        messages=messages,
        base64=envelope.encoding == "base64",
        trace=trace,
    )
