"""The messages' properties as a column of maps.

A property is Pulsar's KeyValue: key = 1, value = 2. Every writer puts the key first, then the value, and no message
has a key twice: such properties are cut out of the data all at once. What is otherwise is read one by one.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import read_varint

from .fields import Ints, varints

_KEY: Final = 0x0A
_VALUE: Final = 0x12


def properties(data: pa.Buffer, found: Sequence[tuple[Ints, Ints, Ints]], rows: int) -> pa.MapArray:
    """A map for each of `rows` messages; `found` says where properties begin and end, and whose they are."""
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
    """Keys and values, None where a property is of another form, or a key comes twice or is no text."""
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
    known: dict[bytes, tuple[str, str]] = {}  # the same few pairs come again and again
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
