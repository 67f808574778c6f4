"""An entry as it arrives to the messages a consumer may see."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.client.enums import ConsumerCryptoFailureAction
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message as Stored
from penstock.wire.checksum import seal
from penstock.wire.compression import decompress
from penstock.wire.contents import parse
from penstock.wire.entry import WireFormat
from penstock.wire.pulsar_pb2 import CommandAck, MessageMetadata

from .acks import Place
from .chunks import Chunks

_FORMAT: Final = WireFormat()


class Opened(NamedTuple):
    """The messages of an entry. `permits` is what it cost; `places` are the parts of a chunked message.

    `invalid` says why it cannot be handed on (`CommandAck.ValidationError`), None when it can. `hidden` says
    that it is to be left alone: it is encrypted.
    """

    messages: list[Stored]
    permits: int
    places: tuple[Place, ...] = ()
    invalid: int | None = None
    hidden: bool = False


def open_entry(data: bytes, place: Place, chunks: Chunks, crypto: ConsumerCryptoFailureAction) -> Opened:
    """Open an entry; a part of a larger message opens to nothing until the last one is there."""
    try:
        metadata, payload = parse(data)
        if metadata.encryption_keys:
            return _encrypted(metadata, place, data, crypto)
        if metadata.num_chunks_from_msg > 1:
            return _chunk(metadata, payload, place, chunks)
        messages = _FORMAT.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
        return Opened(messages, len(messages))
    except PenstockError as error:
        reason = CommandAck.ChecksumMismatch
        if error.kind is not ErrorKind.CHECKSUM:
            reason = CommandAck.BatchDeSerializeError
        return Opened([], 1, invalid=reason)


def _encrypted(
    metadata: MessageMetadata, place: Place, data: bytes, crypto: ConsumerCryptoFailureAction
) -> Opened:
    permits = max(1, metadata.num_messages_in_batch)
    if crypto is ConsumerCryptoFailureAction.CONSUME:
        return Opened(_FORMAT.decode(Entry(place[0], place[1], 0, 1, 0, 0, data)), permits)
    if crypto is ConsumerCryptoFailureAction.DISCARD:
        return Opened([], permits, invalid=CommandAck.DecryptionError)
    return Opened([], permits, hidden=True)


def _chunk(metadata: MessageMetadata, payload: bytes, place: Place, chunks: Chunks) -> Opened:
    whole = chunks.add(metadata, payload, place)
    if whole is None:
        return Opened([], 1)
    payload = decompress(metadata.compression, whole.payload, metadata.uncompressed_size)
    for field in ("num_chunks_from_msg", "chunk_id", "total_chunk_msg_size", "uuid", "compression"):
        metadata.ClearField(field)
    head = metadata.SerializeToString()
    data = seal(len(head).to_bytes(4, "big") + head + payload)
    messages = _FORMAT.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
    return Opened(messages, 1, whole.places)
