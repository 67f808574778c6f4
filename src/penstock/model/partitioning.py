"""The hashes by which keys choose partitions."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final
from zlib import crc32

from .hashing import fnv1a, java_string_hash, murmur2, murmur3_32

# A producer of the binary protocol with this property set to `client` chooses partitions itself: the server does not move its
# messages.
PARTITIONER_PROPERTY: Final = "penstock.partitioner"
PARTITIONER_CLIENT: Final = "client"


class Partitioner(Enum):
    """How a key chooses its partition; the values are those of `engine.partitioner`.

    Kafka's clients hash the bytes of the record's key, Pulsar's the text of the message's key.
    """

    MURMUR2 = "murmur2"  # Kafka's Java clients, Connect, Streams, Spark; librdkafka's murmur2_random
    CRC32 = "crc32"  # librdkafka's default, consistent_random
    FNV1A = "fnv1a"  # Sarama
    JAVA = "java"  # Pulsar's JavaStringHash
    MURMUR3 = "murmur3"  # Pulsar's Murmur3_32Hash

    @property
    def hashes_bytes(self) -> bool:
        """Whether it hashes the bytes of a record's key, as Kafka's clients do."""
        return self in _OF_BYTES


_OF_BYTES: Final[Mapping[Partitioner, Callable[[bytes], int]]] = {
    Partitioner.MURMUR2: murmur2,
    Partitioner.CRC32: crc32,
    Partitioner.FNV1A: fnv1a,
}


def hash_of_bytes(partitioner: Partitioner, key: bytes) -> int:
    """The hash of a record's key, not negative; for a partitioner that hashes bytes."""
    return _OF_BYTES[partitioner](key)


def hash_of_text(partitioner: Partitioner, key: str) -> int:
    """The hash of a message's key, not negative; for a partitioner that hashes text."""
    return java_string_hash(key) if partitioner is Partitioner.JAVA else murmur3_32(key.encode())
