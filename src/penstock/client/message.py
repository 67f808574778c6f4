"""A message as a consumer or reader receives it."""

from __future__ import annotations

import time
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Protocol

from penstock.model.message import REQUEST_TIMEOUT_PROPERTY
from penstock.model.message import Message as Stored
from penstock.wire.metadata import schema_version_bytes

from .message_id import MessageId

if TYPE_CHECKING:
    from penstock.model.schema import SchemaInfo


class Decoder(Protocol):
    """What reads a message's value: a schema."""

    def decode_message(self, message: Message) -> Any:
        """The value of a message."""


class Message:
    """A received message and its metadata."""

    __slots__ = ("_id", "_redeliveries", "_schema", "_stored", "_topic", "_writer")

    def __init__(
        self,
        stored: Stored,
        message_id: MessageId,
        topic: str,
        redeliveries: int,
        schema: Decoder,
        writer: SchemaInfo | None = None,
    ) -> None:
        self._stored = stored
        self._id = message_id
        self._topic = topic
        self._redeliveries = redeliveries
        self._schema = schema
        self._writer = writer

    def data(self) -> bytes:
        """The payload."""
        return self._stored.payload

    def value(self) -> Any:
        """The payload as its schema reads it; None for a null value.

        Raises:
            InvalidMessage: The payload does not fit the schema.
        """
        return self._schema.decode_message(self)

    def properties(self) -> dict[str, str]:
        """The properties its producer gave it."""
        return self._stored.properties

    def partition_key(self) -> str:
        """The key, or ""; base64 if the key is bytes."""
        return self._stored.key or ""

    def key_bytes(self) -> bytes | None:
        """The key as bytes, or None."""
        stored = self._stored
        if stored.key is None:
            return None
        return b64decode(stored.key) if stored.key_is_base64 else stored.key.encode()

    def ordering_key(self) -> str:
        """The ordering key, or ""."""
        key = self._stored.ordering_key
        return "" if key is None else key.decode(errors="replace")

    def publish_timestamp(self) -> int:
        """When it was published, in ms since the epoch."""
        return self._stored.publish_time

    def event_timestamp(self) -> int:
        """When what it describes happened, in ms since the epoch; 0 when its producer did not say."""
        return self._stored.event_time

    def message_id(self) -> MessageId:
        """The message id."""
        return self._id

    def topic_name(self) -> str:
        """The topic, or the partition of it, that it came from."""
        return self._topic

    def redelivery_count(self) -> int:
        """How many times it was delivered before."""
        return self._redeliveries

    def schema_version(self) -> bytes:
        """The version of its schema as the broker writes it, b"" for none."""
        version = self._stored.schema_version
        return b"" if version is None else schema_version_bytes(version)

    def int_schema_version(self) -> int:
        """The version of its schema as a number, -1 for none."""
        version = self._stored.schema_version
        return -1 if version is None else version

    def producer_name(self) -> str:
        """The name of its producer."""
        return self._stored.producer_name

    def sequence_id(self) -> int:
        """Its number among its producer's messages."""
        return self._stored.sequence_id

    def has_null_value(self) -> bool:
        """Whether it says that its key has no value any more."""
        return self._stored.null_value

    @property
    def is_request(self) -> bool:
        """Whether its producer waits for a reply (PIP-371)."""
        return REQUEST_TIMEOUT_PROPERTY in self._stored.properties

    @property
    def request_expired(self) -> bool:
        """Whether the time its producer waits is over; acknowledge it then without doing what it asks."""
        text = self._stored.properties.get(REQUEST_TIMEOUT_PROPERTY, "")
        if not text.isascii() or not text.isdigit():
            return False
        return time.time() * 1000 >= self._stored.publish_time + int(text)

    def __repr__(self) -> str:
        return f"Message({self._topic!r}, {self._id}, {len(self._stored.payload)} bytes)"
