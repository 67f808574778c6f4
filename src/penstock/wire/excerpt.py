"""Part of a batch as a batch of its own, for clients that acknowledge entries only as a whole."""

from penstock.model.errors import PenstockError

from .batch import split
from .checksum import seal
from .compression import decompress
from .entry import is_sealed, parse
from .pulsar_pb2 import NONE, SingleMessageMetadata


def excerpt(data: bytes, mask: int) -> bytes | None:
    """The entry with only the messages in `mask` of its batch; None where it cannot be opened."""
    try:
        metadata, payload = parse(data)
        if is_sealed(metadata) or not metadata.HasField("num_messages_in_batch"):
            return None
        singles = split(
            decompress(metadata.compression, payload, metadata.uncompressed_size),
            metadata.num_messages_in_batch,
        )
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
    head = metadata.SerializeToString()
    return seal(b"".join((len(head).to_bytes(4, "big"), head, *parts)))
