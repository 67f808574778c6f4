"""A produced frame to a message, or to the answer that says why not (Pulsar's WebSocket API)."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from penstock.broker.producer import Placement, Request
from penstock.model.errors import WS_RESULT_TEXT, PenstockError
from penstock.model.message import EncryptionKey, OutMessage
from penstock.model.message_id import MessageId, id_texts, run_texts
from penstock.protocols.declarations import Declaration
from penstock.runtime.clock import Clock

from .encryption import seal
from .frames import (
    BAD_JSON,
    BAD_PAYLOAD,
    UNKNOWN,
    BadFrame,
    ProducerAck,
    ProducerMessage,
    Scalar,
    as_text,
    decode_base64,
    encode,
    parse_time,
    read_message,
    read_plain,
)

_INT64_MAX: Final = 2**63 - 1
_LOCAL_ONLY: Final = ["__local__"]  # what Pulsar stores if replication is disabled


class Incoming(msgspec.Struct, gc=False):
    """A received frame. `message` is None if it cannot be published; then `answer` says why.

    `plain`: the message is nothing but a payload. `timeout_ms` makes it a request (PIP-371), `request` is its wait, and `message_id` what it got.
    """

    size: int
    arrived_ms: int
    context: str | None = None
    message: OutMessage | None = None
    plain: bool = False
    declared: Declaration | None = None
    answer: bytes = b""
    timeout_ms: int | None = None
    request: Request | None = None
    message_id: bytes | None = None


def read_frames(
    texts: Iterable[bytes], clock: Clock, *, properties_bytes_max: int, keys: tuple[EncryptionKey, ...] = ()
) -> list[Incoming]:
    """Read frames that came together. Never raises: the error of a frame is its answer. With `keys` payloads come
    encrypted."""
    arrived_ms, now_ms = clock.monotonic_ms(), clock.now_ms()
    plain = not keys
    made: list[Incoming] = []
    for text in texts:
        if plain:
            try:
                frame = read_plain(text)
                message = OutMessage(payload=frame.payload, key=frame.key)
                if frame.properties:
                    message.properties = _properties(frame.properties, properties_bytes_max)
                item = Incoming(len(text), arrived_ms, frame.context, message)
                item.timeout_ms = frame.request_timeout_millis
                item.plain = not frame.properties and frame.key is None and item.timeout_ms is None
                made.append(item)
                continue
            except (msgspec.DecodeError, UnicodeError, RecursionError, BadFrame):
                plain = False  # mostly its neighbours are like it: they are not tried
        made.append(
            read_frame(
                text,
                arrived_ms=arrived_ms,
                now_ms=now_ms,
                properties_bytes_max=properties_bytes_max,
                keys=keys,
            )
        )
    return made


def read_frame(
    text: bytes,
    *,
    arrived_ms: int,
    now_ms: int,
    properties_bytes_max: int,
    keys: tuple[EncryptionKey, ...] = (),
) -> Incoming:
    """Read one frame, of any fields."""
    made = Incoming(len(text), arrived_ms)
    try:
        frame = read_message(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        made.answer = refusal(BAD_JSON, str(error) or WS_RESULT_TEXT[BAD_JSON], None)
        return made
    made.context = as_text(frame.context)
    try:
        message = _message(frame, now_ms, properties_bytes_max)
        if keys:
            message.encryption = seal(frame, keys)
    except BadFrame as unfit:
        made.answer = refusal(unfit.result, str(unfit), made.context)
        return made
    made.message = message
    if frame.schema_version is not None or frame.key_schema is not None or frame.value_schema is not None:
        made.declared = _declared(frame)
    timeout_ms = frame.request_timeout_millis
    if timeout_ms is not None and not _is_filler(frame, timeout_ms):
        made.timeout_ms = timeout_ms
    else:
        made.plain = made.declared is None and message == OutMessage(payload=message.payload)
    return made


def refusal(result: int, text: str, context: str | None) -> bytes:
    """The frame for a message that was not published."""
    return encode(
        ProducerAck(
            f"send-error:{result}", error_msg=text, context=msgspec.UNSET if context is None else context
        )
    )


def failure(error: PenstockError, context: str | None) -> bytes:
    """The same, for an error of the broker: Pulsar distinguishes bad payloads from other errors."""
    result = error.kind.codes.ws_result
    return refusal(result if result == BAD_PAYLOAD else UNKNOWN, error.message, context)


def texts_of(placed: Placement) -> list[bytes]:
    """The ids of messages that were published together, in order, as texts."""
    topic, count = placed.topic, placed.count
    ledger, partition = placed.ledger, topic.name.partition
    if not placed.batched or count == 1:
        return run_texts(ledger, partition, placed.entry_id, count)
    return id_texts([MessageId(ledger, placed.entry_id, partition, at, count) for at in range(count)])


def _message(frame: ProducerMessage, now_ms: int, properties_bytes_max: int) -> OutMessage:
    message = OutMessage(payload=_payload(frame.payload), key=as_text(frame.key))
    if frame.properties:
        message.properties = _properties(frame.properties, properties_bytes_max)
    if frame.event_time is not None:
        message.event_time = _event_time(frame.event_time)
    if frame.replication_clusters:
        message.replicate_to = frame.replication_clusters
    if frame.disable_replication:
        message.replicate_to = _LOCAL_ONLY
    if frame.deliver_at is not None and frame.deliver_at > 0:
        message.deliver_at = frame.deliver_at
    if frame.deliver_after_ms is not None and frame.deliver_after_ms > 0:  # has priority if both are given
        message.deliver_at = min(now_ms + frame.deliver_after_ms, _INT64_MAX)
    if frame.sequence_id is not None and not _is_filler(frame, frame.sequence_id):
        if frame.sequence_id < 0:
            raise BadFrame(BAD_PAYLOAD, f"sequenceId must not be negative: {frame.sequence_id}")
        message.sequence_id = frame.sequence_id
    return message


def _is_filler(frame: ProducerMessage, number: int) -> bool:
    """Whether a 0 means nothing: Java clients write all fields of their class, and then deliverAt is 0 too."""
    return number == 0 and frame.deliver_at == 0


def _payload(payload: Scalar) -> bytes:
    text = payload if type(payload) is str else as_text(payload)
    if text is None:
        raise BadFrame(BAD_PAYLOAD, "Invalid Base64 message-payload error=no payload")
    try:
        return decode_base64(text)
    except ValueError as error:
        raise BadFrame(BAD_PAYLOAD, f"Invalid Base64 message-payload error={error}") from None


def _properties(given: Mapping[str, Scalar], bytes_max: int) -> dict[str, str]:
    made: dict[str, str] = {}
    size = 0
    for name, value in given.items():
        text = value if type(value) is str else as_text(value)
        if text is None:
            raise BadFrame(BAD_JSON, f"property {name[:80]!r} is null")
        made[name] = text
        size += len(name) + len(text)
    if size > bytes_max:
        raise BadFrame(UNKNOWN, f"properties of {size} characters; the most is {bytes_max}")
    return made


def _event_time(given: Scalar) -> int:
    try:
        made = parse_time(as_text(given) or "")
    except (ValueError, OverflowError) as error:
        raise BadFrame(BAD_PAYLOAD, f"Invalid eventTime: {error}") from None
    if made <= 0:
        raise BadFrame(BAD_PAYLOAD, f"Invalid eventTime: {given} is not after 1970-01-01T00:00:00Z")
    return made


def _declared(frame: ProducerMessage) -> Declaration | None:
    version = frame.schema_version
    if version is not None and (version < 0 or _is_filler(frame, version)):
        version = None
    if version is None and frame.key_schema is None and frame.value_schema is None:
        return None
    return Declaration(
        schema_version=version,
        key_schema=frame.key_schema,
        value_schema=frame.value_schema,
        key_value_encoding=frame.key_value_encoding,
    )
