"""POST of messages in the dialect that Pulsar shipped, without its bugs (docs/rest.md).

A payload is a text whatever the schema: a number's digits, an ISO time or ms, JSON for JSON, Avro's JSON for Avro.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.broker.producer import Placement
from penstock.codec.avro.types import Array, Fixed, Map, Named, Primitive, Record, Type, Union
from penstock.codec.codec import Codec
from penstock.codec.definition import avro_type
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.schema import SchemaType
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Declaration, Long, SchemaText
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.decoding import DECODE_ERRORS
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.limits import Limits
from penstock.protocols.payloads import BoundSchema

from .operations import PRODUCING, SHIPPED, Target, error_code
from .plain import Form, Plain, serve_produce
from .produce_shapes import ANSWERS_MAX, Bodies, ProduceMessage
from .publishing import Job, Published
from .services import Services


class ShippedMessage(Struct, kw_only=True, rename="camel"):
    """A message of the shipped dialect: the payload is a text whatever the schema. Unknown fields are passed over."""

    payload: str | None = None
    key: str | None = None
    key_is_base64: bool = False
    properties: dict[str, str] | None = None
    event_time: str | Long | None = None
    sequence_id: Long | None = None
    replication_clusters: list[str] | None = None
    disable_replication: bool = False
    deliver_at: int | None = None
    deliver_after_ms: int | None = None


class ShippedEnvelope(Struct, kw_only=True, rename="camel"):
    """The fields of a request of the shipped dialect; a version counts before schemas, -1: no version."""

    schema_version: Annotated[int, Meta(ge=-1, le=2**63 - 1)] = -1
    key_schema: SchemaText | None = None
    value_schema: SchemaText | None = None
    producer_name: str | None = None


class ShippedRequest(ShippedEnvelope, kw_only=True, rename="camel"):
    """A produce request of the shipped dialect."""

    messages: list[ShippedMessage]


class RawShippedRequest(ShippedEnvelope, kw_only=True, rename="camel"):
    """The same, its messages not looked at."""

    messages: list[msgspec.Raw]


class PlainShippedMessage(Struct, forbid_unknown_fields=True, gc=False):
    """The commonest message: a payload and nothing else."""

    payload: str


class PlainShippedRequest(ShippedEnvelope, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The commonest request."""

    messages: list[PlainShippedMessage]


class ShippedResult(Struct, rename="camel"):
    """What became of one message, in the shipped dialect; the id is `ledger:entry:partition`, in a batch with `:index`."""

    error_code: int
    message_id: str | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    error: str | UnsetType = UNSET
    error_msg: str | UnsetType = UNSET


class ShippedAnswer(Struct, rename="camel"):
    """One result a message, in their order."""

    message_publish_results: list[ShippedResult]
    schema_version: int


_bodies: Bodies[ShippedEnvelope, ShippedMessage] = Bodies(ShippedRequest, RawShippedRequest, ShippedMessage)

_plain = msgspec.json.Decoder(PlainShippedRequest)

_TIMES: Final = (SchemaType.DATE, SchemaType.TIME, SchemaType.TIMESTAMP)

_PRODUCE: Final[dict[str, Any]] = {"request": ShippedRequest, "answer": ShippedAnswer, "errors": PRODUCING}


operations: Final = Table("produce", SHIPPED)


