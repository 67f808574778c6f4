"""The metadata of many messages at once: positions by a tight loop, fields by numpy.

A message that was sent alone has its metadata in front of it, a MessageMetadata. A batch is `count` times: size u32 |
SingleMessageMetadata | payload. Where its next message begins is known only from this one's metadata, so that a loop must
visit every message of a batch; it does nothing but find the value. All else is read column by column, by walking the fields of
all messages in step: field 1 of every message, then field 2, and so on; messages of one kind have the same fields at the same
step.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.model.message_id import read_varint

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

ABSENT: Final = -(2**63)  # of `batch`: messages never have this number

_SIZE_TAG: Final = 0x18  # payload_size = 3
_DEFAULTS: Final = {"sequence_id": -1, "batch": ABSENT}


class Shape(msgspec.Struct, frozen=True):
    """Which fields a kind of metadata has, by their numbers: numbers, texts, and the properties."""

    numbers: Mapping[int, str]
    texts: Mapping[int, str]
    properties: int


# The metadata of an entry, and of a message in a batch.
ENTRY: Final = Shape(
    {2: "sequence_id", 3: "publish_time", 8: "compression", 9: "uncompressed", 11: "batch", 12: "event_time"}
    | {17: "key_base64", 19: "deliver_at", 25: "null_value", 27: "chunks", 30: "null_key"},
    {1: "producer", 6: "key", 13: "encryption", 16: "schema_version", 18: "ordering_key"},
    4,
)
MESSAGE: Final = Shape(
    {3: "size", 5: "event_time", 6: "key_base64", 8: "sequence_id", 9: "null_value", 10: "null_key"},
    {2: "key", 7: "ordering_key"},
    1,
)


def find_values(batch: bytes, count: int) -> list[int]:
    """The bounds of each message's value: `[begin, end, begin, end, …]`.

    Raises ValueError unless the batch is exactly `count` messages.
    """
    try:
        found = _find_fast(batch, count)
        if found[-1] == len(batch):
            return found
    except (IndexError, ValueError):
        pass
    # Something rarer: long metadata, fields in another order, or a broken batch. Look again, with care.
    return _find_any(batch, count)


def _find_fast(batch: bytes, count: int) -> list[int]:
    """For metadata below 256 bytes, fields in the order of their numbers, payloads below 256 MiB."""
    found: list[int] = []
    append = found.append
    at = 0
    for _ in range(count):
        if batch[at + 2]:
            raise ValueError
        begin = at + 4 + batch[at + 3]
        at += 4
        while batch[at] != _SIZE_TAG:  # properties and the key come before the size
            skip = batch[at + 1]
            at += skip + 2
            if skip > 127:
                raise ValueError
        size = batch[at + 1]
        if size > 127:
            high = batch[at + 2]
            size += (high << 7) - 0x80
            if high > 127:
                high = batch[at + 3]
                size += (high << 14) - 0x4000
                if high > 127:
                    size += (batch[at + 4] << 21) - 0x200000
        append(begin)
        at = begin + size
        append(at)
    return found


def _find_any(batch: bytes, count: int) -> list[int]:
    found: list[int] = []
    at = 0
    for _ in range(count):
        begin = at + 4 + int.from_bytes(batch[at : at + 4], "big")
        at += 4
        if at > begin or begin > len(batch):
            raise ValueError("a batch is cut short")
        size = -1
        while at < begin:
            tag, at = read_varint(batch, at)
            match tag & 7:
                case 0:
                    value, at = read_varint(batch, at)
                    if tag == _SIZE_TAG:
                        size = value
                case 2:
                    length, at = read_varint(batch, at)
                    at += length
                case 1:
                    at += 8
                case 5:
                    at += 4
                case kind:
                    raise ValueError(f"wire type {kind} in a batch")
        if at != begin or not 0 <= size <= len(batch) - begin:
            raise ValueError("a batch is cut short")
        at = begin + size
        found += (begin, at)
    if at != len(batch):
        raise ValueError("a batch is longer than its messages")
    return found


Ranges = tuple[Ints, Ints]


class Fields(msgspec.Struct):
    """What entries or messages say of themselves, None if none of them does; one item each: a number, 0 by default (-1:
    `sequence_id`, ABSENT: `batch`); the bounds of a text, -1 by default.

    `properties`: begin, end and owner of every `KeyValue`, in order.
    """

    key: Ranges | None = None
    ordering_key: Ranges | None = None
    key_base64: Ints | None = None
    null_key: Ints | None = None
    null_value: Ints | None = None
    event_time: Ints | None = None
    sequence_id: Ints | None = None
    size: Ints | None = None  # of a message in a batch
    properties: list[tuple[Ints, Ints, Ints]] = []
    # of an entry
    producer: Ranges | None = None
    publish_time: Ints | None = None
    compression: Ints | None = None
    uncompressed: Ints | None = None
    batch: Ints | None = None
    deliver_at: Ints | None = None
    chunks: Ints | None = None
    encryption: Ranges | None = None
    schema_version: Ranges | None = None

    def numbers(self, name: str, count: int) -> Ints:
        """A column of numbers, made if it is not there."""
        column: Ints | None = getattr(self, name)
        if column is None:
            column = np.full(count, _DEFAULTS.get(name, 0), np.int64)
            setattr(self, name, column)
        return column

    def ranges(self, name: str, count: int) -> Ranges:
        """Where texts are, made if it is not there."""
        ranges: Ranges | None = getattr(self, name)
        if ranges is None:
            ranges = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
            setattr(self, name, ranges)
        return ranges

    def take(self, other: "Fields", rows: Ints, index: Ints, count: int) -> None:
        """The rows `rows` of `count` say of their message what the items `index` of `other` do; both rise."""
        for name in ("key_base64", "null_key", "null_value", "event_time", "sequence_id"):
            column = getattr(other, name)
            if column is not None:
                self.numbers(name, count)[rows] = column[index]
        for name in ("key", "ordering_key"):
            ranges = getattr(other, name)
            if ranges is not None:
                for mine, theirs in zip(self.ranges(name, count), ranges, strict=True):
                    mine[rows] = theirs[index]
        for begin, end, owner in other.properties:
            place = np.searchsorted(index, owner)
            there = index[np.minimum(place, len(index) - 1)] == owner
            self.properties = [*self.properties, (begin[there], end[there], rows[place[there]])]


def read_fields(shape: Shape, data: Bytes, begin: Ints, end: Ints) -> Fields:
    """Read the metadata of each `data[begin[i]:end[i]]`. Raises ValueError if one is broken."""
    fields, count = Fields(), len(begin)
    rows, at = np.arange(count), begin.copy()
    while True:
        left = at < end
        if not left.all():
            if (at > end).any():
                raise ValueError("its metadata is cut short")
            rows, at, end = rows[left], at[left], end[left]
        if not len(rows):
            return fields
        tags, at = varints(data, at)
        for tag in (tags[0],) if (tags == tags[0]).all() else np.unique(tags):
            same = tags == tag
            if same.all():
                at = _read(fields, shape, data, int(tag), rows, at, count)
            else:
                at[same] = _read(fields, shape, data, int(tag), rows[same], at[same], count)


def _read(fields: Fields, shape: Shape, data: Bytes, tag: int, rows: Ints, at: Ints, count: int) -> Ints:
    """Read the field `tag` of `rows` at `at`; returns the start of their next fields."""
    number = tag >> 3
    match tag & 7:
        case 0:
            value, at = varints(data, at)
            if name := shape.numbers.get(number):
                fields.numbers(name, count)[rows] = value
            return at
        case 1:
            return at + 8
        case 5:
            return at + 4
        case 2:
            length, at = varints(data, at)
            end = at + length
            if (length < 0).any() or (end > len(data)).any():
                raise ValueError("its metadata is cut short")
            if name := shape.texts.get(number):
                begins, ends = fields.ranges(name, count)
                begins[rows], ends[rows] = at, end
            elif number == shape.properties:
                # A copy: the caller walks on in the array that it is given back.
                fields.properties = [*fields.properties, (at, end.copy(), rows)]
            return end
        case kind:
            raise ValueError(f"wire type {kind} in its metadata")


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Decode a varint at every position; returns the values and the next positions."""
    last = len(data) - 1
    byte = data[np.minimum(at, last)]
    if byte.max() < 0x80:
        return byte.astype(np.int64), at + 1
    value = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    more = byte > 0x7F
    for shift in range(7, 70, 7):
        byte = data[np.minimum(at, last)]
        value |= np.where(more, (byte & 0x7F).astype(np.uint64) << np.uint64(shift), np.uint64(0))
        at = at + more
        more &= byte > 0x7F
        if not more.any():
            return value.view(np.int64), at
    raise ValueError("a varint is too long")
