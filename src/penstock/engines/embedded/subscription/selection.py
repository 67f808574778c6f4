"""Who gets a message: the rules of each subscription type. Key_Shared's are in `key_shared`.

To add a type, write its class and name it in `RULES` (`subscription`).
"""

from bisect import insort
from collections.abc import Callable, Sequence

from penstock.broker.entry_format import EntryFormat
from penstock.model.bits import lowest_bits
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import KEY_SHARED_RANGE, sticky_hash

from .pending import Pending, Slice
from .receiver import Receiver

# Hands messages of an entry to a consumer; with the hashes of their keys where order by key is promised.
Give = Callable[[Receiver, Entry, int, int | list[int] | None], None]


class Selection:
    """The consumers of a subscription, and who of them gets which messages; this one is for no consumers."""

    def __init__(self, encoder: EntryFormat, partition: int) -> None:
        self.consumers: list[Receiver] = []
        self.active: Receiver | None = None  # who gets everything, where one consumer does
        self.aside = 0  # messages that wait here
        self._encoder = encoder
        self._partition = partition

    def add(self, consumer: Receiver) -> None:
        """Let a consumer take part; raises SUBSCRIPTION_BUSY, KEY_RANGE_TAKEN, BAD_PARAMETER."""
        insort(self.consumers, consumer, key=lambda c: c.options.priority)

    def remove(self, consumer: Receiver) -> None:
        self.consumers.remove(consumer)

    def ready(self) -> bool:
        """Whether a consumer has room."""
        return any(c.capacity() > 0 for c in self.consumers)

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        """Give the messages in `mask` to the consumers whose turn it is; returns those that none could take."""
        return mask

    def only(self) -> Receiver | None:
        """Who gets all that comes next, whatever it is; None where that depends on the messages, or on whose turn it is."""
        return None

    def settled(self, part: Pending, mask: int) -> Sequence[Slice]:
        """These messages, given with hashes, are no longer out; returns what need not wait now."""
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

    def ready(self) -> bool:
        return self.active is not None and self.active.capacity() > 0

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
            key_hash = sticky_hash(self._encoder.keys(entry)[0])
            if not any(start <= key_hash <= end for start, end in ranges):
                return 0
        return super().deal(entry, mask, give)

    def only(self) -> Receiver | None:
        return None if self.active is None or self.active.options.key_ranges else self.active


class Shared(Selection):
    """In turn among those with room, a better priority first."""

    _turn = 0

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        # A batch is spread over those who share, lest one of them gets all of a request's messages.
        share = -(-mask.bit_count() // len(self.consumers))
        while mask and (consumer := self._pick()) is not None:
            part = mask
            if not consumer.options.whole_entries:
                part = lowest_bits(mask, min(share, consumer.capacity()))
            mask &= ~part
            give(consumer, entry, part, None)
        return mask

    def only(self) -> Receiver | None:
        if len(self.consumers) != 1:
            return None
        self._turn = 1  # as if it was its turn
        return self.consumers[0]

    def _pick(self) -> Receiver | None:
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


def check_ranges(ranges: tuple[tuple[int, int], ...], taken: list[tuple[int, int]]) -> None:
    """Raise BAD_PARAMETER for a range that is none, KEY_RANGE_TAKEN where two of them meet."""
    taken = list(taken)
    for start, end in ranges:
        if not 0 <= start <= end < KEY_SHARED_RANGE:
            raise PenstockError(ErrorKind.BAD_PARAMETER, f"invalid key range {start}-{end}")
        for taken_start, taken_end in taken:
            if start <= taken_end and taken_start <= end:
                raise PenstockError(ErrorKind.KEY_RANGE_TAKEN, f"key range {start}-{end} is taken")
        taken.append((start, end))
