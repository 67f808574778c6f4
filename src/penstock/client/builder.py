"""Messages put together step by step: `producer.new_message(value, schema=…).key("k").send()`."""

from __future__ import annotations

import time
from base64 import b64encode
from datetime import timedelta
from typing import Any, Self

from .draft import LOCAL_CLUSTER, Draft
from .schema.schema import Schema


class MessageBuilder:
    """A message in the making. Every method returns the builder; the drivers add `send` and `request`."""

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
        """What a KeyShared subscription goes by instead of the key."""
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
        """When what the message tells of happened, in ms since the epoch."""
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
