"""Payloads of one schema into one column: `Decoder.decode`, whose kinds differ in how they read; and pairs of
key and value (`penstock.codec.key_value`), which are decoded apart.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.model.schema import KeyValueEncoding

from .arrays import at_rows
from .leaves import span_array
from .raw import BadRows, Flags, Ints, Numbers, Spans
from .scan import PADDING

_CUT: Final = "value: the payload is no key/value pair: key and value are cut short"


class Decoder:
    """Reads payloads by one writer's schema. `arrow` is the column's type."""

    def __init__(self, arrow: pa.DataType) -> None:
        self.arrow = arrow

    def column(self, payloads: pa.Array) -> pa.Array:
        """The column of binary `payloads`, none of which is null; raises BadRows."""
        raise NotImplementedError

    def chosen(self, payloads: pa.Array, index: Ints) -> pa.Array:
        """As `column`, of the payloads at `index`, which ascend."""
        return self.column(payloads if len(index) == len(payloads) else payloads.take(pa.array(index)))

    def reason(self, payload: bytes) -> str:
        """Why a payload cannot be read, "" for another reason."""
        raise NotImplementedError


def decode(decoder: Decoder, payloads: pa.Array, rows: Ints | None = None) -> tuple[pa.Array, dict[int, str]]:
    """The column, null for null and broken payloads, and the reason of each broken one.

    With `rows`, of the payloads there, which ascend; the broken ones are counted among them.
    """
    chosen: Ints = np.arange(len(payloads)) if rows is None else rows
    places: Ints = np.arange(len(chosen))
    if payloads.null_count:
        places = np.flatnonzero(np.asarray(payloads.is_valid())[chosen])
    wrong: dict[int, str] = {}
    found: pa.Array | None = None
    while found is None:
        try:
            found = decoder.chosen(payloads, chosen[places])
        except BadRows as error:
            flags: Flags = error.flags
            for place in places[flags].tolist():
                payload = payloads[int(chosen[place])].as_py()
                wrong[place] = decoder.reason(payload) or f"value: {error.why}"
            places = places[~flags]
    if len(places) == len(chosen):
        return found, wrong
    if not len(places):
        return pa.nulls(len(chosen), decoder.arrow), wrong
    there = np.zeros(len(chosen), np.bool_)
    there[places] = True
    return at_rows(found, there), wrong


def bounds(payloads: pa.Array) -> tuple[memoryview, Ints, Ints]:
    """The bytes of a binary array, up to the end of what it shares, and the bounds of each item."""
    _, offsets, data = payloads.buffers()
    if not len(payloads):
        none = np.zeros(0, np.int64)
        return memoryview(b""), none, none
    places: Any = np.frombuffer(offsets, np.int32, len(payloads) + 1, payloads.offset * 4).astype(np.int64)
    first = int(places[0])
    view = memoryview(data)[first:] if data is not None else memoryview(b"")
    return view, places[:-1] - first, places[1:] - first


def padded(payloads: pa.Array) -> pa.Array:
    """The same with room behind the bytes, so that those who scan them, one after the other, need no copy."""
    valid, offsets, data = payloads.buffers()
    if data is None:
        return payloads
    room: Any = np.zeros(len(data) + PADDING, np.uint8)
    room[: len(data)] = np.frombuffer(data, np.uint8)
    return pa.Array.from_buffers(
        payloads.type, len(payloads), [valid, offsets, pa.py_buffer(room)], offset=payloads.offset
    )


class PairDecoder(Decoder):
    """Reads pairs as struct<key, value>."""

    def __init__(self, key: Decoder, value: Decoder, encoding: KeyValueEncoding) -> None:
        super().__init__(pa.struct([pa.field("key", key.arrow), pa.field("value", value.arrow)]))
        self._key = key
        self._value = value
        self._separated = encoding is KeyValueEncoding.SEPARATED

    def pairs(self, payloads: pa.Array, keys: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        """As `payloads.decode`, of the messages' payloads and keys."""
        wrong: dict[int, str] = {}
        valid: Flags | None = None
        if not self._separated:
            valid = np.asarray(payloads.is_valid())
            keys, payloads, broken = _split(payloads)
            wrong = dict.fromkeys(np.flatnonzero(broken & valid).tolist(), _CUT)
            valid &= ~broken
        key, wrong_keys = decode(self._key, keys)
        value, wrong_values = decode(self._value, payloads)
        wrong |= wrong_values | {row: _of_key(why) for row, why in wrong_keys.items()}
        flags = np.zeros(len(payloads), np.bool_) if valid is None else ~valid
        flags[list(wrong)] = True
        return pa.StructArray.from_arrays([key, value], fields=list(self.arrow), mask=pa.array(flags)), wrong


def _of_key(why: str) -> str:
    return "key" + why.removeprefix("value").removeprefix("key")


def _split(payloads: pa.Array) -> tuple[pa.Array, pa.Array, Flags]:
    """Keys and values of INLINE payloads, and which payloads are invalid: both parts after their length."""
    data, begins, ends = bounds(payloads)
    padded = np.zeros(len(data) + 4, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    words = np.ndarray((len(data) + 1,), ">i4", padded.data, 0, (1,))
    key, broken = _part(words, begins, ends, np.zeros(len(payloads), np.bool_))
    value, broken = _part(words, key.ends, ends, broken)
    broken |= value.ends != ends
    return _array(key, padded, broken), _array(value, padded, broken), broken


def _part(words: Numbers, at: Ints, ends: Ints, broken: Flags) -> tuple[Spans, Flags]:
    length = words[np.minimum(at, len(words) - 1)].astype(np.int64)
    begins = at + 4
    broken = broken | (begins > ends) | (length < -1) | (length > ends - begins)
    null = length < 0
    length = np.where(broken | null, 0, length)
    return Spans(begins, begins + length, ~null), broken


def _array(spans: Spans, data: Numbers, broken: Flags) -> pa.Array:
    valid = ~broken if spans.valid is None else spans.valid & ~broken
    return span_array(Spans(spans.begins, spans.ends, valid), data, pa.binary())
