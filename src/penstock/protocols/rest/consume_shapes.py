"""The bodies of consumer and cursor requests (PIP-64; docs/rest.md)."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .produce_shapes import Long, SchemaText

_Ms = Annotated[int, Meta(ge=0, le=2**40)]


class ConsumerRequest(Struct, forbid_unknown_fields=True, kw_only=True):
    """What a consumer instance is to be like. Schema fields name the schema that its messages are read by.

    `id` is one given by an earlier answer: while that instance lives, it is the answer again.
    """

    name: str | None = None
    id: str | None = None
    schema_type: str | None = None
    schema_version: Long | None = None
    key_schema: SchemaText | None = None
    value_schema: SchemaText | None = None
    key_value_encoding: str | None = None
    subscription_type: str | None = None
    initial_position: Literal["earliest", "latest", "Earliest", "Latest"] = "latest"
    durable: bool = True
    priority_level: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    receiver_queue_size: Annotated[int, Meta(ge=1, le=50_000)] = 1000
    ack_timeout_ms: _Ms = 0
    negative_ack_redelivery_delay_ms: _Ms = 60_000
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


class Acknowledgement(
    Struct,
    forbid_unknown_fields=True,
    kw_only=True,
    rename={
        "message_id": "messageId",
        "reply_content": "replyContent",
        "is_error_result": "isErrorResult",
        "schema_version": "schemaVersion",
    },
):
    """A message to acknowledge, with the reply to a request (PIP-371): base64, by a version of the topic's schema
    where it names one."""

    message_id: str
    reply_content: bytes | None = None
    is_error_result: bool = False
    schema_version: int | None = None


class CursorRequest(Struct, forbid_unknown_fields=True, kw_only=True, rename={"message_ids": "messageIds"}):
    """What is to happen to messages, or to the cursor.

    `negative` gives messages back for redelivery after `delay_ms` (default: their consumer's); `seek` goes on after
    one id, or with the first message since `publish_time` (ms).
    """

    type: Literal["individual", "cumulative", "negative", "seek"] = "individual"
    message_ids: list[str | Acknowledgement] = []
    publish_time: Long | None = None
    delay_ms: _Ms | None = None


class AckResult(Struct, kw_only=True, rename={"message_id": "messageId"}):
    """What became of one id; the codes are those of produced messages. `reply` tells of a reply (PIP-371)."""

    message_id: str
    error_code: int | None = None
    error: str | None = None
    reply: str | UnsetType = UNSET


class CursorResult(Struct, kw_only=True, rename={"message_ids": "messageIds"}):
    """One result an id, in their order."""

    message_ids: list[AckResult]


class PartitionCursor(Struct, kw_only=True):
    """A partition's cursor. Everything up to `mark_delete_position` is acknowledged (null: nothing is), and the
    ranges of offsets beyond it, both ends inclusive; `more` tells that there are more ranges than are shown."""

    partition: int
    mark_delete_position: str | None
    mark_delete_offset: int | None
    individually_acknowledged: list[tuple[int, int]]
    more: bool
    backlog: int
    unacknowledged: int


class Cursor(Struct, kw_only=True):
    """A subscription's cursor; of a partitioned topic the positions are in `partitions`."""

    mark_delete_position: str | None
    mark_delete_offset: int | None
    individually_acknowledged: list[tuple[int, int]]
    more: bool
    backlog: int
    unacknowledged: int
    type: str | None
    consumers: list[str]
    partitions: list[PartitionCursor]


class CursorAnswer(Struct, kw_only=True):
    """PIP-64's cursor object."""

    cursor: Cursor


consumer_request = msgspec.json.Decoder(ConsumerRequest)
cursor_request = msgspec.json.Decoder(CursorRequest)
