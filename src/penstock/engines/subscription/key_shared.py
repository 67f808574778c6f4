"""Key_Shared: a key's messages go to one consumer, in order, also while keys change hands.

A hash belongs to the consumer that the ring of points, or the consumers' own ranges, give it to; a hash with messages
out to the consumer that has them. Messages of that hash for other consumers, and all that follow them, wait aside
until those are settled (Pulsar's draining hashes, PIP-379). So do messages whose consumer has no room, so that the others
wait behind them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.model.bits import bits_of, lowest_bits
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.hashing import ring_hash, sticky_hash

from .pending import Pending, Slice
from .receiver import Receiver
from .selection import ASIDE_MAX, Give, GiveAll, Hashes, Keys, Selection, check_ranges

KNOWN_MAX: Final = 20_000  # messages whose hashes are remembered: about as many as may wait
POINTS: Final = 100  # per consumer on the ring; Pulsar's subscriptionKeySharedConsistentHashingReplicaPoints


class KeyShared(Selection):
    """The ring is that of Pulsar 4 (PIP-379): consumers of the same names share the same keys."""

    def __init__(self, keys: Keys, partition: int) -> None:
        super().__init__(keys, partition)
        self._out: dict[int, tuple[Receiver, int]] = {}  # by hash: with whom messages are, and how many
        self._aside: dict[int, list[Slice]] = {}
        self._short: dict[
            Receiver, dict[int, None]
        ] = {}  # receivers without room, and the hashes that wait for them, oldest first
        self._points: dict[int, list[Receiver]] = {}  # the first of each has it, the others collided with it
        self._places: list[int] = []
        self._numbers: dict[str, list[Receiver | None]] = {}  # consumers of one name are numbered
        self._ranges: list[tuple[int, int, Receiver]] = []
        self._whole = False  # whether a consumer acknowledges entries as a whole
        self._known: dict[int, Hashes] = {}  # by entry, the oldest first
        self._known_messages = 0

    def add(self, consumer: Receiver) -> None:
        ranges = consumer.options.key_ranges
        sticky = bool(self._ranges)
        if self.consumers and sticky != bool(ranges):
            raise PenstockError(
                ErrorKind.KEY_RANGE_TAKEN, "consumers of one subscription must all name key ranges, or none"
            )
        check_ranges(ranges, [(start, end) for start, end, _ in self._ranges])
        if not self.consumers:
            self._forget_known()  # hashes of those before: ranges have others than the ring
        self.consumers.append(consumer)
        self._whole = self._whole or consumer.options.whole_entries
        if ranges:
            self._ranges += [(start, end, consumer) for start, end in ranges]
            self._ranges.sort(key=lambda r: r[0])
            return
        number = self._number(consumer)
        for point in range(POINTS):
            place = ring_hash(f"{consumer.name}\0{number}\0{point}".encode())
            self._points.setdefault(place, []).append(consumer)
        self._places = sorted(self._points)

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
        super().remove(consumer)
        self._whole = any(other.options.whole_entries for other in self.consumers)
        self._ranges = [r for r in self._ranges if r[2] is not consumer]
        rest = ((place, [c for c in held if c is not consumer]) for place, held in self._points.items())
        self._points = {place: held for place, held in rest if held}
        self._places = sorted(self._points)
        numbers = [None if c is consumer else c for c in self._numbers.pop(consumer.name, [])]
        if any(numbers):
            self._numbers[consumer.name] = numbers

    def hash_of(self, key: bytes) -> int:
        """The hash that `owner` and the order of keys know a key by."""
        return sticky_hash(key) if self._ranges else ring_hash(key)

    def owner(self, key_hash: int) -> Receiver | None:
        """The receiver of a hash; None if no consumer named its range."""
        if self._ranges:
            at = bisect_right(self._ranges, key_hash, key=lambda r: r[0]) - 1
            if at >= 0 and self._ranges[at][0] <= key_hash <= self._ranges[at][1]:
                return self._ranges[at][2]
            return None
        if not self._places:
            return None
        place = self._places[bisect_left(self._places, key_hash) % len(self._places)]
        return self._points[place][0]

    def deal(self, entry: Entry, mask: int, give: Give) -> int:
        hashes = self._hashes_of(entry)
        for consumer, part in self._split(entry, mask, hashes, {}).items():
            give(consumer, entry, part, hashes)
        return 0

    def deal_run(self, entries: Sequence[Entry], give: GiveAll) -> int:
        rooms: dict[Receiver, int] = {}
        sizes: dict[Receiver, int] = {}
        for consumer in self.consumers:
            rooms[consumer], sizes[consumer] = consumer.room()
        given: dict[Receiver, list[tuple[Entry, int, Hashes | None]]] = {}
        done = 0
        for entry in entries:
            # A receiver with its maximum of bytes is asked again; without any room nothing more is set aside.
            if min(sizes.values()) <= 0 or max(rooms.values()) <= 0 or self.aside >= ASIDE_MAX:
                break
            hashes = self._hashes_of(entry)
            for consumer, part in self._split(entry, (1 << entry.count) - 1, hashes, rooms).items():
                given.setdefault(consumer, []).append((entry, part, hashes))
                sizes[consumer] -= len(entry.data)
            done += 1
        for consumer, some in given.items():
            give(consumer, some)
        return done

    def _split(
        self, entry: Entry, mask: int, hashes: Hashes, rooms: dict[Receiver, int]
    ) -> dict[Receiver, int]:
        """The receivers of messages now; the others wait. `rooms` has the number of messages that asked consumers take."""
        going: dict[Receiver, int] = {}
        for key_hash, bits in _by_hash(hashes, mask):
            consumer, rest = self.owner(key_hash), bits
            out_with, out = self._out.get(key_hash, (consumer, 0))
            if consumer is not None and out_with is consumer and key_hash not in self._aside:
                room = rooms.get(consumer)
                if room is None:
                    room = rooms[consumer] = consumer.capacity()
                room = max(0, room)
                part = bits if consumer.options.whole_entries and room else lowest_bits(bits, room)
                if part:
                    count = part.bit_count()
                    going[consumer] = going.get(consumer, 0) | part
                    rooms[consumer] -= count
                    self._out[key_hash] = (consumer, out + count)
                    rest = bits & ~part
            else:
                consumer = None
            if rest:
                self._wait(key_hash, Slice(entry.entry_id, entry.offset, entry.count, rest), consumer)
        return going

    def _hashes_of(self, entry: Entry) -> Hashes:
        """The hashes of an entry's keys; known as long as it may be asked for again."""
        found = self._known.get(entry.entry_id)
        if found is None:
            hashes = [self.hash_of(key) for key in self._keys(entry)]
            found = hashes[0] if len(set(hashes)) == 1 else hashes
            if entry.count > 1:
                self._remember(entry, found)
        if self._whole and not isinstance(found, int):
            return found[0]  # a consumer that acknowledges whole entries must get them whole, as in Pulsar
        return found

    def _remember(self, entry: Entry, hashes: Hashes) -> None:
        self._known[entry.entry_id] = hashes
        self._known_messages += _size(hashes)
        while self._known_messages > KNOWN_MAX and len(self._known) > 1:
            self._known_messages -= _size(self._known.pop(next(iter(self._known))))

    def _forget_known(self) -> None:
        self._known.clear()
        self._known_messages = 0

    # -- order by key

    def settled(self, part: Pending, mask: int) -> Sequence[Slice]:
        hashes = part.hashes
        if hashes is None:
            return ()
        free: list[int] = []
        if isinstance(hashes, int):
            self._settle(hashes, mask.bit_count(), free)
        else:
            for index in bits_of(mask):
                self._settle(hashes[index], 1, free)
        freed = self._release(free)
        if not self._out and not self._aside and not freed:
            self._forget_known()
        return freed

    def _settle(self, key_hash: int, count: int, free: list[int]) -> None:
        held = self._out.get(key_hash)
        if held is None:
            return
        if held[1] > count:
            self._out[key_hash] = (held[0], held[1] - count)
        else:
            del self._out[key_hash]
            free.append(key_hash)

    def _wait(self, key_hash: int, part: Slice, short_of: Receiver | None) -> None:
        """Put messages aside until their hash is free or, with `short_of`, until that consumer has room."""
        self._aside.setdefault(key_hash, []).append(part)
        self.aside += part.mask.bit_count()
        if short_of is not None:
            self._short.setdefault(short_of, {})[key_hash] = None

    def release_all(self) -> Sequence[Slice]:
        self._short.clear()
        return self._release(list(self._aside))

    def release_for_room(self) -> Sequence[Slice]:
        # No more hashes than there is room for.
        freed: list[Slice] = []
        for consumer in list(self._short):
            room = consumer.capacity()
            hashes = self._short[consumer]
            chosen = [h for h, _ in zip(hashes, range(max(0, room)), strict=False)]
            for key_hash in chosen:
                del hashes[key_hash]
            if not hashes:
                del self._short[consumer]
            freed += self._release(chosen)
        return freed

    def _release(self, hashes: Iterable[int]) -> list[Slice]:
        freed: list[Slice] = []
        for key_hash in hashes:
            freed += self._aside.pop(key_hash, ())
        self.aside -= sum(part.mask.bit_count() for part in freed)
        return freed

    def forget(self) -> None:
        self._out.clear()
        self._aside.clear()
        self._short.clear()
        self._forget_known()
        self.aside = 0


def _size(hashes: Hashes) -> int:
    return 1 if isinstance(hashes, int) else len(hashes)


def _by_hash(hashes: Hashes, mask: int) -> Iterable[tuple[int, int]]:
    """The messages in `mask` by the hashes of their keys, in the order of the first of each."""
    if isinstance(hashes, int):
        return ((hashes, mask),)
    found: dict[int, int] = {}
    for index in bits_of(mask):
        key_hash = hashes[index]
        found[key_hash] = found.get(key_hash, 0) | 1 << index
    return found.items()
