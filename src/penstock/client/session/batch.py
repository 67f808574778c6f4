"""Messages on their way into one entry."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.client.enums import BatchingType, CompressionType
from penstock.client.schema.schema import Schema
from penstock.model.message import OutMessage
from penstock.wire.batch import MESSAGES_MAX


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer sends. Times are in seconds."""

    batching: bool = False
    batch_messages_max: int = 1000
    batch_bytes_max: int = 128 * 1024
    batch_delay_s: float = 0.01
    batching_type: BatchingType = BatchingType.Default
    compression: CompressionType = CompressionType.NONE
    chunking: bool = False
    timeout_s: float = 30.0  # 0: never give up
    initial_sequence_id: int | None = None

    @property
    def batch_count_max(self) -> int:
        """How many messages an entry may hold."""
        return min(self.batch_messages_max, MESSAGES_MAX) if self.batch_messages_max > 0 else MESSAGES_MAX


class Batch(msgspec.Struct, eq=False):
    """Payloads while the messages have nothing else; messages from then on.

    `tokens` are the driver's: called with the result of each message. `born` is the time of the first message.
    """

    version: int | None
    born: float
    payloads: list[bytes] = []
    messages: list[OutMessage] | None = None
    tokens: list[Any] = []
    size: int = 0

    def add(self, message: OutMessage, token: Any) -> None:
        """Add a message with more than a payload."""
        if self.messages is None:
            self.messages = [OutMessage(payload=payload) for payload in self.payloads]
        self.messages.append(message)
        self.payloads.append(message.payload)
        self.tokens.append(token)
        self.size += len(message.payload)

    def add_plain(self, payload: bytes, token: Any) -> None:
        """Add a message that is nothing but its payload."""
        if self.messages is not None:
            self.messages.append(OutMessage(payload=payload))
        self.payloads.append(payload)
        self.tokens.append(token)
        self.size += len(payload)


class Held(msgspec.Struct, eq=False):
    """A message that may not go yet: the producer has no name, or the message's schema no version.

    `message` None: nothing but its payload. `schema` None: the producer's. `alone`: not to be batched.
    """

    payload: bytes
    message: OutMessage | None
    token: Any
    born: float
    schema: Schema | None = None
    alone: bool = False


def batch_key(message: OutMessage | None) -> str | bytes:
    """The shared key of a batch if batching is by key."""
    if message is None:
        return ""
    return message.ordering_key or message.key or ""
