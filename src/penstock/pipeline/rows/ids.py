"""Message ids as text, many at once: numpy writes their protobuf and their base64 column by column.

An id is `MessageIdData`: ledger, entry, partition, index in the batch, size of the batch, each a varint. Ids whose
varints are of equal lengths have each byte at the same place; nearly all of a block's have.
"""

from base64 import b64encode
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.model.message_id import varint

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# Two characters for each 12 bits.
_PAIRS: Final = np.frombuffer(
    b64encode(b"".join((n << 12 | n + 1).to_bytes(3, "big") for n in range(0, 4096, 2))), np.uint16
)
_PAD: Final = ord("=")


def message_ids(ledger: int, partition: int, entry: Ints, index: Ints, size: Ints) -> pa.Array:
    """One text a message, as `str(MessageId(…))` has it: `entry` may be read as unsigned, `partition` is -1 where
    there is none, `index` -1 for a message sent alone."""
    begin = b"\x08" + varint(ledger % 2**64) + b"\x10"
    middle = b"\x18" + varint(partition) if partition >= 0 else b""
    entries = entry.view(np.uint64)
    alone = index < 0
    kinds = _lengths(entries) * 400 + np.where(alone, 0, _lengths(index) * 20 + _lengths(size))
    groups, places = [], []
    for kind in (kinds[0],) if (kinds == kinds[0]).all() else np.unique(kinds):
        rows = np.flatnonzero(kinds == kind)
        columns = [*begin, *_varint(entries[rows], int(kind) // 400), *middle]
        if not alone[rows[0]]:
            columns += [0x20, *_varint(index[rows], int(kind) // 20 % 20)]
            columns += [0x30, *_varint(size[rows], int(kind) % 20)]
        groups.append(_base64(columns, len(rows)))
        places.append(rows)
    if len(groups) == 1:
        return groups[0]
    order = np.empty(len(kinds), np.int64)
    order[np.concatenate(places)] = np.arange(len(kinds))
    return pa.concat_arrays(groups).take(pa.array(order))


def _lengths(numbers: NDArray[np.uint64] | Ints) -> Ints:
    """How many bytes each number's varint has."""
    lengths = np.ones(len(numbers), np.int64)
    most = int(numbers.max())
    for bits in range(7, 64, 7):
        if most >> bits == 0:
            break
        lengths += numbers >> numbers.dtype.type(bits) != 0
    return lengths


def _varint(numbers: NDArray[np.uint64] | Ints, length: int) -> list[Bytes]:
    """The bytes of varints of that length, first byte first."""
    kind = numbers.dtype.type
    parts = [(numbers >> kind(7 * n)).astype(np.uint8) for n in range(length)]
    return [part | np.uint8(0x80) for part in parts[:-1]] + [parts[-1] & np.uint8(0x7F)]


def _base64(columns: list[int | Bytes], rows: int) -> pa.Array:
    """The texts whose n-th bytes are `columns[n]`: one for all rows, or one a row."""
    size = len(columns)
    columns = columns + [0] * (-size % 3)
    pairs = np.empty((rows, len(columns) // 3 * 2), np.uint16)
    for n in range(0, len(columns), 3):
        a, b, c = (each if isinstance(each, int) else each.astype(np.uint16) for each in columns[n : n + 3])
        pairs[:, n // 3 * 2] = _PAIRS[a << 4 | b >> 4]
        pairs[:, n // 3 * 2 + 1] = _PAIRS[(b & 15) << 8 | c]
    texts = pairs.view(np.uint8)
    for n in range(-size % 3):
        texts[:, -1 - n] = _PAD
    width = texts.shape[1]
    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(texts)])
