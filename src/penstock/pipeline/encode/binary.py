"""Parts of messages for a whole batch of rows at once: arrays of bytes that are joined row by row.

Everything here is NumPy's and Arrow's work; a row costs no step of Python's.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.decode.arrays import at_rows

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Encode = Callable[[pa.Array], pa.Array]  # of a column without nulls, to bytes

_EMPTY: Final = pa.scalar(b"", pa.binary())


def as_binary(array: Any) -> Any:
    """Text or bytes as bytes with 32-bit offsets."""
    return array if array.type == pa.binary() else array.cast(pa.binary())


def join(pieces: Sequence[Any]) -> Any:
    """The pieces of each row, one after the other; null is nothing."""
    return pc.binary_join_element_wise(*pieces, _EMPTY, null_handling="replace", null_replacement="")


def sizes(array: Any) -> Numbers:
    """How many bytes each row has; 0 for null."""
    lengths: Numbers = (
        pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return lengths


def there(array: Any) -> Mask | None:
    """Which rows are not null; None if all are."""
    if array.null_count == 0:
        return None
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def of_matrix(matrix: npt.NDArray[np.uint8], keep: Mask | None = None) -> Any:
    """An array of bytes from the rows of a matrix; of each, those that `keep` says."""
    rows, width = matrix.shape
    if keep is None:
        offsets, data = np.arange(0, (rows + 1) * width, max(width, 1), dtype=np.int32), matrix
        if width == 0:
            offsets = np.zeros(rows + 1, dtype=np.int32)
    else:
        offsets = np.zeros(rows + 1, dtype=np.int32)
        np.cumsum(keep.sum(axis=1), out=offsets[1:])
        data = matrix[keep]
    return of_buffers(offsets, np.ascontiguousarray(data))


def of_buffers(offsets: npt.NDArray[np.int32], data: Any) -> Any:
    """An array of bytes from its offsets and its data."""
    return pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def varints(tag: int | None, values: Numbers, present: Mask | None = None) -> Any:
    """A field of protobuf's, number by number: the tag byte (None: none) and a varint; nothing if not present.

    Negative numbers take ten bytes, as they do on the wire.
    """
    unsigned = values.astype(np.uint64)
    most = int(unsigned.max()) if len(unsigned) else 0
    width = max(1, -(-most.bit_length() // 7))
    lead = 0 if tag is None else 1
    matrix = np.empty((len(unsigned), lead + width), np.uint8)
    if tag is not None:
        matrix[:, 0] = tag
    used = np.ones(len(unsigned), np.int64)
    for at in range(width):
        rest = unsigned >> np.uint64(7 * at)
        more = rest >= 0x80
        matrix[:, lead + at] = (rest & np.uint64(0x7F)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        if at + 1 < width:
            used += more
    used += lead
    if present is None and (used == lead + width).all():
        return of_matrix(matrix)
    keep: Mask = np.arange(lead + width) < used[:, None]
    if present is not None:
        keep &= present[:, None]
    return of_matrix(matrix, keep)


def constant(data: bytes, present: Mask) -> Any:
    """The same bytes in every row that is present."""
    matrix = np.broadcast_to(np.frombuffer(data, np.uint8), (len(present), len(data)))
    keep: Mask = np.broadcast_to(present[:, None], matrix.shape)
    return of_matrix(matrix, keep)


def sized(tag: int, array: Any) -> list[Any]:
    """A field of bytes: tag, length and content; nothing if null."""
    return [varints(tag, sizes(array), there(array)), array]


def big_endian(values: Numbers) -> Any:
    """Numbers as four bytes each."""
    return of_matrix(values.astype(">u4").view(np.uint8).reshape(-1, 4))


def grouped(flat: Any, starts: npt.NDArray[np.int32]) -> Any:
    """Runs of an array as one row each: row i is of `flat[starts[i]:starts[i + 1]]`, joined."""
    inner = np.frombuffer(flat.buffers()[1], np.int32)[flat.offset : flat.offset + len(flat) + 1]
    data = flat.buffers()[2]
    return of_buffers(np.ascontiguousarray(inner[starts]), data if data is not None else b"")


def nullable(encode: Encode) -> Encode:
    """An encoder of a column that may hold nulls: null for nulls of the column."""

    def whole(column: pa.Array) -> pa.Array:
        if not column.null_count:
            return encode(column)
        valid = np.asarray(column.is_valid())
        if not valid.any():
            return pa.nulls(len(column), pa.binary())
        return at_rows(encode(column.drop_null()), valid)

    return whole
