"""Who gets a message: the rules of the four subscription types."""

from bisect import bisect_right, insort
from typing import Final

from penstock.core.consumer import Consumer
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import murmur3_32

POINTS: Final = 100  # per consumer on the ring; Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints
HASH_RANGE: Final = 65_536


class Active:
    """Exclusive and Failover: one consumer gets everything.

    Failover orders by priority, then name, and spreads a topic's partitions over the consumers of the best
    priority (Pulsar 5.3).
    """

    def __init__(self, *, exclusive: bool, partition: int) -> None:
        self.consumers: list[Consumer] = []
        self._exclusive = exclusive
        self._partition = max(0, partition)

    def add(self, consumer: Consumer) -> None:
        if self._exclusive and self.consumers:
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "Exclusive consumer is already connected")
        insort(self.consumers, consumer, key=lambda c: (c.options.priority, c.name))

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)

    @property
    def active(self) -> Consumer | None:
        if not self.consumers:
            return None
        best = self.consumers[0].options.priority
        candidates = [c for c in self.consumers if c.options.priority == best]
        return candidates[self._partition % len(candidates)]

    def ready(self) -> bool:
        active = self.active
        return active is not None and active.capacity() > 0

    def pick(self) -> Consumer | None:
        active = self.active
        return active if active is not None and active.capacity() > 0 else None


class RoundRobin:
    """Shared: in turn among those with room, a better priority first."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._turn = 0

    def add(self, consumer: Consumer) -> None:
        insort(self.consumers, consumer, key=lambda c: c.options.priority)

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)

    def ready(self) -> bool:
        return any(c.capacity() > 0 for c in self.consumers)

    def pick(self) -> Consumer | None:
        """The next with room among the best priority that has any."""
        count = len(self.consumers)
        best: Consumer | None = None
        best_at = 0
        for step in range(count):
            at = (self._turn + step) % count
            consumer = self.consumers[at]
            if consumer.capacity() <= 0:
                continue
            if best is None or consumer.options.priority < best.options.priority:
                best, best_at = consumer, at
                if consumer.options.priority == self.consumers[0].options.priority:
                    break
        if best is not None:
            self._turn = best_at + 1
        return best


class ByKey:
    """Key_Shared: the owner of a hash on a ring of points, or of a range the consumer named itself."""

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []
        self._points: list[tuple[int, str, int, Consumer]] = []
        self._ranges: list[tuple[int, int, Consumer]] = []

    def add(self, consumer: Consumer) -> None:
        ranges = consumer.options.key_ranges
        sticky = bool(self._ranges)
        if self.consumers and sticky != bool(ranges):
            raise PenstockError(
                ErrorKind.KEY_RANGE_TAKEN, "consumers of one subscription must all name key ranges, or none"
            )
        for start, end in ranges:
            if not 0 <= start <= end < HASH_RANGE:
                raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid key range {start}-{end}")
            for taken_start, taken_end, _ in self._ranges:
                if start <= taken_end and taken_start <= end:
                    raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, f"key range {start}-{end} is taken")
        self.consumers.append(consumer)
        if ranges:
            self._ranges += [(start, end, consumer) for start, end in ranges]
            self._ranges.sort(key=lambda r: r[0])
            return
        for number in range(POINTS):
            point = murmur3_32(f"{consumer.name}{number}".encode()) % HASH_RANGE
            insort(self._points, (point, consumer.name, id(consumer), consumer), key=lambda p: p[:3])

    def remove(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        self._points = [p for p in self._points if p[3] is not consumer]
        self._ranges = [r for r in self._ranges if r[2] is not consumer]

    def ready(self) -> bool:
        return any(c.capacity() > 0 for c in self.consumers)

    def owner(self, key_hash: int) -> Consumer | None:
        """Whose the hash is; None where nobody named its range."""
        if self._ranges:
            at = bisect_right(self._ranges, key_hash, key=lambda r: r[0]) - 1
            if at >= 0 and self._ranges[at][0] <= key_hash <= self._ranges[at][1]:
                return self._ranges[at][2]
            return None
        if not self._points:
            return None
        at = bisect_right(self._points, key_hash - 1, key=lambda p: p[0])
        return self._points[at % len(self._points)][3]
