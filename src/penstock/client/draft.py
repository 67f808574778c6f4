"""A message in the making: what `send` was given, or what a builder collects."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from .message_id import MessageId


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
        request_message_id: Where the request lies.
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
