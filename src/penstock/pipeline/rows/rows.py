"""Frames become Arrow record batches. Pure: bytes in, batches out.

Frames gather in a block; a block is decoded at once, by columns. Values and keys are never touched one by one: their positions
in the joined entries are an Arrow array already, of which every second item is wanted.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import read_varint
from penstock.wire.metadata import schema_version_number
from penstock.wire.runs import RECORDS

from . import columns
from .entries import BadEntry, Entries, Frame, open_entries
from .fields import MESSAGE, Fields, Ints, Ranges, find_values, read_fields, varints
from .ids import message_ids
from .place import Place
from .plain import read_records

BLOCK_ROWS: Final = 16_384  # makes the calls of numpy and Arrow cheap; twice as many gain nothing
BLOCK_BYTES: Final = 4 << 20

_US: Final = 1000  # us in a ms

# Of a property, Pulsar's KeyValue: key = 1, value = 2.
_KEY: Final = 0x0A
_VALUE: Final = 0x12


def decode(
    place: Place, frames: Iterable[Frame], start: int, end: int, include: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the messages with offsets `start .. end-1` of `frames`, which are in order."""
    try:
        for block in _blocks(frames):
            for batch in _batches(place, include, block):
                low, high = np.searchsorted(batch.column(4).to_numpy(), (start, end))
                if low < high:
                    yield batch.slice(low, high - low)
    except BadEntry as bad:
        where = f"{place.topic}, partition {place.partition}, at offset {bad.offset}"
        raise PenstockError(bad.kind, f"{bad} ({where})") from None


def _blocks(frames: Iterable[Frame]) -> Iterator[list[Frame]]:
    """Frames that are decoded together: in one ledger, and records by themselves."""
    block: list[Frame] = []
    count = size = 0
    for frame in frames:
        if block and (frame.ledger, frame.kind == RECORDS) != (block[0].ledger, block[0].kind == RECORDS):
            yield block
            block, count, size = [], 0, 0
        block.append(frame)
        count += frame.count
        size += len(frame.data)
        if count >= BLOCK_ROWS or size >= BLOCK_BYTES:
            yield block
            block, count, size = [], 0, 0
    if block:
        yield block


def _batches(place: Place, include: Sequence[str], frames: Sequence[Frame]) -> Iterator[pa.RecordBatch]:
    """The rows of frames of one ledger. Raises BadEntry."""
    if frames[0].kind == RECORDS:
        yield read_records(place, include, frames)
        return
    for entries in open_entries(frames):
        yield _decode(place, include, frames[0].ledger, entries)


def _decode(place: Place, include: Sequence[str], ledger: int, entries: Entries) -> pa.RecordBatch:
    """The rows of entries. Raises BadEntry."""
    counts = entries.counts
    first_rows = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(counts)), counts)  # each row's entry
    index = np.arange(len(owner)) - first_rows[owner]  # each row's place in it
    values = np.empty(2 * len(owner), np.int64)
    fields = Fields()
    if entries.alone.any():
        alone = np.flatnonzero(entries.alone)
        rows = first_rows[alone]
        values[2 * rows], values[2 * rows + 1] = entries.begins[alone], entries.ends[alone]
        fields.take(entries.fields, rows, alone, len(owner))
    if not entries.alone.all():
        _add_batches(entries, owner, values, fields)
    maker = _Maker(place, ledger, entries, owner, index, fields, pa.py_buffer(entries.data), values)
    schema = columns.arrow_schema(include)
    return pa.RecordBatch.from_arrays([getattr(maker, name)() for name in schema.names], schema=schema)


def _add_batches(entries: Entries, owner: Ints, values: Ints, fields: Fields) -> None:
    """Find the values of messages in batches, and what they say of themselves. Raises BadEntry."""
    found: list[int] = []
    batches = np.flatnonzero(~entries.alone)
    for n in batches.tolist():
        payload = entries.data[entries.begins[n] : entries.ends[n]]
        try:
            found += find_values(payload, int(entries.counts[n]))
        except ValueError as error:
            raise _bad(entries, n, error) from None
    rows = np.flatnonzero(~entries.alone[owner])
    places = np.array(found, np.int64) + np.repeat(entries.begins[owner[rows]], 2)
    begins, ends = places[0::2], places[1::2]
    heads = np.empty_like(begins)  # the start of each message's metadata
    heads[1:] = ends[:-1]
    firsts = np.flatnonzero(np.diff(owner[rows], prepend=-1))
    heads[firsts] = entries.begins[batches]
    heads += 4
    try:
        said = read_fields(MESSAGE, np.frombuffer(entries.data, np.uint8), heads, begins)
        if said.size is None or not (said.size == ends - begins).all():
            raise ValueError("a message's size does not fit")
    except ValueError as error:
        raise _bad(entries, int(batches[0]), error) from None
    values[2 * rows], values[2 * rows + 1] = begins, ends
    fields.take(said, rows, np.arange(len(rows)), len(owner))


