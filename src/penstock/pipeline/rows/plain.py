"""Messages that say nothing but what `wire.runs` has for records become rows: a run of them as it streams from a server is Arrow's
arrays but for their offsets."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.errors import ErrorKind
from penstock.wire.runs import NONE

from . import columns
from .entries import BadEntry, Frame
from .fields import Ints
from .ids import message_ids
from .place import Place

_HEAD_BYTES: Final = 24  # of each: publish time, version, sizes of key and value


def read_records(place: Place, include: Sequence[str], frames: Sequence[Frame]) -> pa.RecordBatch:
    """The rows of frames of records. Raises BadEntry."""
    times, versions, keys, values = zip(*map(_columns, frames), strict=True)
    version = np.concatenate(versions)
    return plain_rows(
        place,
        include,
        np.concatenate([np.arange(frame.offset, frame.offset + frame.count) for frame in frames]),
        np.concatenate(times),
        pa.concat_arrays(keys),
        pa.concat_arrays(values),
        pa.array(version, mask=version == NONE),
    )


def _columns(frame: Frame) -> tuple[Ints, Ints, pa.Array, pa.Array]:
    """Publish times, versions, keys and values of a frame."""
    count, data = frame.count, frame.data
    at = count * _HEAD_BYTES
    if at > len(data):
        raise _bad(frame)
    times, versions = np.frombuffer(data, "<i8", 2 * count).reshape(2, count)
    sizes = np.frombuffer(data, "<i4", 2 * count, 16 * count).reshape(2, count)
    if (sizes < NONE).any() or at + np.maximum(sizes, 0).sum(dtype=np.int64) != len(data):
        raise _bad(frame)
    contents = []
    for some in sizes:
        offsets = np.zeros(count + 1, np.int32)
        np.cumsum(np.maximum(some, 0), out=offsets[1:])
        contents.append(_binary(some == NONE, offsets, pa.py_buffer(data).slice(at, int(offsets[-1]))))
        at += int(offsets[-1])
    return times, versions, contents[0], contents[1]


def _binary(absent: NDArray[np.bool_], offsets: NDArray[np.int32], data: pa.Buffer) -> pa.Array:
    valid = pa.py_buffer(np.packbits(~absent, bitorder="little")) if absent.any() else None
    return pa.Array.from_buffers(pa.binary(), len(absent), [valid, pa.py_buffer(offsets), data])


def _bad(frame: Frame) -> BadEntry:
    return BadEntry(
        frame.offset, ErrorKind.BAD_ENCODING, "a run of records cannot be read: its sizes do not fit"
    )


def plain_rows(
    place: Place,
    include: Sequence[str],
    offsets: Ints,
    times: Ints,
    keys: pa.Array,
    values: pa.Array,
    versions: pa.Array | None = None,
    properties: pa.Array | None = None,
) -> pa.RecordBatch:
    """The rows of such messages; `times` are ms, `versions` are None if no message has a schema."""
    count = len(offsets)
    schema = columns.arrow_schema(include)

    def column(name: str) -> pa.Array:
        match name:
            case "key":
                return keys
            case "value":
                return values
            case "topic":
                return _same(place.topic, pa.string())
            case "partition":
                return _same(place.partition, pa.int32())
            case "offset" | "sequence_id":
                return pa.array(offsets)
            case "timestamp":
                return pa.array(times * 1000).view(columns.TIMESTAMP)
            case "timestampType":
                return _same(0, pa.int32())
            case "properties":
                return maps([{}] * count) if properties is None else properties
            case "message_id":
                partition = place.partition if place.partitioned else -1
                alone, one = np.full(count, -1, np.int64), np.ones(count, np.int64)
                return message_ids(place.ledger, partition, offsets, alone, one)
            case "producer_name":
                return _same("", pa.string())
            case columns.VERSION if versions is not None:
                return versions
        return pa.nulls(count, schema.field(name).type)

    def _same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    return pa.RecordBatch.from_arrays([column(name) for name in schema.names], schema=schema)


def maps(of_rows: Sequence[dict[str, str]]) -> pa.MapArray:
    """A column of properties."""
    offsets = np.zeros(len(of_rows) + 1, np.int32)
    np.cumsum([len(one) for one in of_rows], out=offsets[1:])
    names = [name for one in of_rows for name in one]
    texts = [text for one in of_rows for text in one.values()]
    return pa.MapArray.from_arrays(offsets, pa.array(names, pa.string()), pa.array(texts, pa.string()))
