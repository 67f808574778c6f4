"""How messages are published, whatever the log: to which partition, under which sequence id, and which of them share an entry."""

import random
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from penstock.broker.names import check_partition
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage
from penstock.model.partitioning import Partitioner, hash_of_bytes, hash_of_text
from penstock.model.policy import Routing

# The system's: the state of the `random` module belongs to the application, which may seed it or watch it.
_RANDOM: Final = random.SystemRandom()
# Sequence ids of clients from here on do not raise those that the server gives, which so always fit into 63 bits.
RAISING_MAX: Final = 2**62
BATCH_MESSAGES_MAX: Final = 1000  # Pulsar's batchingMaxMessages
BATCH_BYTES_MAX: Final = 1 << 20  # keeps one entry a reasonable unit of reading and delivery
T = TypeVar("T")


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


class Numbers:
    """The sequence ids of one producer over all its partitions, or of all producers of this process that share a name.

    They rise, and are above those that clients chose, if these are below `RAISING_MAX`.
    """

    __slots__ = ("__weakref__", "next")

    def __init__(self) -> None:
        self.next = 0

    def give(self, message: OutMessage) -> int:
        """Give a message the next one, unless it has one; returns it."""
        number = message.sequence_id
        if number is None:
            number = message.sequence_id = self.next
            self.next = number + 1
        elif self.next <= number < RAISING_MAX:
            self.next = number + 1
        return number

    def give_all(self, messages: Sequence[OutMessage]) -> bool:
        """The same for several; whether one of them had one."""
        given, following = False, self.next
        for message in messages:
            number = message.sequence_id
            if number is None:
                message.sequence_id = following
                following += 1
            else:
                given = True
                if following <= number < RAISING_MAX:
                    following = number + 1
        self.next = following
        return given

    def follow(self, last: int) -> None:
        """Go on after the last one that is known."""
        self.next = max(self.next, min(last + 1, RAISING_MAX))

    def take(self, count: int) -> int:
        """Take the next `count`; returns the first of them."""
        first, self.next = self.next, self.next + count
        return first


def batch_sizes(messages: Sequence[OutMessage]) -> list[int]:
    """The number of messages of each batch: cut at changes of the schema version, around a message that goes alone, and at the bounds."""
    counts: list[int] = []
    size = 0
    last: OutMessage | None = None
    for message in messages:
        alone = _goes_alone(message)
        joins = (
            last is not None
            and not alone
            and message.schema_version == last.schema_version
            and message.replicate_to == last.replicate_to
            and counts[-1] < BATCH_MESSAGES_MAX
            and size + len(message.payload) <= BATCH_BYTES_MAX
        )
        if joins:
            counts[-1] += 1
            size += len(message.payload)
        else:
            counts.append(1)
            size = len(message.payload)
        last = None if alone else message
    return counts


def cut(items: Sequence[T], counts: Sequence[int]) -> list[Sequence[T]]:
    """`items` in runs of so many each."""
    return [items[start:end] for start, end in pairwise(accumulate(counts, initial=0))]


def _goes_alone(message: OutMessage) -> bool:
    properties = message.properties
    return (
        message.deliver_at != 0
        or message.encryption is not None
        or (properties is not None and REQUEST_TIMEOUT_PROPERTY in properties)
    )
