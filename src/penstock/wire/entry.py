"""Entries: messages to the bytes that are stored and sent, and back.

    0x0e01 | CRC-32C u32 | metadata size u32 | MessageMetadata | payload

Published entries are written by hand, as each request pays for them; read entries go through
protobuf, but for entries and messages that are nothing but payloads.
"""

from collections.abc import Sequence
from typing import Final

from penstock.model.entry import Entry, NewEntry, NewRun
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage, Payloads, PlainMessages

from .batch import MESSAGE_BYTES_MIN, MESSAGES_MAX, pack, pack_plain
from .columns import plain_messages
from .compression import UNCOMPRESSED_BYTES_MAX, decompress
from .contents import changes as changes_in
from .contents import is_sealed, join, join_each, parse, parse_head, sticky_keys, with_checksum
from .messages import read_alone, read_messages
from .metadata import (
    batch_metadata,
    message_metadata,
    metadata_of_each,
    plain_metadata,
    plain_metadata_of_each,
    read_text,
    schema_version_number,
    signed,
)
from .pulsar_pb2 import NONE, MessageMetadata

CACHED_MAX: Final = 16  # decoded batches
CACHED_BYTES_MAX: Final = 256 * 1024  # of one of them


# A batch that is spread over several consumers is decoded for each of them: the last few are kept.
_decoded: Final[dict[int, tuple[Entry, list[Message]]]] = {}


def encode(
    messages: Sequence[OutMessage],
    *,
    producer: str,
    sequence_id: int,
    publish_time: int,
    schema_version: int | None,
) -> NewEntry:
    """One entry of all `messages`: alone when there is one of them, else a batch.

    Raises BAD_ENCODING for what has no bytes (lone surrogates, numbers beyond 64 bits), and TOO_LARGE.
    """
    count = len(messages)
    if count == 1:
        return _encode_alone(messages[0], producer, sequence_id, publish_time, schema_version)
    _check_count(count)
    assert not any(m.deliver_at or m.encryption for m in messages), "such messages come alone"
    ids = [
        following if message.sequence_id is None else message.sequence_id
        for following, message in enumerate(messages, sequence_id)
    ]
    highest = max(ids)
    metadata = batch_metadata(count, producer, ids[0], highest, publish_time, schema_version, messages)
    return NewEntry(
        data=join(metadata, pack(messages, ids)),
        count=count,
        publish_time=publish_time,
        producer=producer,
        sequence_id=highest,
    )


def encode_each(messages: Sequence[OutMessage], *, producer: str, publish_time: int) -> list[NewEntry]:
    """An entry of each message, with its own sequence id and schema version."""
    many = metadata_of_each(messages, producer, publish_time)
    data = join_each(many, [message.payload for message in messages])
    return [
        NewEntry(
            content,
            1,
            publish_time,
            message.deliver_at if message.deliver_at > 0 else 0,
            producer,
            message.sequence_id or 0,
        )
        for message, content in zip(messages, data, strict=True)
    ]


def encode_plain(
    payloads: Payloads,
    *,
    producer: str,
    sequence_id: int,
    publish_time: int,
    schema_version: int | None,
) -> NewEntry:
    """`encode` of messages that are nothing but payloads, faster."""
    count = len(payloads)
    highest = sequence_id + count - 1
    if count == 1:
        metadata = plain_metadata(producer, sequence_id, publish_time, schema_version)
        first = payloads[0]
        payload = first.encode() if isinstance(first, str) else first
    else:
        _check_count(count)
        metadata = batch_metadata(count, producer, sequence_id, highest, publish_time, schema_version)
        payload = pack_plain(payloads)
    return NewEntry(
        data=join(metadata, payload),
        count=count,
        publish_time=publish_time,
        producer=producer,
        sequence_id=highest,
    )


def encode_plain_each(
    payloads: Payloads,
    *,
    producer: str,
    sequence_id: int,
    publish_time: int,
    schema_version: int | None,
) -> NewRun:
    """An entry of each of such messages, which count from `sequence_id` on."""
    count = len(payloads)
    metadata = plain_metadata_of_each(count, producer, sequence_id, publish_time, schema_version)
    encoded = [each.encode() if isinstance(each, str) else each for each in payloads]
    return NewRun(join_each(metadata, encoded), publish_time)


