"""Which partition a message goes to."""

import random
from collections.abc import Callable, Mapping
from typing import Final
from zlib import crc32

from penstock.broker.names import check_partition
from penstock.model.hashing import fnv1a, java_string_hash, murmur2, murmur3_32
from penstock.model.policy import Partitioner, Routing

# The system's: the state of the `random` module belongs to the application, which may seed it or watch it.
_RANDOM: Final = random.SystemRandom()

_OF_BYTES: Final[Mapping[Partitioner, Callable[[bytes], int]]] = {
    Partitioner.MURMUR2: murmur2,
    Partitioner.CRC32: crc32,
    Partitioner.FNV1A: fnv1a,
}


def partition_of_bytes(partitioner: Partitioner, key: bytes, count: int) -> int:
    """The partition, among `count`, of a record's key, as Kafka's clients choose it; for a partitioner that hashes bytes."""
    return _OF_BYTES[partitioner](key) % count


def partition_of_text(partitioner: Partitioner, key: str, count: int) -> int:
    """The partition, among `count`, of a message's key, as Pulsar's clients choose it; for a partitioner that hashes text."""
    return (java_string_hash(key) if partitioner is Partitioner.JAVA else murmur3_32(key.encode())) % count


class Router:
    """Chooses among `count` partitions: by number, by key as the partitioner says, or in turn."""

    def __init__(self, count: int, routing: Routing, partitioner: Partitioner) -> None:
        self.count = count
        self._partitioner = partitioner
        self._hashes_bytes = partitioner.hashes_bytes
        self._in_turn = routing is Routing.ROUND_ROBIN
        self._next = _RANDOM.randrange(count)

    def choose(self, key: str | None, partition: int | None, record_key: bytes | None = None) -> int:
        """The partition's number; raises PARTITION_NOT_FOUND for one that is not there.

        `record_key` is the key's bytes as Kafka gets them, where they may differ from the text's.
        """
        if partition is not None:
            check_partition(partition, self.count)
            return partition
        if self.count == 1:
            return 0
        if key is not None:
            if self._hashes_bytes:
                data = key.encode() if record_key is None else record_key
                return partition_of_bytes(self._partitioner, data, self.count)
            return partition_of_text(self._partitioner, key, self.count)
        chosen = self._next
        if self._in_turn:
            self._next = (chosen + 1) % self.count
        return chosen
