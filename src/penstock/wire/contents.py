"""The contents of an entry, as far as they can be known without decoding its messages.

    0x0e01 | CRC-32C u32 | size of the metadata u32 | metadata | payload

The checksum covers all that follows it. Old clients leave the first two out; the rest never begins like a checksum, as
its metadata would be of 225 MiB.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable
from typing import Final

import google_crc32c

from penstock.model.errors import ErrorKind, PenstockError

from .batch import split
from .compression import compress, decompress
from .metadata import integer, parse_metadata, signed, unsigned
from .pulsar_pb2 import NONE, MessageMetadata, SingleMessageMetadata

MAGIC: Final = b"\x0e\x01"
BODY_AT: Final = 6
METADATA_AT: Final = 4  # in the body
_MAGIC: Final = int.from_bytes(MAGIC, "big")
_HEAD: Final = struct.Struct(">HII")

crc32c: Final[Callable[[bytes], int]] = google_crc32c.value  # CRC-32 with Castagnoli's polynomial


def seal(body: bytes) -> bytes:
    """The entry of that body, with its checksum."""
    return b"".join((MAGIC, crc32c(body).to_bytes(4, "big"), body))


def unseal(data: bytes) -> bytes:
    """The body of an entry with or without checksum. Raises CHECKSUM, and BAD_ENCODING when it is cut short."""
    if not data.startswith(MAGIC):
        return data
    if len(data) < BODY_AT:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry ends within its checksum")
    body = data[BODY_AT:]
    if crc32c(body) != int.from_bytes(data[2:BODY_AT], "big"):
        raise _wrong()
    return body


def _wrong() -> PenstockError:
    return PenstockError(ErrorKind.CHECKSUM, "the entry's checksum is wrong")


def with_checksum(data: bytes) -> bytes:
    """The entry with a checksum; one that has it already is returned as it is, unverified."""
    return data if data.startswith(MAGIC) else seal(data)


def join(metadata: bytes, payload: bytes) -> bytes:
    """The entry of serialized metadata and a payload, with its checksum."""
    return seal(b"".join((len(metadata).to_bytes(4, "big"), metadata, payload)))


def open_body(data: bytes) -> tuple[bytes, int]:
    """The body of an entry, and the start of the payload in it, after the metadata. Raises CHECKSUM or BAD_ENCODING."""
    if len(data) >= _HEAD.size:
        magic, checksum, size = _HEAD.unpack_from(data)
        if magic == _MAGIC:  # as nearly always, and every delivery opens an entry
            body = data[BODY_AT:]
            if crc32c(body) != checksum:
                raise _wrong()
            if METADATA_AT + size <= len(body):
                return body, METADATA_AT + size
    body = unseal(data)
    until = METADATA_AT + int.from_bytes(body[:METADATA_AT], "big")
    if len(body) < METADATA_AT or until > len(body):
        raise PenstockError(ErrorKind.BAD_ENCODING, "the entry is shorter than its metadata")
    return body, until


def join_each(many: Iterable[bytes], payloads: Iterable[bytes]) -> list[bytes]:
    """The entry of each serialized metadata with its payload."""
    bodies = [
        b"".join((len(metadata).to_bytes(4, "big"), metadata, payload))
        for metadata, payload in zip(many, payloads, strict=True)
    ]
    return [b"".join((MAGIC, crc32c(body).to_bytes(4, "big"), body)) for body in bodies]


def parse(data: bytes) -> tuple[MessageMetadata, bytes]:
    """An entry's metadata, and its payload as it is. Raises CHECKSUM or BAD_ENCODING."""
    body, until = open_body(data)
    return parse_metadata(body[METADATA_AT:until]), body[until:]


def parse_head(data: bytes) -> tuple[MessageMetadata, int]:
    """An entry's metadata, and the size of its payload, which is not copied. Raises CHECKSUM or BAD_ENCODING."""
    body, until = open_body(data)
    return parse_metadata(body[METADATA_AT:until]), len(body) - until


def is_sealed(metadata: MessageMetadata) -> bool:
    """Whether only the receiver can open the payload: it is encrypted, or a chunk of a larger message."""
    return bool(metadata.encryption_keys) or metadata.num_chunks_from_msg > 1


def batch_size(data: bytes) -> int:
    """How many messages the batch in an entry has; 0 for a message that was sent alone. Raises as `parse`."""
    metadata, _ = parse(data)
    return metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 0


def payload_size(data: bytes) -> int:
    """The bytes of an entry without its metadata, as Pulsar counts them in `X-Pulsar-batch-size`. Raises as `parse`."""
    return len(data) - parse(data)[0].ByteSize()


