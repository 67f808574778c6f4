"""Large messages that come in parts (Pulsar's chunks)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from penstock.wire.compression import UNCOMPRESSED_BYTES_MAX
from penstock.wire.pulsar_pb2 import MessageMetadata

from .acks import Place


class _Parts:
    __slots__ = ("data", "places", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.data: list[bytes] = []
        self.places: list[Place] = []


class Whole(NamedTuple):
    """A message put together: its payload, still compressed, and where its parts are."""

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
        """A new connection: they come again from their beginning."""
        self._parts.clear()
        self.dropped.clear()
