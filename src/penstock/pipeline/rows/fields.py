"""The messages' own metadata in many batches at once: positions by a tight loop, fields by numpy.

A batch is `count` times: size u32 | SingleMessageMetadata | payload. Where the next message begins is known
only from this one's metadata, so that a loop must visit every message; it does nothing but find the value.
All else is read column by column afterwards, by walking the fields of all messages in step: field 1 of every
message, then field 2, and so on; messages of one kind have the same fields at the same step.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.model.message_id import read_varint

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

_SIZE_TAG: Final = 0x18  # payload_size = 3
_NUMBERS: Final = {3: "size", 4: "compacted", 5: "event_time", 6: "key_base64", 8: "sequence_id"} | {
    9: "null_value",
    10: "null_key",
}
_TEXTS: Final = {2: "key", 7: "ordering_key"}


def find_values(batch: bytes, count: int) -> list[int]:
    """Where each message's value begins and ends: `[begin, end, begin, end, …]`.

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


class Fields(msgspec.Struct):
    """What the messages say of themselves; one item a message, -1 or 0 where a message says nothing.

    `key`, `ordering_key`: begin and end. `properties`: begin, end and message of every `KeyValue`, in order.
    """

    key: tuple[Ints, Ints] | None = None
    ordering_key: tuple[Ints, Ints] | None = None
    key_base64: Ints | None = None
    null_key: Ints | None = None
    null_value: Ints | None = None
    compacted: Ints | None = None
    event_time: Ints | None = None
    sequence_id: Ints | None = None
    size: Ints | None = None
    properties: list[tuple[Ints, Ints, Ints]] = []


def read_fields(data: Bytes, begin: Ints, end: Ints) -> Fields:
    """Read every SingleMessageMetadata `data[begin[i]:end[i]]`. Raises ValueError where one is broken."""
    fields = Fields()
    rows = np.arange(len(begin))
    at = begin.copy()
    if len(data) == 0:
        raise ValueError("no metadata")
    while True:
        left = at < end
        if not left.all():
            if (at > end).any():
                raise ValueError("a message's metadata is cut short")
            rows, at, end = rows[left], at[left], end[left]
        if not len(rows):
            return fields
        tags = data[at]
        for tag in (tags[0],) if (tags == tags[0]).all() else np.unique(tags):
            same = tags == tag
            if same.all():
                at = _read(fields, data, int(tag), rows, at + 1, len(begin))
            else:
                at[same] = _read(fields, data, int(tag), rows[same], at[same] + 1, len(begin))


def _read(fields: Fields, data: Bytes, tag: int, rows: Ints, at: Ints, count: int) -> Ints:
    """Read the field `tag` of `rows` at `at`; returns where their next fields begin."""
    number = tag >> 3
    if tag & 7 == 0 and tag < 0x80:
        value, at = varints(data, at)
        if name := _NUMBERS.get(number):
            column = getattr(fields, name)
            if column is None:
                column = np.full(count, -1 if name == "sequence_id" else 0, np.int64)
                setattr(fields, name, column)
            column[rows] = value
        return at
    if tag & 7 == 2 and tag < 0x80:
        length, at = varints(data, at)
        end = at + length
        if (length < 0).any() or (end > len(data)).any():
            raise ValueError("a message's metadata is cut short")
        if name := _TEXTS.get(number):
            ranges = getattr(fields, name)
            if ranges is None:
                ranges = (np.full(count, -1, np.int64), np.full(count, -1, np.int64))
                setattr(fields, name, ranges)
            ranges[0][rows], ranges[1][rows] = at, end
        elif number == 1:
            # A copy: the caller walks on in the array that it is given back.
            fields.properties = [*fields.properties, (at, end.copy(), rows)]
        return end
    raise ValueError(f"unknown field {number} in a message's metadata")


def varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """Decode a varint at every position; returns the values and where what follows begins."""
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