def compressed(data: bytes, kind: int) -> bytes:
    """The entry `data`, which is neither compressed nor encrypted, with its payload compressed."""
    metadata, payload = parse(data)
    assert metadata.compression == NONE
    assert not metadata.encryption_keys
    metadata.compression = kind  # type: ignore[assignment]
    metadata.uncompressed_size = len(payload)
    return join(metadata.SerializeToString(), compress(kind, payload))


def in_transaction(data: bytes, transaction: tuple[int, int], publish_time: int) -> bytes:
    """The entry as one of a transaction, whose most and least bits its metadata name, published at `publish_time`.

    Of a field that comes twice the last counts, so that the metadata is not taken apart. Raises CHECKSUM or BAD_ENCODING.
    """
    body, until = open_body(data)
    most, least = transaction
    added = b"".join(
        (b"\x18", integer(publish_time), b"\xb0\x01", unsigned(least), b"\xb8\x01", unsigned(most))
    )
    return join(body[METADATA_AT:until] + added, body[until:])


def excerpt(data: bytes, mask: int) -> bytes | None:
    """The entry with only the messages in `mask` of its batch, for clients that acknowledge entries only as a
    whole; None if it cannot be opened."""
    try:
        metadata, payload = parse(data)
        if is_sealed(metadata) or not metadata.HasField("num_messages_in_batch"):
            return None
        singles = _split(metadata, payload, metadata.num_messages_in_batch)
    except PenstockError:
        return None
    parts: list[bytes] = []
    for index, (single, body) in enumerate(singles):
        if mask >> index & 1:
            head = (single or SingleMessageMetadata(payload_size=len(body))).SerializeToString()
            parts += (len(head).to_bytes(4, "big"), head, body)
    metadata.num_messages_in_batch = len(parts) // 3
    metadata.compression = NONE
    metadata.ClearField("uncompressed_size")
    return join(metadata.SerializeToString(), b"".join(parts))


def sticky_keys(data: bytes, count: int) -> list[bytes]:
    """What decides, for each of the `count` messages, which consumer of a Key_Shared subscription gets it; of an
    entry that cannot be opened, the entry's own."""
    try:
        metadata, payload = parse(data)
    except PenstockError:
        # Its contents are unknown. Some consumer gets it, which notices and can skip it.
        return [b""] * count
    producer, first = metadata.producer_name, signed(metadata.sequence_id)
    if metadata.HasField("num_messages_in_batch") and not is_sealed(metadata):
        try:
            singles = _split(metadata, payload, count)
        except PenstockError:
            pass  # the entry's own key, as for one that is encrypted
        else:
            return [
                unkeyed(producer, first + index)
                if single is None
                else sticky_key(
                    single,
                    producer,
                    signed(single.sequence_id) if single.HasField("sequence_id") else first + index,
                )
                for index, (single, _) in enumerate(singles)
            ]
    return [sticky_key(metadata, producer, first)] * count


def sticky_key(
    metadata: MessageMetadata | SingleMessageMetadata, producer: str | bytes, sequence_id: int
) -> bytes:
    """The ordering key, else the key, else `{producer}-{sequence id}`; never fails."""
    if metadata.HasField("ordering_key"):
        return metadata.ordering_key
    key = _key(metadata)
    if key is None:
        return unkeyed(producer, sequence_id)
    if metadata.partition_key_b64_encoded:
        try:
            return b64decode(key, validate=True)
        except ValueError:  # not base64 after all: then its text is the key
            pass
    return key


def unkeyed(producer: str | bytes, sequence_id: int) -> bytes:
    """The substitute key of a message without one."""
    name = producer if isinstance(producer, bytes) else producer.encode()
    return b"%b-%d" % (name, sequence_id)


def changes(data: bytes) -> list[tuple[bytes | None, bool]] | None:
    """What compaction needs to know of each message: its key, None if it has none, and whether it deletes it: it
    is null, or empty.

    None for an entry that can only stay or go as a whole: an encrypted batch, a chunk, and one that cannot be
    understood.
    """
    try:
        metadata, payload = parse(data)
        batch = metadata.HasField("num_messages_in_batch")
        if is_sealed(metadata) and (batch or metadata.num_chunks_from_msg > 1):
            return None
        if not batch:
            return [(_key(metadata), metadata.null_value or not payload)]
        return [
            (None, False) if single is None else (_key(single), single.null_value or not body)
            for single, body in _split(metadata, payload, metadata.num_messages_in_batch)
        ]
    except PenstockError:
        return None


def _split(
    metadata: MessageMetadata, payload: bytes, count: int
) -> list[tuple[SingleMessageMetadata | None, bytes]]:
    return split(decompress(metadata.compression, payload, metadata.uncompressed_size), count)


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if not metadata.HasField("partition_key") or metadata.null_partition_key:
        return None
    key: str | bytes = metadata.partition_key  # bytes if it is not UTF-8
    return key if isinstance(key, bytes) else key.encode()
