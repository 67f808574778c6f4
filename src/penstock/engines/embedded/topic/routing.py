"""Which partition a message goes to: by its number, its key, or in turn (docs/architecture.md)."""

import random
from collections.abc import Callable
from typing import Final

from penstock.broker.names import check_partition
from penstock.model.hashing import java_string_hash, murmur3_32
from penstock.model.policy import Hashing, Routing

# The system's: the state of the `random` module belongs to the application, which may seed it or watch it.
_RANDOM: Final = random.SystemRandom()


def _murmur(key: str) -> int:
    return murmur3_32(key.encode())


_HASHES: dict[Hashing, Callable[[str], int]] = {
    Hashing.JAVA_STRING: java_string_hash,
    Hashing.MURMUR3_32: _murmur,
}


class Router:
    """Chooses among `count` partitions, as Pulsar's clients do."""

    def __init__(self, count: int, routing: Routing, hashing: Hashing) -> None:
        self._count = count
        self._hash = _HASHES[hashing]
        self._in_turn = routing is Routing.ROUND_ROBIN
        self._next = _RANDOM.randrange(count)

    def grow(self, count: int) -> None:
        """Choose among more from now on."""
        self._count = count

    def choose(self, key: str | None, partition: int | None) -> int:
        """The partition's number; raises PARTITION_NOT_FOUND for one that is not there."""
        if partition is not None:
            check_partition(partition, self._count)
            return partition
        if self._count == 1:
            return 0
        if key is not None:
            return self._hash(key) % self._count
        chosen = self._next
        if self._in_turn:
            self._next = (chosen + 1) % self._count
        return chosen
