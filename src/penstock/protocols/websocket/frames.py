"""The JSON frames of Pulsar's WebSocket API, with what docs/websocket.md adds to them, and the texts in them.

Frames of clients are read as Jackson reads them: unknown fields are ignored, scalars are taken if texts are
expected, and every field may be null. Base64 is read as Java's basic decoder does, strictly but for padding, which
may be missing. Times are ISO 8601 with an offset, given out in UTC with milliseconds.
"""

import re
from binascii import Error, a2b_base64, b2a_base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

# Unbounded integers would pass JSON and fail later, together with their neighbours.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Scalar = str | int | float | bool | None

# Java's ISO_OFFSET_DATE_TIME, which Pulsar reads event times by: an offset is required, seconds are not.
_OFFSET_DATE_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d(:\d\d)?)", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS_MIN: Final = -62_135_596_800_000  # the beginning of the year 1
_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999: readers of ISO 8601 know no more

_NO_SCHEMA: Final = b'"errorCode":0,"schemaVersion":0}'

# Errors of produced frames, by Pulsar's numbers (`send-error:N`).
BAD_JSON: Final = 3
BAD_PAYLOAD: Final = 7
UNKNOWN: Final = 8


class BadFrame(Exception):
    """A frame that cannot be published; the text is for its sender."""

    def __init__(self, result: int, text: str) -> None:
        super().__init__(text)
        self.result = result


class ProducerMessage(msgspec.Struct, rename="camel", gc=False):
    """Client to producer endpoint: a message to publish."""

    payload: Scalar = None
    properties: dict[str, Scalar] | None = None
    context: Scalar = None
    key: Scalar = None
    replication_clusters: list[str] | None = None
    event_time: Scalar = None
    sequence_id: Int64 | None = None
    disable_replication: bool | None = None
    deliver_at: Int64 | None = None
    deliver_after_ms: Int64 | None = None
    schema_version: Int64 | None = None
    key_schema: str | dict[str, Any] | None = None
    value_schema: str | dict[str, Any] | None = None
    key_value_encoding: str | None = None
    request_timeout_millis: Int64 | None = None
    encryption_param: Scalar = None
    compression_type: Scalar = None
    uncompressed_message_size: Int64 | None = None


class PlainMessage(msgspec.Struct, rename="camel", gc=False, forbid_unknown_fields=True):
    """The same, of the fields that most messages have, as they should be: base64 is read with the rest."""

    payload: bytes
    context: str | None = None
    key: str | None = None
    properties: dict[str, str] | None = None
    request_timeout_millis: Int64 | None = None


class ProducerAck(msgspec.Struct, rename="camel", gc=False):
    """Producer endpoint to client: what became of a message."""

    result: str
    error_msg: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    error_code: int = 0  # always 0 in Pulsar, which always writes it
    schema_version: int = 0


class ProducerReply(msgspec.Struct, rename="camel", tag_field="type", tag="reply", gc=False, kw_only=True):
    """Producer endpoint to client: the end of a request (PIP-371). Without `replyContent` there is no reply,
    and `result` says why: `timeout`, or in words."""

    result: str = "ok"
    request_message_id: str
    reply_content: bytes | UnsetType = UNSET  # as base64
    is_error_result: bool = False
    schema_version: int | UnsetType = UNSET
    reply_value: Any = UNSET  # the content as JSON, if it names a version of the topic's schema
    context: str | UnsetType = UNSET


class KeyInfo(msgspec.Struct, rename="camel", gc=False):
    """A key of an encrypted message, itself encrypted; in base64."""

    key_value: bytes
    metadata: dict[str, str] | None = None


class EncryptionContext(msgspec.Struct, rename="camel", gc=False, kw_only=True):
    """What the receiver of an encrypted message needs to open it (PIP-290)."""

    keys: dict[str, KeyInfo]
    param: bytes
    algorithm: str
    compression_type: str
    uncompressed_message_size: int
    batch_size: int | UnsetType = UNSET
    encrypted: bool = True


class ConsumerMessage(msgspec.Struct, rename="camel", gc=False):
    """Consumer or reader endpoint to client: a message."""

    message_id: str
    payload: str
    properties: dict[str, str]
    publish_time: str
    redelivery_count: int
    event_time: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    producer_name: str | UnsetType = UNSET
    sequence_id: int | UnsetType = UNSET
    schema_version: int | UnsetType = UNSET
    request_timeout_millis: int | UnsetType = UNSET
    request_deadline: str | UnsetType = UNSET
    encryption_context: EncryptionContext | UnsetType = UNSET


