"""The choice of a receiver: the rules of each subscription type. Key_Shared's are in `key_shared`.

To add a type, write its class and name it in `RULES` (`subscription`).
"""

from bisect import insort
from collections.abc import Callable, Sequence
from typing import Final

from penstock.model.bits import lowest_bits
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import KEY_SHARED_RANGE, sticky_hash

from .pending import Pending, Slice
from .receiver import Receiver

ASIDE_MAX: Final = 20_000  # messages waiting for their keys before nothing more is read; bounds memory

# The bytes that Key_Shared hashes, for each message of an entry.
Keys = Callable[[Entry], list[bytes]]

# One for all messages of an entry, or one for each.
Hashes = int | list[int]

# Hands messages of an entry to a consumer; with the hashes of their keys if order by key is promised.
Give = Callable[[Receiver, Entry, int, Hashes | None], None]

# Hands messages of several entries to a consumer, none of which was delivered before.
GiveAll = Callable[[Receiver, Sequence[tuple[Entry, int, Hashes | None]]], None]


class Selection:
    """The consumers of a subscription, and the choice among them; this one is for no consumers."""

    def __init__(self, keys: Keys, partition: int) -> None:
        self.consumers: list[Receiver] = []
        self.active: Receiver | None = None  # the one that gets everything, if there is one
        self.aside = 0  # messages that wait here
        self._keys = keys
        self._partition = partition

    def add(self, consumer: Receiver) -> None:
        """Let a consumer take part; raises SUBSCRIPTION_BUSY, KEY_RANGE_TAKEN, BAD_PARAMETER."""
        insort(self.consumers, consumer, key=lambda c: c.options.priority)

    def remove(self, consumer: Receiver) -> None:
        self.consumers.remove(consumer)

    def room(self) -> int:
        """How many messages the consumers take."""
        return sum([max(0, consumer.capacity()) for consumer in self.consumers])

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        """Give the messages in `mask` to the consumers whose turn it is; returns those that none could take."""
        return mask

    def deal_run(self, entries: Sequence[Entry], give: GiveAll) -> int:
        """Give entries that follow one another and were never delivered, as `deal` would one after the other, but each consumer
        its own at once; returns how many. Those that cannot be given as a whole are left, with all that follow."""
        consumer = self.only()
        if consumer is None:
            return 0
        messages, size_max = consumer.room()
        size = done = 0
        for entry in entries:
            messages -= entry.count
            if messages < 0 or size >= size_max:
                break
            size += len(entry.data)
            done += 1
        if done:
            give(consumer, [(entry, (1 << entry.count) - 1, None) for entry in entries[:done]])
        return done

    def only(self) -> Receiver | None:
        """The receiver of all that comes next; None if that depends on the messages, or on turns."""
        return None

    def settled(self, part: Pending, mask: int) -> Sequence[Slice]:
        """These messages, given with hashes, are settled; returns those that need not wait now."""
        return ()

    def release_all(self) -> Sequence[Slice]:
        """Everything that waits: the consumers changed."""
        return ()

    def release_for_room(self) -> Sequence[Slice]:
        """What waited for room that is there now."""
        return ()

    def forget(self) -> None:
        """The cursor moved: nothing of before is out or waits."""


class Failover(Selection):
    """One consumer gets everything: the consumers are ordered by priority, then name, and a topic's partitions are
    spread over those of the best priority (docs/binary.md)."""

    def add(self, consumer: Receiver) -> None:
        insort(self.consumers, consumer, key=lambda c: (c.options.priority, c.name))
        self._elect()

    def remove(self, consumer: Receiver) -> None:
        super().remove(consumer)
        self._elect()

    def _elect(self) -> None:
        best = [c for c in self.consumers if c.options.priority == self.consumers[0].options.priority]
        self.active = best[self._partition % len(best)] if best else None

    def room(self) -> int:
        return 0 if self.active is None else self.active.capacity()

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        consumer = self.active
        while mask and consumer is not None and (room := consumer.capacity()) > 0:
            part = mask if consumer.options.whole_entries else lowest_bits(mask, room)
            mask &= ~part
            give(consumer, entry, part, None)
        return mask

    def only(self) -> Receiver | None:
        return self.active


