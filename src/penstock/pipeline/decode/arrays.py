"""Arrow columns put together of parts: lists, structs, and items at some of the rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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


def parts(column: pa.Array) -> tuple[pa.Array, Ints]:
    """The items of a list, or the pairs of a map, without those of null rows, and how many each row has."""
    kind = column.type
    counts: Any = np.diff(np.asarray(column.offsets).astype(np.int64))
    if column.null_count:
        counts = counts * np.asarray(column.is_valid())
    if pa.types.is_map(kind):  # which Arrow does not flatten
        column = column.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    return column.flatten(), counts


def fit(column: pa.Array, target: pa.DataType, leaf: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """A column as `target`: fields of structs by name, missing ones null; what has no parts is cast by `leaf`."""
    source, rows = column.type, len(column)
    if source == target and str(source) == str(target):
        return column
    if pa.types.is_null(source):
        return pa.nulls(rows, target)
    valid = np.asarray(column.is_valid()) if column.null_count else None
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        places = [source.get_field_index(field.name) for field in target]
        children = [
            pa.nulls(rows, field.type) if place < 0 else fit(pc.struct_field(column, place), field.type, leaf)
            for place, field in zip(places, target, strict=True)
        ]
        return struct_of(children, target, rows, valid)
    is_map = pa.types.is_map(source) and pa.types.is_map(target)
    if not is_map and not (pa.types.is_list(source) and pa.types.is_list(target)):
        return leaf(column, target)
    items, counts = parts(column)
    if not is_map:
        values = items_of(lambda: fit(items, target.value_type, leaf), counts)
        return pa.ListArray.from_arrays(offsets_of(counts), values, type=target, mask=mask_of(valid))
    keys = items_of(lambda: fit(items.field(0), target.key_type, leaf), counts)
    values = items_of(lambda: fit(items.field(1), target.item_type, leaf), counts)
    return pa.MapArray.from_arrays(offsets_of(counts), keys, values, type=target, mask=mask_of(valid))


def is_text(item: bytes | None) -> bool:
    """Whether bytes are UTF-8; null is."""
    try:
        return item is None or item.decode() is not None
    except UnicodeDecodeError:
        return False
