"""Messages as values: one to be published, and one as read from an entry."""

from collections.abc import Sequence

import msgspec

REQUEST_TIMEOUT_PROPERTY = "REQUEST_TIMEOUT_MILLIS"  # PIP-371: a message that carries it is a request

_DIGITS_MAX = 18  # of a number that fits into 64 bits whatever it is added to


def request_timeout_ms(properties: dict[str, str]) -> int | None:
    """How long the requester waits from the publish time on; None for a message that is not a request."""
    text = properties.get(REQUEST_TIMEOUT_PROPERTY)
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        return None
    return int(text)


class EncryptionKey(msgspec.Struct, frozen=True):
    """The key a payload is encrypted with, itself encrypted for the owner of `name`."""

    name: str
    value: bytes
    metadata: dict[str, str] = {}


class Encryption(msgspec.Struct, frozen=True):
    """How a payload was encrypted by its producer; only its receiver can open it.

    `compression` is the name of a Pulsar CompressionType, applied before; `batch_size` is 0 for one message.
    """

    keys: tuple[EncryptionKey, ...]
    param: bytes
    algorithm: str = ""
    compression: str = "NONE"
    uncompressed_size: int = 0
    batch_size: int = 0


class OutMessage(msgspec.Struct, gc=False, kw_only=True):
    """A message to publish; its payload is encoded by its schema already.

    `key` is a text, or base64 of bytes when `key_is_base64`. Times are ms since the epoch, 0 for none.
    `schema_version` is None for a message without schema. `sequence_id` None lets the producer count.
    `partition` None lets the router choose.
    """

    payload: bytes
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: dict[str, str] | None = None
    event_time: int = 0
    record_time: int = 0  # of its record before Kafka; else it is the time of publishing
    deliver_at: int = 0
    sequence_id: int | None = None
    schema_version: int | None = None
    partition: int | None = None
    replicate_to: list[str] | None = None
    null_value: bool = False
    encryption: Encryption | None = None  # of a payload that comes encrypted; it shares no entry


class Message(msgspec.Struct, gc=False, kw_only=True):
    """A message as decoded from its entry; `index` is its place in the batch, -1 when it was sent alone."""

    payload: bytes
    index: int = -1
    offset: int = 0
    key: str | None = None
    key_is_base64: bool = False
    ordering_key: bytes | None = None
    properties: dict[str, str]
    publish_time: int = 0
    event_time: int = 0
    deliver_at: int = 0
    producer_name: str = ""
    sequence_id: int = 0
    schema_version: int | None = None
    replicate_to: list[str] | None = None
    null_value: bool = False
    compacted_out: bool = False
    encryption: Encryption | None = None

    def again(self) -> OutMessage:
        """The message to be published once more, with its sequence id; what its receiver alone can open is not for this."""
        return OutMessage(
            payload=self.payload,
            key=self.key,
            key_is_base64=self.key_is_base64,
            ordering_key=self.ordering_key,
            properties=self.properties,
            event_time=self.event_time,
            deliver_at=self.deliver_at,
            sequence_id=self.sequence_id,
            schema_version=self.schema_version,
            replicate_to=self.replicate_to,
            null_value=self.null_value,
        )


# Of messages that have nothing else: bytes, or texts that are ASCII, which are encoded together.
Payloads = Sequence[bytes] | Sequence[str]


class PlainMessages(msgspec.Struct, frozen=True, gc=False):
    """The messages of an entry, all of them nothing but payloads: what they share, and what differs as a column.

    `batched` is False for one that was sent alone. Message i of a batch has the sequence id `sequence_id + i`.
    """

    payloads: list[bytes]
    batched: bool
    producer_name: str
    sequence_id: int
    publish_time: int
    schema_version: int | None
