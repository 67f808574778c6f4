"""Who gets a message: the rules of the four subscription types."""

from bisect import bisect_left, bisect_right, insort
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import KEY_SHARED_RANGE, ring_hash, sticky_hash

from .receiver import Receiver

POINTS: Final = 100  # per consumer on the ring; Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints


class Active:
    """Exclusive and Failover: one consumer gets everything.

    Failover orders by priority, then name, and spreads a topic's partitions over the consumers of the best
    priority (docs/binary.md). An Exclusive consumer may name ranges of hashes: it gets only the keys in them (readers
    that share a topic, PIP-34).
    """

    def __init__(self, *, exclusive: bool, partition: int) -> None:
        self.consumers: list[Receiver] = []
        self.ranges: tuple[tuple[int, int], ...] = ()  # () for all keys
        self._exclusive = exclusive
        self._partition = max(0, partition)

    def add(self, consumer: Receiver) -> None:
        if self._exclusive and self.consumers:
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "Exclusive consumer is already connected")
        if self._exclusive:
            _check_ranges(consumer.options.key_ranges, [])
            self.ranges = consumer.options.key_ranges
        insort(self.consumers, consumer, key=lambda c: (c.options.priority, c.name))

    def remove(self, consumer: Receiver) -> None:
        self.consumers.remove(consumer)

    @property
    def active(self) -> Receiver | None:
        if not self.consumers:
            return None
        best = self.consumers[0].options.priority
        candidates = [c for c in self.consumers if c.options.priority == best]
        return candidates[self._partition % len(candidates)]

    def wants(self, key: bytes) -> bool:
        """Whether a key is in the ranges of the consumer, where it named some."""
        key_hash = sticky_hash(key)
        return any(start <= key_hash <= end for start, end in self.ranges)

    def ready(self) -> bool:
        active = self.active
        return active is not None and active.capacity() > 0

    def pick(self) -> Receiver | None:
        active = self.active
        return active if active is not None and active.capacity() > 0 else None


class RoundRobin:
    """Shared: in turn among those with room, a better priority first."""

    def __init__(self) -> None:
        self.consumers: list[Receiver] = []
        self._turn = 0

    def add(self, consumer: Receiver) -> None:
        insort(self.consumers, consumer, key=lambda c: c.options.priority)

    def remove(self, consumer: Receiver) -> None:
        self.consumers.remove(consumer)

    def ready(self) -> bool:
        return any(c.capacity() > 0 for c in self.consumers)

    def pick(self) -> Receiver | None:
        """The next with room among the best priority that has any."""
        count = len(self.consumers)
        best: Receiver | None = None
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
    """Key_Shared: the owner of a hash on a ring of points, or of a range the consumer named itself.

    The ring is that of Pulsar 4 (PIP-379): consumers of the same names share the same keys.
    """

    def __init__(self) -> None:
        self.consumers: list[Receiver] = []
        self._points: dict[int, list[Receiver]] = {}  # the first of each has it, the others collided with it
        self._order: list[int] = []
        self._numbers: dict[str, list[Receiver | None]] = {}  # consumers of one name are numbered
        self._ranges: list[tuple[int, int, Receiver]] = []

    def add(self, consumer: Receiver) -> None:
        ranges = consumer.options.key_ranges
        sticky = bool(self._ranges)
        if self.consumers and sticky != bool(ranges):
            raise PenstockError(
                ErrorKind.KEY_RANGE_TAKEN, "consumers of one subscription must all name key ranges, or none"
            )
        _check_ranges(ranges, [(start, end) for start, end, _ in self._ranges])
        self.consumers.append(consumer)
        if ranges:
            self._ranges += [(start, end, consumer) for start, end in ranges]
            self._ranges.sort(key=lambda r: r[0])
            return
        number = self._number(consumer)
        for point in range(POINTS):
            place = ring_hash(f"{consumer.name}\0{number}\0{point}".encode())
            self._points.setdefault(place, []).append(consumer)
        self._order = sorted(self._points)

    def _number(self, consumer: Receiver) -> int:
        """The lowest number that no other consumer of this name has."""
        taken = self._numbers.setdefault(consumer.name, [])
        if None in taken:
            number = taken.index(None)
            taken[number] = consumer
            return number
        taken.append(consumer)
        return len(taken) - 1

    def remove(self, consumer: Receiver) -> None:
        self.consumers.remove(consumer)
        self._ranges = [r for r in self._ranges if r[2] is not consumer]
        rest = ((place, [c for c in held if c is not consumer]) for place, held in self._points.items())
        self._points = {place: held for place, held in rest if held}
        self._order = sorted(self._points)
        numbers = [None if c is consumer else c for c in self._numbers.pop(consumer.name, [])]
        if any(numbers):
            self._numbers[consumer.name] = numbers

    def ready(self) -> bool:
        return any(c.capacity() > 0 for c in self.consumers)

    def hash_of(self, key: bytes) -> int:
        """The hash that `owner` and the order of keys know a key by."""
        return sticky_hash(key) if self._ranges else ring_hash(key)

    def owner(self, key_hash: int) -> Receiver | None:
        """Whose the hash is; None where nobody named its range."""
        if self._ranges:
            at = bisect_right(self._ranges, key_hash, key=lambda r: r[0]) - 1
            if at >= 0 and self._ranges[at][0] <= key_hash <= self._ranges[at][1]:
                return self._ranges[at][2]
            return None
        if not self._order:
            return None
        place = self._order[bisect_left(self._order, key_hash) % len(self._order)]
        return self._points[place][0]


def _check_ranges(ranges: tuple[tuple[int, int], ...], taken: list[tuple[int, int]]) -> None:
    """Raises BAD_PARAMETER for a range that is none, KEY_RANGE_TAKEN where two of them meet."""
    taken = list(taken)
    for start, end in ranges:
        if not 0 <= start <= end < KEY_SHARED_RANGE:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid key range {start}-{end}")
        for taken_start, taken_end in taken:
            if start <= taken_end and taken_start <= end:
                raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, f"key range {start}-{end} is taken")
        taken.append((start, end))
