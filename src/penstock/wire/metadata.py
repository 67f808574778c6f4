"""`MessageMetadata`: what stands in front of an entry's payload."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.message import DecodeError

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Encryption, EncryptionKey, OutMessage

from .fields import Memo, integer, properties, read_properties, read_text, schema_version_bytes, sized, text
from .pulsar_pb2 import CompressionType, MessageMetadata

_PRODUCER: Final[Memo[str]] = Memo(lambda name: b"\x0a" + text(name) + b"\x10")
_PUBLISH_TIME: Final[Memo[int]] = Memo(lambda time: b"\x18" + integer(time))
_SCHEMA_VERSION: Final[Memo[int | None]] = Memo(
    lambda version: b"" if version is None else b"\x82\x01" + sized(schema_version_bytes(version))
)


def plain_metadata(producer: str, sequence_id: int, publish_time: int, schema_version: int | None) -> bytes:
    """The metadata of a message that is nothing but a payload."""
    return b"".join(
        (
            _PRODUCER[producer],
            integer(sequence_id),
            _PUBLISH_TIME[publish_time],
            _SCHEMA_VERSION[schema_version],
        )
    )


def message_metadata(
    message: OutMessage, producer: str, sequence_id: int, publish_time: int, schema_version: int | None
) -> bytes:
    """The metadata of a message that is sent alone."""
    key = message.key
    out = [_PRODUCER[producer], integer(sequence_id), _PUBLISH_TIME[publish_time]]
    if message.properties:
        out.append(properties(b"\x22", message.properties))
    if key is not None:
        out.append(b"\x32" + text(key))
    if message.replicate_to:
        out.append(_replicate_to(message.replicate_to))
    encryption = message.encryption
    if encryption is not None and encryption.compression != "NONE":
        out.append(b"\x40" + integer(CompressionType.Value(encryption.compression)))
        out.append(b"\x48" + integer(encryption.uncompressed_size))
    if message.event_time:
        out.append(b"\x60" + integer(message.event_time))
    if encryption is not None:
        out.append(_encryption(encryption))
    out.append(_SCHEMA_VERSION[schema_version])
    if key is not None and message.key_is_base64:
        out.append(b"\x88\x01\x01")
    if message.ordering_key is not None:
        out.append(b"\x92\x01" + sized(message.ordering_key))
    if message.deliver_at:
        out.append(b"\x98\x01" + integer(message.deliver_at))
    if message.null_value:
        out.append(b"\xc8\x01\x01")
    return b"".join(out)


def batch_metadata(
    count: int,
    producer: str,
    sequence_id: int,
    highest_sequence_id: int,
    publish_time: int,
    schema_version: int | None,
    messages: Sequence[OutMessage] = (),
) -> bytes:
    """The metadata of a batch.

    Keys that all `messages` share are put here as well: a broker that does not open the batch needs them to
    keep the order per key. Where a message replicates to is said per batch, by its first message.
    """
    out = [_PRODUCER[producer], integer(sequence_id), _PUBLISH_TIME[publish_time]]
    key, key_is_base64, ordering_key = _shared_keys(messages)
    if key is not None:
        out.append(b"\x32" + text(key))
    if messages and messages[0].replicate_to:
        out.append(_replicate_to(messages[0].replicate_to))
    out.append(b"\x58" + integer(count))
    out.append(_SCHEMA_VERSION[schema_version])
    if key_is_base64:
        out.append(b"\x88\x01\x01")
    if ordering_key is not None:
        out.append(b"\x92\x01" + sized(ordering_key))
    out.append(b"\xc0\x01" + integer(highest_sequence_id))
    return b"".join(out)


def parse_metadata(data: bytes) -> MessageMetadata:
    """Read the metadata. Raises BAD_ENCODING."""
    metadata = MessageMetadata()
    try:
        metadata.ParseFromString(data)
    except DecodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry's metadata cannot be read") from None
    if not metadata.IsInitialized():
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry's metadata lacks a required field")
    return metadata


def read_encryption(metadata: MessageMetadata) -> Encryption:
    """What the metadata of an encrypted entry says of how it was encrypted. Raises BAD_ENCODING."""
    return Encryption(
        keys=tuple(
            EncryptionKey(read_text(key.key), key.value, read_properties(key.metadata))
            for key in metadata.encryption_keys
        ),
        param=metadata.encryption_param,
        algorithm=read_text(metadata.encryption_algo),
        compression=CompressionType.Name(metadata.compression),
        uncompressed_size=metadata.uncompressed_size,
        batch_size=metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0,
    )


def _encryption(encryption: Encryption) -> bytes:
    """The fields 13 to 15: how a payload was encrypted (PIP-4, PIP-290). Raises BAD_ENCODING."""
    out = b""
    for key in encryption.keys:
        one = b"\x0a" + text(key.name) + b"\x12" + sized(key.value) + properties(b"\x1a", key.metadata)
        out += b"\x6a" + sized(one)
    if encryption.algorithm:
        out += b"\x72" + text(encryption.algorithm)
    return out + b"\x7a" + sized(encryption.param)


def _replicate_to(clusters: Sequence[str]) -> bytes:
    return b"".join(b"\x3a" + text(cluster) for cluster in clusters)


def _shared_keys(messages: Sequence[OutMessage]) -> tuple[str | None, bool, bytes | None]:
    if not messages:
        return None, False, None
    first = messages[0]
    key, key_is_base64, ordering_key = first.key, first.key_is_base64, first.ordering_key
    for message in messages:
        if message.key != key or message.key_is_base64 != key_is_base64:
            key = None
        if message.ordering_key != ordering_key:
            ordering_key = None
        if key is None and ordering_key is None:
            break
    return key, key is not None and key_is_base64, ordering_key
