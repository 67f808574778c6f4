"""POST of messages to a topic or a partition, in PIP-64's dialect."""

from binascii import b2a_base64
from collections.abc import Awaitable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.broker.producer import Placement
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId, run_texts
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Declaration
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.decoding import DECODE_ERRORS
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.operations import Table
from penstock.protocols.limits import Limits

from .batch_ids import Ending, split, tails
from .operations import PRODUCING, TOPIC, Target, error_code
from .plain import Form, Plain, serve_produce
from .produce_shapes import (
    ANSWERS_MAX,
    Bodies,
    Envelope,
    PlainRequest,
    ProduceAnswer,
    ProduceMessage,
    ProduceRequest,
    RawProduceRequest,
    ValueRequest,
)
from .publishing import Job, Published
from .services import Services

_plain = msgspec.json.Decoder(PlainRequest)
_values = msgspec.json.Decoder(ValueRequest)
_bodies: Bodies[Envelope, ProduceMessage] = Bodies(ProduceRequest, RawProduceRequest, ProduceMessage)

_PRODUCE: Final[dict[str, Any]] = {
    "description": "A value needs no schema. A topic without one becomes a topic of texts or of JSON by its first value; a"
    " topic of JSON takes any value that its schema takes. All other topics need `schema_version` or `value_schema`.",
    "request": ProduceRequest,
    "answer": ProduceAnswer,
    "errors": PRODUCING,
}

_BETWEEN: Final = b',{"messageId":"'

operations: Final = Table("produce", TOPIC)


@operations.on("POST", "/partitions/{partition}", summary="Publish messages to one partition.", **_PRODUCE)
@operations.on("POST", "", summary="Publish messages.", **_PRODUCE)
def produce(rest: Services, caller: Caller, target: Target, exchange: Exchange) -> Awaitable[None]:
    return serve_produce(FORM, rest, caller, target, exchange)


def _plain_values(body: bytes) -> Plain | None:
    try:
        texts = _plain.decode(body)
        return Plain([message.value for message in texts.messages], producer_name=texts.producer_name or "")
    except DECODE_ERRORS:
        pass
    try:
        request = _values.decode(body)
    except DECODE_ERRORS:
        return None
    declaration = Declaration(
        schema_type=request.schema_type,
        schema_version=request.schema_version,
        value_schema=request.value_schema,
    )
    values = [message.value for message in request.messages]
    return Plain(values, declaration, producer_name=request.producer_name or "")


def job_of(target: Target, body: bytes, limits: Limits, trace: dict[str, str] | None = None) -> Job:
    """The job of any body; raises the error of the request as a whole."""
    envelope, messages = _bodies.read(body, limits.max_messages_per_request)
    return Job(
        target=target,
        producer_name=envelope.producer_name or "",
        declaration=envelope,
        messages=messages,
        base64=envelope.encoding == "base64",
        trace=trace,
    )


# -- answers


def _plain_answer(placement: Placement, schema_version: int | None) -> bytes:
    """The answer to a batch of plain messages: the text between the ids is made once."""
    topic, count = placement.topic, placement.count
    if count == 1:
        alone = MessageId(placement.ledger, placement.entry_id, topic.name.partition).to_bytes()
        opening, closing = _around_one(topic.partition, schema_version)
        return opening + b2a_base64(alone, newline=False) + closing
    if not placement.batched:
        closing = _closing(topic.partition)
        ids = run_texts(placement.ledger, topic.name.partition, placement.entry_id, count)
        return _opening(schema_version) + (closing + _BETWEEN).join(ids) + closing + b"]}"
    head, ending = split(placement.ledger, placement.entry_id, topic.name.partition, count)
    return head.join(_pieces(ending, topic.partition, schema_version))


@lru_cache(maxsize=ANSWERS_MAX)
def _pieces(ending: Ending, partition: int, schema_version: int | None) -> Sequence[bytes]:
    closing = _closing(partition)
    between = [tail + closing + _BETWEEN for tail in tails(ending)]
    between[-1] = between[-1].removesuffix(_BETWEEN) + b"]}"
    return [_opening(schema_version), *between]


@lru_cache(maxsize=ANSWERS_MAX)
def _around_one(partition: int, schema_version: int | None) -> tuple[bytes, bytes]:
    return _opening(schema_version), _closing(partition) + b"]}"


def _opening(schema_version: int | None) -> bytes:
    version = b"null" if schema_version is None else b"%d" % schema_version
    return b'{"schema_version":' + version + b',"messageIds":[{"messageId":"'


def _closing(partition: int) -> bytes:
    return b'","partition":%d,"error_code":null,"error":null}' % partition


def _answer(done: Published) -> bytes:
    """PIP-64's answer; with `own_versions` each message names its schema version, as they may differ."""
    slots: list[dict[str, Any]] = []
    for result, version in zip(done.results, done.versions, strict=True):
        slot: dict[str, Any]
        if isinstance(result, PenstockError):
            slot = {
                "messageId": None,
                "partition": None,
                "error_code": error_code(result),
                "error": result.message,
            }
        else:
            known = result.entry >= 0  # a repeat whose first id is not known any more has Pulsar's -1:-1
            slot = {
                "messageId": str(result),
                "partition": max(0, result.partition) if known else None,
                "error_code": None,
                "error": None,
            }
        if done.own_versions:
            slot["schema_version"] = version
        slots.append(slot)
    return to_json({"schema_version": done.version, "messageIds": slots})


FORM: Final = Form(_plain_values, job_of, _plain_answer, _answer)
