"""Entries become Arrow record batches. Pure: bytes in, batches out.

Entries gather in a block; a block is decoded at once, by columns. Values and keys are never touched one by
one: their positions in the joined payloads are an Arrow array already, of which every second item is wanted.
"""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.errors import ErrorKind, PenstockError

from . import columns
from .entries import Frame, Opened, open_entry
from .fields import Fields, Ints, find_values, read_fields
from .ids import message_ids
from .place import Place
from .properties import properties

BLOCK_ROWS: Final = 16_384  # makes the calls of numpy and Arrow cheap; twice as many gain nothing
BLOCK_BYTES: Final = 4 << 20

_US: Final = 1000  # us in a ms


def decode(
    place: Place, frames: Iterable[Frame], start: int, end: int, include: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the messages with offsets `start .. end-1` of `frames`, which are in order."""
    block = _Block(place, include)
    ledger = -1
    for frame in frames:
        if frame.ledger != ledger:  # a block's messages are in one
            yield from block.flush(start, end)
            ledger = frame.ledger
        block.add(frame)
        if block.rows >= BLOCK_ROWS or block.bytes >= BLOCK_BYTES:
            yield from block.flush(start, end)
    yield from block.flush(start, end)


class _Block:
    """Entries that are decoded together."""

    def __init__(self, place: Place, include: Sequence[str]) -> None:
        self._place = place
        self._schema = columns.arrow_schema(include)
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._frames: list[Frame] = []
        self._entries: list[Opened] = []
        self._values: list[int] = []

    def add(self, frame: Frame) -> None:
        """Open an entry and find its values."""
        try:
            entry = open_entry(frame.data)
            if entry.lone_value >= 0:
                self._values += (entry.lone_value, len(entry.batch))
            elif entry.count != frame.count:
                raise ValueError(f"it holds {entry.count} messages, its frame says {frame.count}")
            else:
                self._values += find_values(entry.batch, entry.count)
        except PenstockError as error:
            raise PenstockError(error.kind, f"{error.message} ({self._where(frame.offset)})") from None
        except ValueError as error:
            raise self._broken(frame.offset, error) from None
        self._frames.append(frame)
        self._entries.append(entry)
        self.rows += entry.count
        self.bytes += len(entry.batch)

    def flush(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield what has gathered, if anything of it is asked for, and begin the next."""
        if not self.rows:
            return
        batch = self._decode()
        offsets = batch.column(4).to_numpy()
        low, high = np.searchsorted(offsets, (start, end))
        self._clear()
        if low < high:
            yield batch.slice(low, high - low)

    def _decode(self) -> pa.RecordBatch:
        entries = self._entries
        counts = np.fromiter((e.count for e in entries), np.int64, len(entries))
        sizes = np.fromiter((len(e.batch) for e in entries), np.int64, len(entries))
        first_rows = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(len(entries)), counts)  # each row's entry
        index = np.arange(self.rows) - first_rows[owner]  # each row's place in it

        joined = b"".join([e.batch for e in entries])
        data = np.frombuffer(joined, np.uint8)
        values = np.array(self._values, np.int64)
        values += np.repeat(np.repeat(np.cumsum(sizes) - sizes, counts), 2)
        begins, ends = values[0::2], values[1::2]
        heads = np.empty_like(begins)  # where each message's metadata begins
        heads[0] = 0
        heads[1:] = ends[:-1]
        heads += 4
        try:
            fields = read_fields(data, heads, begins)
            if fields.size is None or not (fields.size == ends - begins).all():
                raise ValueError("a message's size does not fit")
        except ValueError as error:
            raise self._broken(self._frames[0].offset, error) from None

        maker = _Maker(self._place, self._frames, entries, owner, index, fields, pa.py_buffer(joined), values)
        return pa.RecordBatch.from_arrays(
            [getattr(maker, name)() for name in self._schema.names], schema=self._schema
        )

    def _where(self, offset: int) -> str:
        return f"{self._place.topic}, partition {self._place.partition}, at offset {offset}"

    def _broken(self, offset: int, error: ValueError) -> PenstockError:
        what = f"an entry cannot be read: {error} ({self._where(offset)})"
        return PenstockError(ErrorKind.BAD_ENCODING, what)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes columns; each method is named after its column."""

    place: Place
    frames: list[Frame]
    entries: list[Opened]
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
        keys = self._ranges(*fields.key)
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
        return pa.array(self._of_frames([f.offset for f in self.frames]) + self.index)

    def timestamp(self) -> pa.Array:
        return _times(self._of_frames([e.publish_time for e in self.entries]))

    def timestampType(self) -> pa.Array:  # noqa: N802 (the column's name)
        return pa.repeat(pa.scalar(0, pa.int32()), self.rows)  # 0: the time of publishing

    def properties(self) -> pa.Array:
        return properties(self.data, self.fields.properties, self.rows)

    def event_time(self) -> pa.Array:
        times = self.fields.event_time
        return pa.nulls(self.rows, columns.TIMESTAMP) if times is None else _times(times, 0)

    def message_id(self) -> pa.Array:
        place = self.place
        alone = self._of_frames([e.lone_value >= 0 for e in self.entries]) != 0
        ledger = self.frames[0].ledger
        return message_ids(
            place.ledger if ledger < 0 else ledger,
            place.partition if place.partitioned else -1,
            np.array([f.entry_id for f in self.frames], np.uint64)[self.owner].view(np.int64),
            np.where(alone, -1, self.index),
            self._of_frames([e.count for e in self.entries]),
        )

    def producer_name(self) -> pa.Array:
        return pa.array([e.producer for e in self.entries], pa.string()).take(pa.array(self.owner))

    def sequence_id(self) -> pa.Array:
        base = [e.sequence_id - (e.sequence_id >> 63 << 64) for e in self.entries]
        ids = self._of_frames(base) + self.index
        own = self.fields.sequence_id
        return pa.array(ids if own is None else np.where(own >= 0, own, ids))

    def schema_version(self) -> pa.Array:
        return pa.array([e.schema_version for e in self.entries], pa.int64()).take(pa.array(self.owner))

    def ordering_key(self) -> pa.Array:
        ranges = self.fields.ordering_key
        return pa.nulls(self.rows, pa.binary()) if ranges is None else self._ranges(*ranges)

    def deliver_at(self) -> pa.Array:
        return _times(self._of_frames([e.deliver_at for e in self.entries]), 0)

    def _of_frames(self, items: list[int]) -> Ints:
        """One number an entry becomes one a row."""
        return np.array(items, np.int64)[self.owner]

    def _ranges(self, begin: Ints, end: Ints) -> pa.Array:
        """Binary items `data[begin:end]`, null where begin is -1."""
        there = begin >= 0
        ranges = np.empty(2 * int(there.sum()), np.int64)
        ranges[0::2], ranges[1::2] = begin[there], end[there]
        found = _every_second(ranges, self.data, len(ranges) // 2)
        if len(found) == self.rows:
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
    """`items` with nulls where a flag is set."""
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
