"""Parts of entries: those that consumers have, and those to redeliver."""

import heapq
from collections.abc import Sequence

import msgspec

from .receiver import Receiver


class Slice(msgspec.Struct, gc=False, eq=False):
    """Messages of one entry: bit i of `mask` is the message at offset `offset + i`."""

    entry_id: int
    offset: int
    count: int
    mask: int


class Pending(Slice, gc=True, eq=False):
    """What a consumer has and has not answered. `hashes` of Key_Shared: one a message, or one for all."""

    consumer: Receiver
    hashes: int | list[int] | None


class PendingTable:
    """All that is out of one subscription, by entry. `messages` says how many."""

    def __init__(self) -> None:
        self.messages = 0
        self._by_entry: dict[int, list[Pending]] = {}

    def add(self, parts: Sequence[Pending]) -> None:
        by_entry = self._by_entry
        for part in parts:
            self.messages += part.mask.bit_count()
            held = by_entry.get(part.entry_id)
            if held is None:
                by_entry[part.entry_id] = [part]
            else:
                held.append(part)

    def of(self, entry_id: int) -> list[Pending]:
        """The parts of an entry that are out."""
        return self._by_entry.get(entry_id, [])

    def release(self, part: Pending, mask: int) -> None:
        """These messages of a part are settled."""
        self.messages -= (part.mask & mask).bit_count()
        part.mask &= ~mask
        if part.mask:
            return
        held = self._by_entry[part.entry_id]
        if len(held) == 1:
            del self._by_entry[part.entry_id]
        else:
            held.remove(part)

    def mask(self, entry_id: int, consumer: Receiver | None = None) -> int:
        """Which messages of an entry are out, with one consumer or with any."""
        found = 0
        for part in self._by_entry.get(entry_id, ()):
            if consumer is None or part.consumer is consumer:
                found |= part.mask
        return found

    def has(self, consumer: Receiver) -> bool:
        """Whether a consumer has something."""
        return any(part.consumer is consumer for parts in self._by_entry.values() for part in parts)

    def with_consumer(self, consumer: Receiver) -> list[Pending]:
        """What one consumer has, in the order of the log."""
        return sorted((p for p in self.all() if p.consumer is consumer), key=lambda p: p.entry_id)

    def all(self) -> list[Pending]:
        return [p for parts in self._by_entry.values() for p in parts]

    def clear(self) -> None:
        self._by_entry.clear()
        self.messages = 0


class Replay:
    """The parts to redeliver now, the earliest first; slices of one entry are merged."""

    def __init__(self) -> None:
        self._slices: dict[int, Slice] = {}
        self._order: list[int] = []

    def add(self, part: Slice) -> None:
        held = self._slices.get(part.entry_id)
        if held is not None:
            held.mask |= part.mask
            return
        self._slices[part.entry_id] = Slice(part.entry_id, part.offset, part.count, part.mask)
        heapq.heappush(self._order, part.entry_id)

    def first(self) -> Slice | None:
        """The earliest slice, left in place."""
        return self._slices[self._order[0]] if self._order else None

    def pop(self) -> Slice:
        """Take the earliest slice."""
        return self._slices.pop(heapq.heappop(self._order))

    def run_length(self, most: int) -> int:
        """How many entries from the first on follow one another, up to `most`: what one read can fetch."""
        first = self._order[0]
        length = 1
        while length < most and first + length in self._slices:
            length += 1
        return length

    def clear(self) -> None:
        self._slices.clear()
        self._order.clear()

    def drop_before(self, offset: int) -> None:
        """Forget slices of entries that end before `offset`."""
        self._slices = {s.entry_id: s for s in self._slices.values() if s.offset + s.count > offset}
        self._order = sorted(self._slices)

    def __len__(self) -> int:
        return len(self._slices)