class Exclusive(Failover):
    """One consumer takes part. It may name ranges of hashes: then it gets only the keys in them (readers that share a
    topic, PIP-34)."""

    def add(self, consumer: Receiver) -> None:
        if self.consumers:
            raise PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "Exclusive consumer is already connected")
        check_ranges(consumer.options.key_ranges, [])
        super().add(consumer)

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        # What the consumer did not ask for is passed over, neither out nor acknowledged, as in Pulsar. An entry is
        # judged by its first key.
        ranges = () if self.active is None else self.active.options.key_ranges
        if ranges:
            key_hash = sticky_hash(self._keys(entry)[0])
            if not any(start <= key_hash <= end for start, end in ranges):
                return 0
        return super().deal(entry, mask, give)

    def only(self) -> Receiver | None:
        return None if self.active is None or self.active.options.key_ranges else self.active


class Shared(Selection):
    """In turn among those with room, a better priority first."""

    _turn = 0

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        share = self._share(mask.bit_count())
        rooms = [consumer.capacity() for consumer in self.consumers]
        while mask and (at := self._pick(rooms)) >= 0:
            consumer = self.consumers[at]
            part = self._part(consumer, mask, min(share, rooms[at]))
            mask &= ~part
            give(consumer, entry, part, None)
            rooms[at] = consumer.capacity()
        return mask

    def deal_run(self, entries: Sequence[Entry], give: GiveAll) -> int:
        consumers = self.consumers
        if len(consumers) == 1:
            return super().deal_run(entries, give)
        rooms, sizes = map(list, zip(*[consumer.room() for consumer in consumers], strict=True))
        given: list[list[tuple[Entry, int, None]]] = [[] for _ in consumers]
        done = 0
        for entry in entries:
            turn, mask, parts = self._turn, (1 << entry.count) - 1, []
            share = self._share(entry.count)
            while mask and (at := self._pick(rooms)) >= 0 and sizes[at] > 0:
                part = self._part(consumers[at], mask, min(share, rooms[at]))
                mask &= ~part
                rooms[at] -= part.bit_count()
                sizes[at] -= len(entry.data)
                parts.append((at, part))
            if mask:
                self._turn = turn
                break
            for at, part in parts:
                given[at].append((entry, part, None))
            done += 1
        for consumer, some in zip(consumers, given, strict=True):
            if some:
                give(consumer, some)
        return done

    def _share(self, count: int) -> int:
        """A batch is spread over sharing consumers, so that one of them does not get all messages of a request."""
        return -(-count // len(self.consumers))

    def _part(self, consumer: Receiver, mask: int, most: int) -> int:
        return mask if consumer.options.whole_entries else lowest_bits(mask, most)

    def only(self) -> Receiver | None:
        if len(self.consumers) != 1:
            return None
        self._turn = 1  # as if it was its turn
        return self.consumers[0]

    def _pick(self, rooms: Sequence[int]) -> int:
        """The place of the next with room among the best priority that has any; -1 for none."""
        count = len(rooms)
        first = self.consumers[0].options.priority
        best = found = -1
        for step in range(count):
            at = (self._turn + step) % count
            if rooms[at] <= 0:
                continue
            priority = self.consumers[at].options.priority
            if found < 0 or priority < best:
                best, found = priority, at
                if priority == first:
                    break
        if found >= 0:
            self._turn = found + 1
        return found


def check_ranges(ranges: tuple[tuple[int, int], ...], taken: list[tuple[int, int]]) -> None:
    """Raise BAD_PARAMETER for an invalid range, KEY_RANGE_TAKEN if two of them overlap."""
    taken = list(taken)
    for start, end in ranges:
        if not 0 <= start <= end < KEY_SHARED_RANGE:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid key range {start}-{end}")
        for taken_start, taken_end in taken:
            if start <= taken_end and taken_start <= end:
                raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, f"key range {start}-{end} is taken")
        taken.append((start, end))
