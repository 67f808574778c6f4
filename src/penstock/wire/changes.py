"""What the messages of an entry do to the keys they name: what compaction needs to know of them."""

from .batch import split
from .compression import decompress
from .entry import is_sealed, parse
from .pulsar_pb2 import MessageMetadata, SingleMessageMetadata

Changes = list[tuple[bytes | None, bool]]


def changes(data: bytes) -> Changes | None:
    """For each message its key, None where it has none, and whether it deletes it: it is null, or empty.

    None for an entry that can only stay or go as a whole: an encrypted batch, a chunk, and one that cannot be
    understood. Raises as `parse`.
    """
    metadata, payload = parse(data)
    batch = metadata.HasField("num_messages_in_batch")
    if is_sealed(metadata) and (batch or metadata.num_chunks_from_msg > 1):
        return None
    if not batch:
        return [(_key(metadata), metadata.null_value or not payload)]
    singles = split(
        decompress(metadata.compression, payload, metadata.uncompressed_size), metadata.num_messages_in_batch
    )
    return [
        (None, False) if single is None else (_key(single), single.null_value or not body)
        for single, body in singles
    ]


def _key(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if not metadata.HasField("partition_key") or metadata.null_partition_key:
        return None
    key: str | bytes = metadata.partition_key  # bytes where it is no UTF-8
    return key if isinstance(key, bytes) else key.encode()
