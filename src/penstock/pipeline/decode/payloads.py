"""Payloads of one schema into one column: `Decoder.decode`, whose kinds differ in how they read."""

from typing import Any

import numpy as np
import pyarrow as pa

from .raw import BadRows, Flags, Ints
from .scan import PADDING


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
        """Why a payload cannot be read, "" where the reason is another."""
        raise NotImplementedError


def decode(decoder: Decoder, payloads: pa.Array, rows: Ints | None = None) -> tuple[pa.Array, dict[int, str]]:
    """The column, null where a payload is null or broken, and why each broken one is.

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
    return found.take(pa.array(np.maximum(np.cumsum(there) - 1, 0), mask=~there)), wrong


def bounds(payloads: pa.Array) -> tuple[memoryview, Ints, Ints]:
    """The bytes of a binary array, up to the end of what it shares, and where each item begins and ends."""
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
