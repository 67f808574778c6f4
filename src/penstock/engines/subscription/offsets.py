"""A set of offsets that grows from below: everything under `mark`, and bits beyond it."""

from collections.abc import Iterator
from typing import Final

# Offsets per chunk: 512 bytes as bits, so a sparse set costs an eighth of a byte an offset.
CHUNK: Final = 4096
_FULL: Final = (1 << CHUNK) - 1


class OffsetSet:
    """The acknowledged offsets of a cursor.

    Invariants: `mark` is the least offset that is not in the set; no chunk is empty, and none lies wholly
    below the mark. Chunks changed since `take_changes` are remembered, so that saving costs what changed.
    """

    __slots__ = ("_changed", "_chunks", "_mark_changed", "beyond", "mark")

    def __init__(self, mark: int = 0) -> None:
        self.mark = mark
        self.beyond = 0  # how many offsets above the mark are in the set
        self._chunks: dict[int, int] = {}
        self._changed: set[int] = set()
        self._mark_changed = False

    @classmethod
    def load(cls, mark: int, chunks: dict[int, bytes | None]) -> "OffsetSet":
        """A set as it was saved; bits below the mark and trailing junk are dropped."""
        loaded = cls(mark)
        for number, data in chunks.items():
            bits = int.from_bytes(data, "little") & _FULL if data else 0
            start = number * CHUNK
            if mark > start:
                bits = bits >> (mark - start) << (mark - start) if mark - start < CHUNK else 0
            if bits:
                loaded._chunks[number] = bits
                loaded.beyond += bits.bit_count()
        loaded._advance()
        loaded._changed.clear()
        loaded._mark_changed = False
        return loaded

    def add(self, offset: int, mask: int) -> int:
        """Add `offset + i` for every bit i of `mask`; returns the bits that were new."""
        if offset < self.mark:
            mask >>= min(self.mark - offset, mask.bit_length())
            shift, offset = self.mark - offset, self.mark
        else:
            shift = 0
        if not mask:
            return 0
        if offset == self.mark and not self.beyond and not mask & (mask + 1):
            self.mark += mask.bit_length()  # the common case: in order, without a gap
            self._mark_changed = True
            return mask << shift
        new = self._add_bits(offset, mask)
        if new & 1 and offset == self.mark:
            self._advance()
        return new << shift

    def _add_bits(self, offset: int, mask: int) -> int:
        new, done = 0, 0
        while mask:
            number, at = divmod(offset, CHUNK)
            part = (mask << at) & _FULL
            had = self._chunks.get(number, 0)
            fresh = part & ~had
            if fresh:
                self._chunks[number] = had | part
                self._changed.add(number)
                self.beyond += fresh.bit_count()
                new |= fresh >> at << done
            taken = CHUNK - at
            mask >>= taken
            offset += taken
            done += taken
        return new

    def add_range(self, start: int, end: int) -> None:
        """Add everything from `start` up to, not with, `end`; costs little for each chunk that is full then."""
        if start <= self.mark:
            self.raise_mark(end)
            return
        while start < end:
            number, at = divmod(start, CHUNK)
            size = min(CHUNK - at, end - start)
            if size == CHUNK:
                self.beyond += CHUNK - self._chunks.get(number, 0).bit_count()
                self._chunks[number] = _FULL
                self._changed.add(number)
            else:
                self._add_bits(start, (1 << size) - 1)
            start += size

    def raise_mark(self, offset: int) -> None:
        """Add everything below `offset`."""
        if offset <= self.mark:
            return
        last = offset // CHUNK
        for number in [n for n in self._chunks if n < last]:
            self.beyond -= self._chunks.pop(number).bit_count()
            self._changed.add(number)
        if last in self._chunks:
            low = self._chunks[last] & ((1 << (offset % CHUNK)) - 1)
            self.beyond -= low.bit_count()
            self._set_chunk(last, self._chunks[last] & ~low)
        self.mark = offset
        self._mark_changed = True
        self._advance()

    def _set_chunk(self, number: int, bits: int) -> None:
        if bits:
            self._chunks[number] = bits
        else:
            self._chunks.pop(number, None)
        self._changed.add(number)

    def _advance(self) -> None:
        """Move the mark over what follows it without a gap."""
        while True:
            number, at = divmod(self.mark, CHUNK)
            bits = self._chunks.get(number)
            if bits is None:
                return
            run = (~(bits >> at) & ((bits >> at) + 1)).bit_length() - 1
            if not run:
                return
            self.mark += run
            self.beyond -= run
            self._mark_changed = True
            self._set_chunk(number, bits >> (at + run) << (at + run))

    def mask(self, offset: int, count: int) -> int:
        """Which of the `count` offsets from `offset` are in the set, as bits."""
        below = min(count, max(0, self.mark - offset))
        found = (1 << below) - 1
        if below == count or not self.beyond:
            return found
        at = offset + below
        while at < offset + count:
            number, first = divmod(at, CHUNK)
            taken = min(CHUNK - first, offset + count - at)
            bits = self._chunks.get(number)
            if bits:
                found |= ((bits >> first) & ((1 << taken) - 1)) << (at - offset)
            at += taken
        return found

    def next_gap(self, offset: int) -> int:
        """The least offset from `offset` on that is not in the set."""
        offset = max(offset, self.mark)
        while True:
            number, at = divmod(offset, CHUNK)
            bits = self._chunks.get(number, 0) >> at
            if not bits & 1:
                return offset
            run = (~bits & (bits + 1)).bit_length() - 1
            offset += run
            if at + run < CHUNK:
                return offset

    def ranges(self) -> Iterator[tuple[int, int]]:
        """The runs beyond the mark, as (first, last), both inclusive, in order."""
        start = end = -1
        for number in sorted(self._chunks):
            bits, base = self._chunks[number], number * CHUNK
            while bits:
                skip = (bits & -bits).bit_length() - 1
                bits >>= skip
                run = (~bits & (bits + 1)).bit_length() - 1
                bits >>= run
                base += skip
                if base == end + 1 and start >= 0:
                    end = base + run - 1
                else:
                    if start >= 0:
                        yield start, end
                    start, end = base, base + run - 1
                base += run
        if start >= 0:
            yield start, end

    @property
    def changed(self) -> bool:
        return self._mark_changed or bool(self._changed)

    def take_changes(self) -> dict[int, bytes | None]:
        """The chunks changed since the last call, in `CursorChange`'s form; forgets that they changed."""
        changes: dict[int, bytes | None] = {}
        for number in self._changed:
            bits = self._chunks.get(number)
            changes[number] = None if bits is None else bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        self._changed.clear()
        self._mark_changed = False
        return changes

    def touch(self, chunks: dict[int, bytes | None]) -> None:
        """Mark `chunks` as changed again: they could not be saved."""
        self._changed.update(chunks)
        self._mark_changed = True

    def reset(self, mark: int) -> None:
        """Become the set of everything below `mark`."""
        self._changed.update(self._chunks)
        self._chunks.clear()
        self.beyond = 0
        self.mark = mark
        self._mark_changed = True
