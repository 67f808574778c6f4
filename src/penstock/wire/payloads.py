"""The payloads of an entry's messages, and nothing else of them: for readers of bytes, several times faster."""

from penstock.model.errors import PenstockError

from .batch import split
from .compression import decompress
from .entry import is_sealed, parse
from .pulsar_pb2 import NONE, MessageMetadata


class Parcel:
    """An entry that is opened as far as that costs next to nothing."""

    __slots__ = ("_metadata", "_payload", "_raw")

    def __init__(self, data: bytes) -> None:
        self._raw = data
        self._metadata: MessageMetadata | None = None
        self._payload = b""
        try:
            self._metadata, self._payload = parse(data)
        except PenstockError:
            pass  # told by `payloads`, which gives the entry as it is

    @property
    def unfolds_to(self) -> int:
        """How many bytes decompressing makes; 0 where nothing is compressed."""
        metadata = self._metadata
        if metadata is None or metadata.compression == NONE or is_sealed(metadata):
            return 0
        return int(metadata.uncompressed_size)

    def payloads(self) -> list[bytes]:
        """One for each message. What only its receiver can open is one payload as it stands; an entry that
        nobody can understand is one payload, its own bytes."""
        metadata = self._metadata
        if metadata is None:
            return [self._raw]
        if is_sealed(metadata):
            return [self._payload]
        try:
            payload = decompress(metadata.compression, self._payload, metadata.uncompressed_size)
            if not metadata.HasField("num_messages_in_batch"):
                return [payload]
            return [body for _, body in split(payload, metadata.num_messages_in_batch)]
        except PenstockError:
            return [self._raw]