def _bad(entries: Entries, n: int, error: ValueError) -> BadEntry:
    return BadEntry(int(entries.offsets[n]), ErrorKind.BAD_ENCODING, f"an entry cannot be read: {error}")


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes columns; each method is named after its column."""

    place: Place
    ledger: int
    entries: Entries
    owner: Ints  # each row's entry
    index: Ints  # each row's place in it
    fields: Fields
    data: pa.Buffer
    values: Ints

    @property
    def rows(self) -> int:
        return len(self.owner)

    def key(self) -> pa.Array:
        fields = self.fields
        if fields.key is None:
            return pa.nulls(self.rows, pa.binary())
        keys = self._texts(fields.key)
        if fields.null_key is not None:
            keys = _without(keys, fields.null_key)
        if fields.key_base64 is not None and fields.key_base64.any():
            texts = zip(keys.to_pylist(), fields.key_base64.tolist(), strict=True)
            keys = pa.array([_unbase64(key) if coded else key for key, coded in texts], pa.binary())
        return keys

    def value(self) -> pa.Array:
        values = _every_second(self.values, self.data, self.rows)
        if self.fields.null_value is not None:
            values = _without(values, self.fields.null_value)
        return values

    def topic(self) -> pa.Array:
        return pa.repeat(pa.scalar(self.place.topic, pa.string()), self.rows)

    def partition(self) -> pa.Array:
        return pa.repeat(pa.scalar(self.place.partition, pa.int32()), self.rows)

    def offset(self) -> pa.Array:
        return pa.array(self.entries.offsets[self.owner] + self.index)

    def timestamp(self) -> pa.Array:
        return _times(self._numbers(self.entries.fields.publish_time))

    def timestampType(self) -> pa.Array:  # noqa: N802 (the column's name)
        return pa.repeat(pa.scalar(0, pa.int32()), self.rows)  # 0: the time of publishing

    def properties(self) -> pa.Array:
        return properties(self.data, self.fields.properties, self.rows)

    def event_time(self) -> pa.Array:
        times = self.fields.event_time
        return pa.nulls(self.rows, columns.TIMESTAMP) if times is None else _times(times, 0)

    def message_id(self) -> pa.Array:
        place, entries, owner = self.place, self.entries, self.owner
        return message_ids(
            place.ledger if self.ledger < 0 else self.ledger,
            place.partition if place.partitioned else -1,
            entries.ids[owner].view(np.int64),
            np.where(entries.alone[owner], -1, self.index),
            entries.counts[owner],
        )

    def producer_name(self) -> pa.Array:
        return self._of_entries(
            self.entries.fields.producer, lambda name: name.decode(errors="replace"), "", pa.string()
        )

    def sequence_id(self) -> pa.Array:
        ids = self._numbers(self.entries.fields.sequence_id) + self.index
        own = self.fields.sequence_id
        return pa.array(ids if own is None else np.where(own >= 0, own, ids))

    def schema_version(self) -> pa.Array:
        return self._of_entries(self.entries.fields.schema_version, schema_version_number, None, pa.int64())

    def ordering_key(self) -> pa.Array:
        ranges = self.fields.ordering_key
        return pa.nulls(self.rows, pa.binary()) if ranges is None else self._texts(ranges)

    def deliver_at(self) -> pa.Array:
        return _times(self._numbers(self.entries.fields.deliver_at), 0)

    def _numbers(self, of_entries: Ints | None) -> Ints:
        """One number an entry becomes one a row."""
        return np.zeros(self.rows, np.int64) if of_entries is None else of_entries[self.owner]

    def _of_entries(
        self, ranges: Ranges | None, read: Callable[[bytes], Any], none: Any, kind: pa.DataType
    ) -> pa.Array:
        """The texts of entries, for each row: the same few repeat."""
        if ranges is None:
            return pa.repeat(pa.scalar(none, kind), self.rows)
        texts = self._texts(ranges).dictionary_encode()
        said = [read(text) for text in texts.dictionary.to_pylist()]
        at = texts.indices.fill_null(len(said)).take(pa.array(self.owner))
        return pa.array([*said, none], kind).take(at)

    def _texts(self, ranges: Ranges) -> pa.Array:
        """Binary items `data[begin:end]`, null if begin is -1."""
        begin, end = ranges
        there = begin >= 0
        places = np.empty(2 * int(there.sum()), np.int64)
        places[0::2], places[1::2] = begin[there], end[there]
        found = _every_second(places, self.data, len(places) // 2)
        if len(found) == len(begin):
            return found
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


def _every_second(ranges: Ints, data: pa.Buffer, count: int) -> pa.Array:
    """The binary array of `data[ranges[0]:ranges[1]]`, `data[ranges[2]:ranges[3]]`, …; ranges ascend.

    Read as an Arrow array's offsets, `ranges` are the items wanted and, between them, the gaps.
    """
    offsets = pa.py_buffer(ranges.astype(np.int32))
    items = pa.Array.from_buffers(pa.binary(), 2 * count - 1 if count else 0, [None, offsets, data])
    return items.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def _without(items: pa.Array, flags: Ints) -> pa.Array:
    """`items` with nulls for set flags."""
    return items.take(pa.array(np.arange(len(items)), mask=flags != 0))


def _times(ms: Ints, none: int | None = None) -> pa.Array:
    """ms since the epoch as timestamps, null where they are `none`."""
    times = pa.array(ms * _US, mask=None if none is None else ms == none)
    return times.view(columns.TIMESTAMP)


def _unbase64(key: bytes | None) -> Any:
    if key is None:
        return None
    try:
        return b64decode(key, validate=True)
    except ValueError:
        return key


def properties(data: pa.Buffer, found: Sequence[tuple[Ints, Ints, Ints]], rows: int) -> pa.MapArray:
    """A map for each of `rows` messages; `found` says where properties begin and end, and whose they are.

    Every writer puts the key first, then the value, and no message has a key twice: such properties are cut out of the data all
    at once. Others are read one by one.
    """
    owner, begin, end = _in_order(found)
    offsets = np.zeros(rows + 1, np.int32)
    pairs = _cut(data, owner, begin, end)
    if pairs is not None:
        np.cumsum(np.bincount(owner, minlength=rows), out=offsets[1:])
    else:
        counts, keys, texts = _one_by_one(data, owner, begin, end, rows)
        np.cumsum(counts, out=offsets[1:])
        pairs = pa.array(keys, pa.string()), pa.array(texts, pa.string())
    return pa.MapArray.from_arrays(offsets, *pairs)


def _in_order(found: Sequence[tuple[Ints, Ints, Ints]]) -> tuple[Ints, Ints, Ints]:
    """All properties, message by message: whose each is, where it begins and ends."""
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    begin = np.concatenate([each[0] for each in found])
    end = np.concatenate([each[1] for each in found])
    owner = np.concatenate([each[2] for each in found])
    if len(found) > 1:
        order = np.argsort(owner, kind="stable")
        return owner[order], begin[order], end[order]
    return owner, begin, end


def _cut(data: pa.Buffer, owner: Ints, begin: Ints, end: Ints) -> tuple[pa.Array, pa.Array] | None:
    """Keys and values, None if a property is of another form, or a key comes twice or is no text."""
    count = len(owner)
    if not count:
        return pa.array([], pa.string()), pa.array([], pa.string())
    raw = np.frombuffer(data, np.uint8)
    if (end - begin < 4).any() or (raw[begin] != _KEY).any():
        return None
    try:
        size, key = varints(raw, begin + 1)
        key_end = key + size
        if (size < 0).any() or (key_end >= end).any() or (raw[key_end] != _VALUE).any():
            return None
        size, value = varints(raw, key_end + 1)
    except ValueError:
        return None
    if (size < 0).any() or (value + size != end).any():
        return None
    cuts = np.empty(4 * count, np.int32)  # read as an array's offsets: key, gap, value, gap, key …
    cuts[0::4], cuts[1::4], cuts[2::4], cuts[3::4] = key, key_end, value, end
    items = pa.Array.from_buffers(pa.binary(), 4 * count - 1, [None, pa.py_buffer(cuts), data])
    first = np.arange(0, 4 * count, 4, dtype=np.int32)
    try:
        keys = items.take(pa.array(first)).cast(pa.string())
        values = items.take(pa.array(first + np.int32(2))).cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8
        return None
    return None if _twice(owner, keys) else (keys, values)


def _twice(owner: Ints, keys: pa.Array) -> bool:
    """Whether a message has a key twice: Spark refuses such a map."""
    if (owner[1:] != owner[:-1]).all():
        return False
    codes = keys.dictionary_encode()
    both = owner * len(codes.dictionary) + codes.indices.to_numpy()
    both.sort()
    return bool((both[1:] == both[:-1]).any())


def _one_by_one(
    data: pa.Buffer, owner: Ints, begin: Ints, end: Ints, rows: int
) -> tuple[NDArray[np.int64], list[str], list[str]]:
    """How many each message has, their keys, their values; of a key that comes twice the last one, as in Pulsar."""
    view = memoryview(data)
    known: dict[bytes, tuple[str, str]] = {}  # the same few pairs repeat
    maps: dict[int, dict[str, str]] = {}
    for row, low, high in zip(owner.tolist(), begin.tolist(), end.tolist(), strict=True):
        raw = bytes(view[low:high])
        pair = known.get(raw)
        if pair is None:
            pair = known[raw] = _key_value(raw)
        maps.setdefault(row, {})[pair[0]] = pair[1]
    counts = np.zeros(rows, np.int64)
    for row, each in maps.items():
        counts[row] = len(each)
    return (
        counts,
        [key for each in maps.values() for key in each],
        [text for each in maps.values() for text in each.values()],
    )


def _key_value(raw: bytes) -> tuple[str, str]:
    texts = {1: b"", 2: b""}
    at = 0
    while at < len(raw):
        tag, at = read_varint(raw, at)
        if tag & 7 != 2:
            raise PenstockError(ErrorKind.BAD_ENCODING, "a property is broken")
        length, at = read_varint(raw, at)
        texts[tag >> 3] = raw[at : at + length]
        at += length
    return texts[1].decode(errors="replace"), texts[2].decode(errors="replace")
