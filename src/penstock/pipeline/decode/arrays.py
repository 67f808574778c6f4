"""Arrow columns put together of parts: lists, structs, and items at some of the rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from .raw import BadRows, Flags, Ints


def mask_of(valid: Flags | None) -> pa.Array | None:
    """What Arrow takes for nulls."""
    return None if valid is None else pa.array(~valid)


def offsets_of(counts: Any) -> pa.Array:
    """A list array's offsets, from how many items each row has."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def at_rows(found: pa.Array, there: Flags) -> pa.Array:
    """The items of `found`, one after the other, at the rows that are there; null elsewhere."""
    return found.take(pa.array(np.maximum(np.cumsum(there) - 1, 0), mask=~there))


def struct_of(children: list[pa.Array], arrow: pa.StructType, rows: int, valid: Flags | None) -> pa.Array:
    """A struct of its fields' columns, which may be none."""
    if children:
        return pa.StructArray.from_arrays(children, fields=list(arrow), mask=mask_of(valid))
    return pa.array([{}] * rows if valid is None else [{} if ok else None for ok in valid.tolist()], arrow)


def items_of(build: Callable[[], pa.Array], counts: Ints) -> pa.Array:
    """The column of the items of all rows; raises BadRows for the rows that have a broken one."""
    try:
        return build()
    except BadRows as error:
        rows = np.zeros(len(counts), np.bool_)
        rows[np.repeat(np.arange(len(counts)), counts)[error.flags]] = True
        raise BadRows(rows, error.why) from None