def decode(entry: Entry) -> list[Message]:
    """Every message of an entry; the list is shared and must not be changed. Raises CHECKSUM or BAD_ENCODING."""
    if entry.count == 1 or len(entry.data) > CACHED_BYTES_MAX:
        return read_messages(entry.data, entry.offset)
    cached = _decoded.get(entry.entry_id % CACHED_MAX)
    if cached is not None and cached[0].data is entry.data and cached[0].offset == entry.offset:
        return cached[1]
    messages = read_messages(entry.data, entry.offset)
    _decoded[entry.entry_id % CACHED_MAX] = entry, messages
    return messages


def plain(entry: Entry) -> PlainMessages | None:
    """The same without an object for each, if all of them are plain."""
    return plain_messages(entry)


def keys(entry: Entry) -> list[bytes]:
    """What Key_Shared hashes, for each message; of an entry that cannot be opened, the entry's own."""
    return sticky_keys(entry.data, entry.count)


def changes(entry: Entry) -> list[tuple[bytes | None, bool]] | None:
    """What each message does to its key, for compaction; None for an entry that stays as a whole."""
    return changes_in(entry.data)


def admit(data: bytes) -> NewEntry:
    """An entry as a client sent it, ready to be appended, with a checksum if it came without.

    What the metadata claims is checked as far as it can be without opening the payload, because offsets
    are counted by it. Raises CHECKSUM or BAD_ENCODING.
    """
    return admit_versioned(data)[0]


def admit_versioned(data: bytes) -> tuple[NewEntry, int | None]:
    """`admit`, and the schema version that the entry names."""
    metadata, payload_bytes = parse_head(data)
    publish_time = signed(metadata.publish_time)
    if publish_time < 0:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the publish time does not fit into 63 bits")
    schema_version = schema_version_number(metadata.schema_version)
    entry = NewEntry(
        data=with_checksum(data),
        count=_claimed_count(metadata, payload_bytes),
        publish_time=publish_time,
        deliver_at=max(0, metadata.deliver_at_time),
        producer=read_text(metadata.producer_name),
        sequence_id=_deduplicated_id(metadata),
    )
    return entry, schema_version


def whole_batch(entry: Entry) -> tuple[Message, int] | None:
    """The batch in an entry as one message, whose payload is the batch uncompressed, and how many messages it has.

    None for a message that was sent alone, and if only the receiver can open the payload. Raises as `parse`.
    """
    metadata, payload = parse(entry.data)
    if is_sealed(metadata) or not metadata.HasField("num_messages_in_batch"):
        return None
    body = decompress(metadata.compression, payload, metadata.uncompressed_size)
    return read_alone(metadata, body, entry.offset), metadata.num_messages_in_batch


def _check_count(count: int) -> None:
    assert count > 0, "an entry holds at least one message"
    if count > MESSAGES_MAX:
        raise PenstockError(
            ErrorKind.TOO_LARGE, f"{count} messages at once; at most {MESSAGES_MAX} are taken"
        )


def _encode_alone(
    message: OutMessage, producer: str, sequence_id: int, publish_time: int, schema_version: int | None
) -> NewEntry:
    if message.sequence_id is not None:
        sequence_id = message.sequence_id
    metadata = message_metadata(message, producer, sequence_id, publish_time, schema_version)
    return NewEntry(
        data=join(metadata, message.payload),
        count=1,
        publish_time=publish_time,
        deliver_at=max(0, message.deliver_at),
        producer=producer,
        sequence_id=sequence_id,
    )


def _claimed_count(metadata: MessageMetadata, payload_bytes: int) -> int:
    if not metadata.HasField("num_messages_in_batch") or metadata.num_chunks_from_msg > 1:
        return 1
    count = metadata.num_messages_in_batch
    if metadata.compression != NONE:
        payload_bytes = metadata.uncompressed_size
        if payload_bytes > UNCOMPRESSED_BYTES_MAX:
            raise PenstockError(ErrorKind.BAD_ENCODING, f"a batch of {payload_bytes} bytes")
    if not 1 <= count <= min(MESSAGES_MAX, payload_bytes // MESSAGE_BYTES_MIN):
        raise PenstockError(ErrorKind.BAD_ENCODING, f"{count} messages in a batch of {payload_bytes} bytes")
    return count


def _deduplicated_id(metadata: MessageMetadata) -> int:
    """The highest sequence id in the entry.

    All chunks of a message have the same: only the last one's counts, else the others were its duplicates.
    """
    if metadata.num_chunks_from_msg > 1 and metadata.chunk_id < metadata.num_chunks_from_msg - 1:
        return -1
    return max(signed(metadata.sequence_id), signed(metadata.highest_sequence_id))
