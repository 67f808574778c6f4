"""Parts of entries that are to be delivered again, in the order of the log."""

import heapq

import msgspec


class Slice(msgspec.Struct, gc=False):
    """Messages of one entry: bit i of `mask` is the message at offset `offset + i`."""

    entry_id: int
    offset: int
    count: int
    mask: int


class Replay:
    """A set of slices, the earliest first; slices of one entry are merged."""

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
        kept = [s for s in self._slices.values() if s.offset + s.count > offset]
        self._slices = {s.entry_id: s for s in kept}
        self._order = sorted(self._slices)

    def __len__(self) -> int:
        return len(self._slices)