class ConsumerCommand(msgspec.Struct, rename="camel", gc=False):
    """Client to consumer or reader endpoint: a command; without a type, an acknowledgement."""

    type: Scalar = None
    message_id: Scalar = None
    permit_messages: Int64 | None = None
    ack_type: Scalar = None
    timestamp: Int64 | None = None
    context: Scalar = None
    reply_content: Scalar = None
    is_error_result: bool | None = None
    schema_version: Int64 | None = None


class Answer(msgspec.Struct, rename="camel", gc=False):
    """Consumer or reader endpoint to client: the answer to a command. `reply`: what became of a reply."""

    end_of_topic: bool | UnsetType = UNSET
    result: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    reply: str | UnsetType = UNSET


# `strict=False` reads "5" as a number, as Jackson does.
read_message: Final = msgspec.json.Decoder(ProducerMessage, strict=False).decode
read_plain: Final = msgspec.json.Decoder(PlainMessage).decode
read_command: Final = msgspec.json.Decoder(ConsumerCommand, strict=False).decode
_encode: Final = msgspec.json.Encoder().encode


def write(frame: ProducerAck | ProducerReply | ConsumerMessage | Answer) -> str:
    """A frame as JSON."""
    return _encode(frame).decode()


def encode(frame: ProducerAck | ProducerReply) -> bytes:
    """The same, in UTF-8."""
    return _encode(frame)


def encode_success(message_id: bytes, context: str | None, schema_version: int | None) -> bytes:
    """The `ProducerAck` of a message that was published, faster; ids need no escaping."""
    return b"".join(
        (
            b'{"result":"ok","messageId":"',
            message_id,
            b'",' if context is None else b'","context":' + _encode(context) + b",",
            b'"errorCode":0,"schemaVersion":%d}' % schema_version if schema_version else _NO_SCHEMA,
        )
    )


def encode_reply(message_id: bytes, content: bytes, is_error: bool, context: str | None) -> bytes:
    """The `ProducerReply` of a reply without a schema, faster."""
    return (
        b'{"type":"reply","result":"ok","requestMessageId":"%b","replyContent":"%b","isErrorResult":%b%b}'
        % (
            message_id,
            b2a_base64(content, newline=False),
            b"true" if is_error else b"false",
            b"" if context is None else b',"context":' + _encode(context),
        )
    )


def encode_successes(message_ids: Iterable[bytes], contexts: Iterable[str | None]) -> list[bytes]:
    """The same of messages without schema that were published together."""
    return [
        b'{"result":"ok","messageId":"%b","context":%b,"errorCode":0,"schemaVersion":0}'
        % (message_id, _encode(context))
        if context is not None
        else encode_success(message_id, None, None)
        for message_id, context in zip(message_ids, contexts, strict=True)
    ]


def as_text(value: Scalar) -> str | None:
    """A scalar in place of a text, as Jackson coerces it."""
    if value is None or type(value) is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def decode_base64(text: str) -> bytes:
    """Raises ValueError."""
    try:
        return a2b_base64(text, strict_mode=True)
    except Error:
        missing = -len(text) % 4
        if missing not in (1, 2) or "=" in text:
            raise
        return a2b_base64(text + "=" * missing, strict_mode=True)


def encode_base64(data: bytes) -> str:
    """With padding, in one line."""
    return b2a_base64(data, newline=False).decode("ascii")


def parse_time(text: str) -> int:
    """Milliseconds since the epoch; raises ValueError."""
    if not _OFFSET_DATE_TIME.fullmatch(text):
        raise ValueError(f"Text '{text[:80]}' could not be parsed as a date and time with an offset")
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def format_time(ms: int) -> str:
    """`2018-11-26T14:22:59.817Z`. Times beyond the years 1 to 9999 are given as the nearest there is."""
    if not _MS_MIN <= ms <= _MS_MAX:
        ms = _MS_MIN if ms < 0 else _MS_MAX
    return f"{_format_second(ms // 1000)}.{ms % 1000:03}Z"


@lru_cache(maxsize=64)  # neighbours are mostly of one second
def _format_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
