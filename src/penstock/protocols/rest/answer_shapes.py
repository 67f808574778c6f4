"""The bodies of answers that are written by hand, as types: for the interface's description."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from .messages import ReadMessage, SchemaShape


class PublishedMessage(Struct, rename={"message_id": "messageId"}):
    """What became of one message: an id, or an error (code 1: do not retry; 2: a retry may help)."""

    message_id: str | None
    partition: int | None
    error_code: int | None
    error: str | None
    schema_version: int | UnsetType | None = UNSET


class ProduceAnswer(Struct, rename={"message_ids": "messageIds"}):
    """One result a message, in their order; `schema_version` is null without a schema, and where they differ."""

    schema_version: int | None
    message_ids: list[PublishedMessage]


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


class ReadAnswer(Struct, kw_only=True):
    """Messages; `next_message_id` is to be given back as `message_id`."""

    messages: list[ReadMessage]
    next_message_id: str | None
    schemas: list[SchemaShape] | UnsetType = UNSET


class FetchAnswer(Struct):
    """Messages that are to be acknowledged."""

    messages: list[ReadMessage]


class OffsetsAnswer(Struct, kw_only=True):
    """Where a partition begins and ends (exclusive), and where what was published since a time begins."""

    ledger: int
    earliest: int
    latest: int
    offset: int | UnsetType = UNSET


class ReplyAnswer(Struct, rename="camel"):
    """The reply to a request (PIP-371); its content is base64, and JSON beside it where it names a version of
    the topic's schema."""

    request_message_id: str
    reply_content: bytes
    is_error_result: bool
    schema_version: int | UnsetType = UNSET
    reply_value: Any = UNSET