@operations.on(
    "POST",
    "/partitions/{partition}",
    summary="Publish messages to one partition, in the dialect that Pulsar shipped.",
    **_PRODUCE,
)
@operations.on("POST", "", summary="Publish messages, in the dialect that Pulsar shipped.", **_PRODUCE)
def produce(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> Awaitable[None]:
    return serve_produce(FORM, rest, caller, target, exchange)


def _plain_values(body: bytes) -> Plain | None:
    try:
        request = _plain.decode(body)
    except DECODE_ERRORS:
        return None
    name = request.producer_name or ""
    payloads = [message.payload for message in request.messages]
    if request.schema_version < 0 and request.value_schema is None and request.key_schema is None:
        return Plain(payloads, producer_name=name)
    return Plain(payloads, _declaration(request), _payload_value, name)


def job_of(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None = None) -> Job:
    """The job of a body; raises the error of the request as a whole."""
    envelope, messages = _bodies.read(body, limits.max_messages_per_request)
    return Job(
        target=target,
        producer_name=envelope.producer_name or "",
        declaration=_declaration(envelope),
        messages=[m if isinstance(m, PenstockError) else _message(m) for m in messages],
        encode=_encode,
        trace=trace,
    )


def _declaration(envelope: ShippedEnvelope) -> Declaration:
    version = envelope.schema_version
    return Declaration(
        schema_version=None if version < 0 else version,
        key_schema=envelope.key_schema,
        value_schema=envelope.value_schema,
    )


def _plain_answer(placement: Placement, schema_version: int | None) -> bytes:
    """The answer to a batch of plain messages: the text between the entry's numbers is made once."""
    topic, version = placement.topic, -1 if schema_version is None else schema_version
    if not placement.batched and placement.count > 1:
        return _run_answer(placement, version)
    entry = b"%d:%d:%d" % (placement.ledger, placement.entry_id, topic.name.partition)
    return entry.join(_pieces(placement.count, version))


def _run_answer(placement: Placement, version: int) -> bytes:
    """The same for messages that are separate entries."""
    first = placement.entry_id
    entries = [b"%d" % number for number in range(first, first + placement.count)]
    opening = b'{"messagePublishResults":[{"messageId":"%d:' % placement.ledger
    result = b':%d","errorCode":0,"schemaVersion":%d}' % (placement.topic.name.partition, version)
    between = b'%b,{"messageId":"%d:' % (result, placement.ledger)
    return opening + between.join(entries) + b'%b],"schemaVersion":%d}' % (result, version)


@lru_cache(maxsize=ANSWERS_MAX)
def _pieces(count: int, version: int) -> Sequence[bytes]:
    indexes = [b""] if count == 1 else [b":%d" % index for index in range(count)]
    result = b'","errorCode":0,"schemaVersion":%d}' % version
    between = [index + result + b',{"messageId":"' for index in indexes]
    between[-1] = indexes[-1] + result + b'],"schemaVersion":%d}' % version
    return [b'{"messagePublishResults":[{"messageId":"', *between]


def _answer(done: Published) -> bytes:
    """Ids as Java's clients show them, `ledger:entry:partition`, and of a
    message in a batch `ledger:entry:partition:index`."""
    slots: list[dict[str, Any]] = []
    for result, own in zip(done.results, done.versions, strict=True):
        if isinstance(result, PenstockError):
            slots.append(
                {"errorCode": error_code(result), "error": result.message, "errorMsg": result.message}
            )
        else:
            text = f"{result.ledger}:{result.entry}:{result.partition}"
            if result.batch_index >= 0:
                text += f":{result.batch_index}"
            slots.append({"messageId": text, "errorCode": 0, "schemaVersion": -1 if own is None else own})
    version = -1 if done.version is None else done.version
    return to_json({"messagePublishResults": slots, "schemaVersion": version})


FORM: Final = Form(_plain_values, job_of, _plain_answer, _answer)


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
        key_is_base64=given.key_is_base64,
        properties=given.properties,
        event_time=event_time,
        sequence_id=given.sequence_id,
        replication_clusters=given.replication_clusters,
        disable_replication=given.disable_replication,
        # Java's 0 means no time, and so do earlier ones
        deliver_at=given.deliver_at if given.deliver_at and given.deliver_at > 0 else None,
        deliver_after_ms=given.deliver_after_ms if (given.deliver_after_ms or 0) > 0 else None,
    )


def _encode(scheme: BoundSchema, value: Any, key: Any) -> OutMessage:
    if scheme.pair is not None:
        return scheme.encode(_value(scheme.pair.value, value, "payload"), _value(scheme.pair.key, key, "key"))
    if scheme.codec is None and value is not None:
        return scheme.wrap(value.encode(), key=key)
    return scheme.encode(_value(scheme.codec, value, "payload"), key)


def _payload_value(codec: Codec, text: str) -> Any:
    return _value(codec, text, "payload")


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


def plain(kind: Type, value: Any) -> Any:
    """A value in Avro's JSON encoding, which this dialect uses, as a plain one; what fits nowhere is left for the codec
    to refuse.

    Avro writes a union's value as `{"branch": value}` and bytes as a text of the characters 0 to 255. Plain values,
    which have neither, pass as they are.
    """
    if isinstance(kind, Union):
        return _branch(kind, value)
    if isinstance(kind, Record) and isinstance(value, dict):
        types = {field.name: field.type for field in kind.fields}
        return {name: plain(types[name], v) if name in types else v for name, v in value.items()}
    if isinstance(kind, Map) and isinstance(value, dict):
        return {name: plain(kind.values, v) for name, v in value.items()}
    if isinstance(kind, Array) and isinstance(value, list):
        return [plain(kind.items, v) for v in value]
    if isinstance(kind, Primitive | Fixed) and kind.kind in ("bytes", "fixed") and kind.logical is None:
        return _base64(value)
    return value


def _branch(union: Union, value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in union.branches:
            if name == branch.kind or (isinstance(branch, Named) and name in (branch.name, branch.short)):
                return plain(branch, inner)
    others = [branch for branch in union.branches if branch.kind != "null"]
    return plain(others[0], value) if len(others) == 1 and value is not None else value


def _base64(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        return value
    return msgspec.to_builtins(raw)
