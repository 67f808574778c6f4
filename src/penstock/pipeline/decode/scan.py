"""Many Avro payloads scanned at once, field by field instead of payload by payload.

Every row has a position in the joined payloads; reading a field moves all positions. So a thousand rows cost
hardly more calls than one. The rules are those of `penstock.codec.avro.read`, and the tests compare the two: a row
that is accepted here is accepted there, with the same value, and a row that is refused is refused.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from penstock.codec.avro.read import EMPTY_ITEMS_MAX
from penstock.codec.avro.types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union

from .raw import Choice, Fields, Flags, Ints, Items, Nothing, Numbers, Raw, Scalars, Spans, join, spread, take

PADDING: Final = 8  # so that eight bytes can be read wherever one can


class Cursor:
    """Where each row is read next, and which rows turned out to be broken.

    No read looks for the end of its row: positions only grow, so a row is whole exactly if it ends where its payload ends.
    """

    __slots__ = ("at", "bad", "data", "ends", "words")

    def __init__(self, data: Numbers, words: Numbers, at: Ints, ends: Ints) -> None:
        self.data = data
        self.words = words
        self.at = at
        self.ends = ends
        self.bad = np.zeros(len(at), np.bool_)

    def some(self, index: Ints) -> "Cursor":
        """The rows at `index` alone; `back` brings home what became of them."""
        return Cursor(self.data, self.words, self.at[index], self.ends[index])

    def back(self, part: "Cursor", index: Ints) -> None:
        self.at = self.at.copy()  # what was found before holds on to the old places
        self.at[index] = part.at
        self.bad[index] |= part.bad

    def fail(self, flags: Flags) -> None:
        """Broken rows stay at their end."""
        if flags.any():
            self.bad |= flags
            self.at = np.where(flags, self.ends, self.at)

    def byte(self) -> Numbers:
        found = self.data.take(self.at, mode="clip")
        self.at = self.at + 1
        return found

    def long(self) -> Ints:
        """Zigzag, seven bits a byte, of at most ten bytes and 64 bits."""
        raw = self._varint()
        return ((raw >> np.uint64(1)) ^ (np.uint64(0) - (raw & np.uint64(1)))).view(np.int64)

    def small(self) -> Ints:
        """The same, of at most 32 bits."""
        value = self.long()
        self.fail((value < -(1 << 31)) | (value >= 1 << 31))
        return value

    def _varint(self) -> Numbers:
        first = self.byte()
        value = first.astype(np.uint64)
        going = np.flatnonzero(first > 0x7F)
        if not len(going):
            return value
        at = self.at[going]
        found = value[going] & np.uint64(0x7F)
        for shift in range(7, 70, 7):
            byte = self.data.take(at, mode="clip")
            at += 1
            found |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            more = byte > 0x7F
            if shift == 63:
                self.bad[going[byte > 1]] = True  # an eleventh byte, or a 65th bit
                more = np.zeros(len(byte), np.bool_)
            last = going[~more] if more.any() else going
            if len(last) == len(going):
                value[going], self.at[going] = found, at
                break
            value[last], self.at[last] = found[~more], at[~more]
            going, at, found = going[more], at[more], found[more]
        return value

    def word(self, width: int) -> Numbers:
        """`width` bytes, 4 or 8, in a word of eight."""
        found = self.words[np.minimum(self.at, len(self.words) - 1)]
        self.at = self.at + width
        return found

    def span(self, length: Ints) -> Spans:
        """The next `length` bytes; broken where there are not so many."""
        self.fail((length < 0) | (length > self.ends - self.at))
        begins = self.at
        self.at = np.where(self.bad, begins, begins + length)
        return Spans(begins, self.at)


Scan = Callable[[Cursor], Raw]


def scan(read: Scan, data: bytes | memoryview, begins: Ints, ends: Ints) -> tuple[Raw, Flags, Numbers]:
    """Read `data[begins:ends]`, a payload a row: what they hold, which are broken, and the bytes.

    Where `data` goes on for a while behind the last payload, it is not copied.
    """
    padded = np.frombuffer(data, np.uint8)
    if len(padded) < (int(ends.max()) if len(ends) else 0) + PADDING:
        padded = np.zeros(len(data) + PADDING, np.uint8)
        padded[: len(data)] = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(padded) - PADDING + 1,), "<u8", padded.data, 0, (1,))
    cursor = Cursor(padded, words, begins.astype(np.int64), ends.astype(np.int64))
    raw = read(cursor)
    return raw, cursor.bad | (cursor.at != cursor.ends), padded


def compile_scan(kind: Type) -> Scan:
    """The scan of a type that does not contain itself."""
    if isinstance(kind, Record):
        return _record([compile_scan(field.type) for field in kind.fields])
    if isinstance(kind, Array):
        return _items(compile_scan(kind.items), least(kind.items))
    if isinstance(kind, Map):
        pair = _record([_bytes, compile_scan(kind.values)])
        return _items(pair, 1 + least(kind.values))
    if isinstance(kind, Union):
        return _union(kind)
    if isinstance(kind, Fixed):
        return _fixed(kind.size)
    if isinstance(kind, Enum):
        return _enum(len(kind.symbols))
    return _PRIMITIVES[kind.kind]


def least(kind: Type) -> int:
    """The fewest bytes that a value takes."""
    if isinstance(kind, Fixed):
        return kind.size
    if isinstance(kind, Primitive):
        return {"null": 0, "float": 4, "double": 8}.get(kind.kind, 1)
    return sum(least(field.type) for field in kind.fields) if isinstance(kind, Record) else 1


def _boolean(cursor: Cursor) -> Raw:
    value = cursor.byte()
    cursor.fail(value > 1)
    return Scalars(value == 1)


def _bytes(cursor: Cursor) -> Raw:
    return cursor.span(cursor.long())


_PRIMITIVES: Final[dict[str, Scan]] = {
    "null": lambda cursor: Nothing(len(cursor.at), np.zeros(len(cursor.at), np.bool_)),
    "boolean": _boolean,
    "int": lambda cursor: Scalars(cursor.small()),
    "long": lambda cursor: Scalars(cursor.long()),
    "float": lambda cursor: Scalars(cursor.word(4).astype(np.uint32).view(np.float32)),
    "double": lambda cursor: Scalars(cursor.word(8).astype(np.uint64).view(np.float64)),
    "bytes": _bytes,
    "string": _bytes,
}


def _fixed(size: int) -> Scan:
    return lambda cursor: cursor.span(np.full(len(cursor.at), size, np.int64))


def _enum(symbols: int) -> Scan:
    def read(cursor: Cursor) -> Raw:
        index = cursor.small()
        unknown = (index < 0) | (index >= symbols)
        cursor.fail(unknown)
        return Scalars(np.where(unknown, 0, index))

    return read


def _record(fields: list[Scan]) -> Scan:
    def read(cursor: Cursor) -> Raw:
        return Fields(len(cursor.at), [field(cursor) for field in fields])

    return read


def _union(kind: Union) -> Scan:
    scans = [compile_scan(branch) for branch in kind.branches]
    null = next((n for n, branch in enumerate(kind.branches) if branch.kind == "null"), -1)

    if len(scans) == 2 and null >= 0:
        other = scans[1 - null]
        here = 2 * (1 - null)

        def nullable(cursor: Cursor) -> Raw:
            number = cursor.byte()  # of one byte, as the codec has it
            cursor.fail((number != 0) & (number != 2))
            chosen = (number == here) & ~cursor.bad
            index = np.flatnonzero(chosen)
            if len(index) == len(chosen):
                return other(cursor)
            part = cursor.some(index)
            raw = other(part)
            cursor.back(part, index)
            return spread(raw, index, len(chosen))

        return nullable

    def read(cursor: Cursor) -> Raw:
        number = cursor.small()
        cursor.fail((number < 0) | (number >= len(scans)))
        number = np.where(cursor.bad, -1, number)
        children = []
        for branch, child in enumerate(scans):
            index = np.flatnonzero(number == branch)
            part = cursor.some(index)
            children.append(child(part))
            cursor.back(part, index)
        return Choice(number, children, None if null < 0 else number != null)

    return read


def _items(item: Scan, item_bytes: int) -> Scan:
    """Blocks of items: a count, negative before a size in bytes, then the items; a count of 0 is the end."""

    def read(cursor: Cursor) -> Raw:
        rows = len(cursor.at)
        counts = np.zeros(rows, np.int64)
        found: list[Raw] = []
        owners: list[Ints] = []
        index = np.flatnonzero(~cursor.bad)
        while len(index):
            part = cursor.some(index)
            count = part.long()
            sized = np.flatnonzero(count < 0)
            if len(sized):
                behind = part.some(sized)
                behind.long()
                part.back(behind, sized)
                count = np.abs(count)  # but for the least of all, which stays negative
            if item_bytes:
                many = count > (part.ends - part.at) // item_bytes
            else:
                many = counts[index] + np.minimum(count, EMPTY_ITEMS_MAX + 1) > EMPTY_ITEMS_MAX
            part.fail((count < 0) | many | (part.at > part.ends))
            count[part.bad] = 0
            _block(item, part, count, index, found, owners)
            count[part.bad] = 0
            counts[index] += count
            cursor.back(part, index)
            index = index[count > 0]
        if not found:
            return Items(counts, item(cursor.some(np.zeros(0, np.int64))))
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        child = take(join(found), order)
        # Rows that broke in the middle have items that do not count; they are given up as a whole.
        return Items(np.bincount(owner, minlength=rows).astype(np.int64), child)

    return read


def _block(item: Scan, cursor: Cursor, count: Ints, rows: Ints, found: list[Raw], owners: list[Ints]) -> None:
    """Read `count` items of each row: first the first of every row, then the second, and so on."""
    step = 0
    while True:
        index = np.flatnonzero((count > step) & ~cursor.bad)
        if not len(index):
            return
        if len(index) == len(count):
            found.append(item(cursor))
        else:
            part = cursor.some(index)
            found.append(item(part))
            cursor.back(part, index)
        owners.append(rows[index])
        step += 1
