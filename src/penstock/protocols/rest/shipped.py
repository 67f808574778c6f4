"""POST of messages in the dialect that Pulsar shipped, without its bugs (docs/rest.md).

A payload is a text whatever the schema: a number's digits, an ISO time or ms, JSON for JSON, Avro's JSON for Avro.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.codec.codec import Codec
from penstock.codec.definition import avro_type
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.schema import SchemaType
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Declaration
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.limits import Limits
from penstock.protocols.payloads import BoundSchema

from . import receipts
from .answer_shapes import ShippedAnswer
from .avro_json import plain
from .operations import PRODUCING, SHIPPED
from .produce_shapes import (
    Bodies,
    ProduceMessage,
    RawShippedRequest,
    ShippedEnvelope,
    ShippedMessage,
    ShippedRequest,
)
from .publishing import Job, Publishing, check_count
from .target import Target

_bodies: Bodies[ShippedEnvelope, ShippedMessage] = Bodies(ShippedRequest, RawShippedRequest, ShippedMessage)

_TIMES: Final = (SchemaType.DATE, SchemaType.TIME, SchemaType.TIMESTAMP)

_PRODUCE: Final[dict[str, Any]] = {"request": ShippedRequest, "answer": ShippedAnswer, "errors": PRODUCING}


class ShippedProduce:
    """Produce requests of the shipped dialect."""

    operations: Final = Table("produce", SHIPPED)

    def __init__(self, publishing: Publishing, limits: Limits) -> None:
        self._publishing = publishing
        self._limits = limits

    @operations.on(
        "POST",
        "/partitions/{partition}",
        summary="Publish messages to one partition, in the dialect that Pulsar shipped.",
        **_PRODUCE,
    )
    @operations.on("POST", "", summary="Publish messages, in the dialect that Pulsar shipped.", **_PRODUCE)
    async def __call__(self, caller: Caller, target: Target, exchange: Exchange) -> None:
        caller.may_produce(target.topic)
        body = await exchange.body(self._limits.max_request_bytes)
        job = job_of(target, body, self._limits, exchange.trace())
        done = await self._publishing.publish(job)
        await exchange.answer(receipts.shipped_answer(done.results, done.versions, done.version))


def job_of(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None = None) -> Job:
    """What a body asks for; raises what is wrong with the request as a whole."""
    envelope, messages = _bodies.read(body)
    check_count(len(messages), limits)
    version = envelope.schema_version
    declaration = Declaration(
        schema_version=None if version < 0 else version,
        key_schema=envelope.key_schema,
        value_schema=envelope.value_schema,
    )
    return Job(
        target=target,
        producer_name=envelope.producer_name or "",
        declaration=declaration,
        messages=[m if isinstance(m, PenstockError) else _message(m) for m in messages],
        encode=_encode,
        trace=trace,
    )


def _message(given: ShippedMessage) -> ProduceMessage | PenstockError:
    """The same message in PIP-64's words."""
    event_time = given.event_time
    if isinstance(event_time, str):
        if not (event_time.isascii() and event_time.isdigit() and len(event_time) < 19):
            return PenstockError(ErrorKind.BAD_MESSAGE, f"eventTime: {event_time[:80]!r} is no number of ms")
        event_time = int(event_time)
    return ProduceMessage(
        value=given.payload,
        key=given.key,
        properties=given.properties,
        event_time=event_time,
        sequence_id=given.sequence_id,
        replication_clusters=given.replication_clusters,
        disable_replication=given.disable_replication,
        # Java's 0 is none, and so is what lies before it
        deliver_at=given.deliver_at if given.deliver_at and given.deliver_at > 0 else None,
        deliver_after_ms=given.deliver_after_ms if (given.deliver_after_ms or 0) > 0 else None,
    )


def _encode(scheme: BoundSchema, value: Any, key: Any) -> OutMessage:
    if scheme.pair is not None:
        return scheme.encode(_value(scheme.pair.value, value, "payload"), _value(scheme.pair.key, key, "key"))
    if scheme.codec is None and value is not None:
        return scheme.wrap(value.encode(), key=key)
    return scheme.encode(_value(scheme.codec, value, "payload"), key)


def _value(codec: Codec | None, text: str | None, part: str) -> Any:
    """What a text means to a schema; raises BAD_MESSAGE."""
    if text is None or codec is None:
        return text
    read = _READERS.get(codec.schema.type)
    if read is None:
        return text
    try:
        value = read(text)
        kind = avro_type(codec.schema) if codec.schema.type is SchemaType.AVRO else None
        return value if kind is None else plain(kind, value)
    except (ValueError, RecursionError, msgspec.DecodeError):
        raise PenstockError(
            ErrorKind.BAD_MESSAGE, f"{part}: {text[:80]!r} is no {codec.schema.type.name}"
        ) from None


def _boolean(text: str) -> bool:
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ValueError
    return found


def _bytes(text: str) -> str:
    """BYTES are the text's UTF-8 in this dialect; the codec takes base64."""
    return msgspec.json.encode(text.encode()).decode().strip('"')


def _time(text: str) -> Any:
    return int(text) if text.strip().lstrip("-").isdigit() else text


_READERS: Final[dict[SchemaType, Callable[[str], Any]]] = {
    SchemaType.BOOLEAN: _boolean,
    SchemaType.INT8: int,
    SchemaType.INT16: int,
    SchemaType.INT32: int,
    SchemaType.INT64: int,
    SchemaType.FLOAT: float,
    SchemaType.DOUBLE: float,
    SchemaType.BYTES: _bytes,
    SchemaType.NONE: _bytes,
    SchemaType.JSON: msgspec.json.decode,
    SchemaType.AVRO: msgspec.json.decode,
    SchemaType.PROTOBUF: msgspec.json.decode,
    SchemaType.PROTOBUF_NATIVE: msgspec.json.decode,
    **dict.fromkeys(_TIMES, _time),
}
