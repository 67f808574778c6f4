"""A message in the making: what `send` was given, or what a builder collects."""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec

if TYPE_CHECKING:
    from .message_id import MessageId
    from .schema import Schema


class Draft(msgspec.Struct, kw_only=True):
    """A message before it is encoded. Interceptors may change it; `schema` None is the producer's own."""

    value: Any
    schema: Any = None
    key: str | None = None
    key_bytes: bytes | None = None
    ordering_key: bytes | None = None
    properties: dict[str, str] | None = None
    event_timestamp: int = 0
    deliver_at: int = 0
    sequence_id: int | None = None
    replication_clusters: list[str] | None = None


class ReplyResult(msgspec.Struct, frozen=True):
    """The reply to a request (PIP-371).

    Attributes:
        request_message_id: The id of the request.
        reply_content: What the consumer replied.
        is_error_result: Whether the consumer calls it an error.
    """

    request_message_id: MessageId
    reply_content: bytes
    is_error_result: bool


LOCAL_CLUSTER = "__local__"  # Pulsar's name for "do not replicate"


def draft(
    content: Any,
    properties: dict[str, str] | None = None,
    partition_key: str | None = None,
    ordering_key: str | None = None,
    sequence_id: int | None = None,
    replication_clusters: list[str] | None = None,
    disable_replication: bool | None = None,
    event_timestamp: int | None = None,
    deliver_at: int | None = None,
    deliver_after: timedelta | None = None,
) -> Draft:
    """The arguments of `send` as a draft. Raises ValueError for one of the wrong type."""
    _check("properties", properties, dict)
    _check("partition_key", partition_key, str)
    _check("ordering_key", ordering_key, str)
    _check("sequence_id", sequence_id, int)
    _check("event_timestamp", event_timestamp, int)
    _check("deliver_at", deliver_at, int)
    _check("deliver_after", deliver_after, timedelta)
    made = Draft(value=content, properties=properties, key=partition_key, sequence_id=sequence_id)
    if ordering_key:
        made.ordering_key = ordering_key.encode()
    made.replication_clusters = [LOCAL_CLUSTER] if disable_replication else replication_clusters
    made.event_timestamp = event_timestamp or 0
    made.deliver_at = deliver_at or 0
    if deliver_after is not None:
        made.deliver_at = int(time.time() * 1000) + deliver_after // timedelta(milliseconds=1)
    return made


def _check(name: str, value: Any, kind: type) -> None:
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} must be of type {kind.__name__}, not {type(value).__name__}")


class MessageBuilder:
    """A message put together step by step: `producer.new_message(value, schema=…).key("k").send()`.

    Every method returns the builder; the clients add `send` and `request`.
    """

    def __init__(self, value: Any, schema: Schema | None) -> None:
        self.draft = Draft(value=value, schema=schema)

    def value(self, value: Any) -> Self:
        """What to send; it is encoded by the message's schema."""
        self.draft.value = value
        return self

    def key(self, key: str) -> Self:
        """The key: messages of one key go to one partition, in order."""
        self.draft.key = key
        self.draft.key_bytes = None
        return self

    def key_bytes(self, key: bytes) -> Self:
        """The key as bytes; it travels as base64."""
        self.draft.key = b64encode(key).decode()
        self.draft.key_bytes = key
        return self

    def partition_key(self, key: str) -> Self:
        """Another name for `key`."""
        return self.key(key)

    def ordering_key(self, key: str | bytes) -> Self:
        """The key that KeyShared subscriptions use in place of the key."""
        self.draft.ordering_key = key.encode() if isinstance(key, str) else key
        return self

    def property(self, name: str, value: str) -> Self:
        """Add one property."""
        self.draft.properties = {**(self.draft.properties or {}), name: value}
        return self

    def properties(self, properties: dict[str, str]) -> Self:
        """Add several properties."""
        self.draft.properties = {**(self.draft.properties or {}), **properties}
        return self

    def event_time(self, timestamp_ms: int) -> Self:
        """When what the message describes happened, in ms since the epoch."""
        self.draft.event_timestamp = timestamp_ms
        return self

    def event_timestamp(self, timestamp_ms: int) -> Self:
        """Another name for `event_time`."""
        return self.event_time(timestamp_ms)

    def sequence_id(self, sequence_id: int) -> Self:
        """The message's number, for deduplication; by default the producer counts."""
        self.draft.sequence_id = sequence_id
        return self

    def deliver_at(self, timestamp_ms: int) -> Self:
        """Not to be delivered before this time, in ms since the epoch (Shared and KeyShared)."""
        self.draft.deliver_at = timestamp_ms
        return self

    def deliver_after(self, delay: timedelta | int) -> Self:
        """Not to be delivered before this time has passed; a number is in ms."""
        if isinstance(delay, timedelta):
            delay = delay // timedelta(milliseconds=1)
        return self.deliver_at(int(time.time() * 1000) + delay)

    def replication_clusters(self, clusters: list[str]) -> Self:
        """Which clusters the message is replicated to."""
        self.draft.replication_clusters = clusters
        return self

    def disable_replication(self) -> Self:
        """Do not replicate this message."""
        self.draft.replication_clusters = [LOCAL_CLUSTER]
        return self
