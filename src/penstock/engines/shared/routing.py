"""Which partition a message goes to."""

import random
from typing import Final

from penstock.broker.names import check_partition
from penstock.model.partitioning import Partitioner, hash_of_bytes, hash_of_text
from penstock.model.policy import Routing

# The system's: the state of the `random` module belongs to the application, which may seed it or watch it.
_RANDOM: Final = random.SystemRandom()


def partition_of_bytes(partitioner: Partitioner, key: bytes, count: int) -> int:
    """The partition of `count` for a record's key, as Kafka's clients choose it."""
    return hash_of_bytes(partitioner, key) % count


class Router:
    """Chooses one of `count` partitions: the given number, by key with the partitioner, or round robin."""

    def __init__(self, count: int, routing: Routing, partitioner: Partitioner) -> None:
        self.count = count
        self._partitioner = partitioner
        self._hashes_bytes = partitioner.hashes_bytes
        self._in_turn = routing is Routing.ROUND_ROBIN
        self._next = _RANDOM.randrange(count)

    def choose(self, key: str | None, partition: int | None, record_key: bytes | None = None) -> int:
        """The partition's number; raises PARTITION_NOT_FOUND.

        `record_key` are the key's bytes in Kafka, if they may differ from the text in UTF-8.
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
            return hash_of_text(self._partitioner, key) % self.count
        chosen = self._next
        if self._in_turn:
            self._next = (chosen + 1) % self.count
        return chosen
