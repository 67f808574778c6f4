"""An entry as it arrives to the messages a consumer may see; large messages come in parts (Pulsar's chunks)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from penstock.client.enums import ConsumerCryptoFailureAction
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message as Stored
from penstock.wire import entry as wire
from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX, decompress
from penstock.wire.contents import parse, seal
from penstock.wire.pulsar_pb2 import CommandAck, MessageMetadata

from .acks import Place


class Opened(NamedTuple):
    """The messages of an entry. `permits` is what it cost; `places` are the parts of a chunked message.

    `invalid` says why it cannot be handed on (`CommandAck.ValidationError`), None when it can. `hidden` says
    that it stays as it is: it is encrypted.
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
        messages = wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
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
        return Opened(wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data)), permits)
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
    messages = wire.decode(Entry(place[0], place[1], 0, 1, 0, 0, data))
    return Opened(messages, 1, whole.places)


class _Parts(msgspec.Struct):
    total: int  # bytes of the whole message
    data: list[bytes] = []
    places: list[Place] = []


class Whole(NamedTuple):
    """A joined message: its payload, still compressed, and the ids of its chunks."""

    payload: bytes
    places: tuple[Place, ...]


class Chunks:
    """What has come of messages that are not whole yet, `pending_max` of them."""

    def __init__(self, pending_max: int) -> None:
        self._pending_max = max(1, pending_max)
        self._parts: OrderedDict[str, _Parts] = OrderedDict()
        self.dropped: list[Place] = []  # parts of messages that were given up for newer ones

    def add(self, metadata: MessageMetadata, payload: bytes, place: Place) -> Whole | None:
        """The message that this part completes. A part whose predecessors are missing is passed over."""
        name, number = metadata.uuid, metadata.chunk_id
        if number == 0:
            self._parts.pop(name, None)
            self._parts[name] = _Parts(min(metadata.total_chunk_msg_size, UNCOMPRESSED_BYTES_MAX))
            while len(self._parts) > self._pending_max:
                self.dropped += self._parts.popitem(last=False)[1].places
        parts = self._parts.get(name)
        if parts is None or number != len(parts.data):
            return None  # sent twice, or its beginning was never here
        parts.data.append(payload)
        parts.places.append(place)
        if sum(map(len, parts.data)) > parts.total:
            del self._parts[name]
            return None
        if number + 1 < metadata.num_chunks_from_msg:
            return None
        del self._parts[name]
        return Whole(b"".join(parts.data), tuple(parts.places))

    def clear(self) -> None:
        """A new connection: they are redelivered from their first chunk."""
        self._parts.clear()
        self.dropped.clear()
