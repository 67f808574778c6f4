"""The payloads of an entry's messages, and nothing else of them: for readers of bytes, several times faster."""

import struct
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import read_varint

from .batch import MESSAGES_MAX
from .compression import decompress
from .contents import is_sealed, parse
from .pulsar_pb2 import NONE, MessageMetadata

_HEAD: Final = struct.Struct(">IB")  # the size of a message's metadata, and its first tag
_PROPERTIES: Final = 0x0A
_KEY: Final = 0x12
_PAYLOAD_SIZE: Final = 0x18


class LazyEntry:
    """An entry that is opened as far as that costs next to nothing."""

    __slots__ = ("_metadata", "_payload", "_raw")

    def __init__(self, data: bytes) -> None:
        self._raw = data
        self._metadata: MessageMetadata | None = None
        self._payload = b""
        try:
            self._metadata, self._payload = parse(data)
        except PenstockError:
            pass  # `payloads` gives the entry as it is

    @property
    def unfolds_to(self) -> int:
        """The decompressed size; 0 if nothing is compressed."""
        metadata = self._metadata
        if metadata is None or metadata.compression == NONE or is_sealed(metadata):
            return 0
        return int(metadata.uncompressed_size)

    def payloads(self) -> list[bytes]:
        """One for each message. An entry that only its receiver can open is one payload, unchanged; an entry that
        cannot be understood is one payload, its own bytes."""
        metadata = self._metadata
        if metadata is None:
            return [self._raw]
        if is_sealed(metadata):
            return [self._payload]
        try:
            payload = decompress(metadata.compression, self._payload, metadata.uncompressed_size)
            if not metadata.HasField("num_messages_in_batch"):
                return [payload]
            return _bodies(payload, metadata.num_messages_in_batch)
        except PenstockError:
            return [self._raw]


def _bodies(batch: bytes, count: int) -> list[bytes]:
    """The payload of each of `count` messages (see `batch`); of their metadata only the size is read.

    Raises BAD_ENCODING. Time and memory depend on the actual bytes, not on claimed sizes.
    """
    if not 1 <= count <= MESSAGES_MAX:
        raise _broken()
    read_head = _HEAD.unpack_from
    found: list[bytes] = []
    at = 0
    try:
        for _ in range(count):
            head, tag = read_head(batch, at)
            at += 5
            until = at + head - 1
            while tag != _PAYLOAD_SIZE:  # fields that may precede it
                if tag not in (_PROPERTIES, _KEY):
                    raise _broken()
                size, at = read_varint(batch, at)
                at += size
                tag = batch[at]
                at += 1
            size = batch[at]
            if size < 0x80:
                at += 1
            else:
                size, at = read_varint(batch, at)
            if at > until:
                raise _broken()
            at = until + size
            found.append(batch[until:at])
    except (struct.error, IndexError, ValueError):
        raise _broken() from None
    if at > len(batch):
        raise _broken()
    return found


def _broken() -> PenstockError:
    return PenstockError(ErrorKind.BAD_ENCODING, "the batch cannot be read")
