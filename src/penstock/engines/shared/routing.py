"""Which partition a message goes to."""

import random
from typing import Final

from penstock.broker.names import check_partition
from penstock.model.hashing import java_string_hash, murmur3_32
from penstock.model.policy import Hashing, Routing

# The system's: the state of the `random` module belongs to the application, which may seed it or watch it.
_RANDOM: Final = random.SystemRandom()


class Router:
    """Chooses among `count` partitions, as Pulsar's clients do: by number, by key, or in turn."""

    def __init__(self, count: int, routing: Routing, hashing: Hashing) -> None:
        self.count = count
        self._murmur = hashing is Hashing.MURMUR3_32
        self._in_turn = routing is Routing.ROUND_ROBIN
        self._next = _RANDOM.randrange(count)

    def choose(self, key: str | None, partition: int | None) -> int:
        """The partition's number; raises PARTITION_NOT_FOUND for one that is not there."""
        if partition is not None:
            check_partition(partition, self.count)
            return partition
        if self.count == 1:
            return 0
        if key is not None:
            return (murmur3_32(key.encode()) if self._murmur else java_string_hash(key)) % self.count
        chosen = self._next
        if self._in_turn:
            self._next = (chosen + 1) % self.count
        return chosen
