"""A column of one type as a column of another: fields by name, and only what loses nothing."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.pipeline.errors import PipelineError

from .arrays import items_of, mask_of, offsets_of, struct_of
from .leaves import text
from .payloads import Decoder
from .raw import Flags, Ints

Cast = Callable[[pa.Array], pa.Array]

_WIDER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
}


class CastDecoder(Decoder):
    """Reads as `inner` does and gives another type. Raises PipelineError where that would lose something."""

    def __init__(self, inner: Decoder, arrow: pa.DataType) -> None:
        super().__init__(arrow)
        self._inner = inner
        self._cast = compile_cast(inner.arrow, arrow)

    def column(self, payloads: pa.Array) -> pa.Array:
        return self._cast(self._inner.column(payloads))

    def reason(self, payload: bytes) -> str:
        return self._inner.reason(payload)


def compile_cast(source: pa.DataType, target: pa.DataType, path: str = "value") -> Cast:
    """The function from a column of `source` to one of `target`; it raises BadRows for text that is none.

    Raises PipelineError where there is no such function.
    """
    if source == target and str(source) == str(target):
        return lambda column: column
    if pa.types.is_null(source):
        return lambda column: pa.nulls(len(column), target)
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _struct(source, target, path)
    if pa.types.is_list(source) and pa.types.is_list(target):
        return _list(target, compile_cast(source.value_type, target.value_type, f"{path}[]"))
    if pa.types.is_map(source) and pa.types.is_map(target):
        keys = compile_cast(source.key_type, target.key_type, f"{path}{{key}}")
        return _map(target, keys, compile_cast(source.item_type, target.item_type, f"{path}{{}}"))
    if target in _WIDER.get(source, ()):
        return lambda column: column.cast(target, safe=False)
    if pa.types.is_binary(source) and pa.types.is_string(target):
        return text
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        whole, wanted = source.precision - source.scale, target.precision - target.scale
        if source.scale <= target.scale and whole <= wanted:
            return lambda column: column.cast(target)
    raise PipelineError(f"{path}: {source} was written, which {target} cannot hold")


def _struct(source: pa.StructType, target: pa.StructType, path: str) -> Cast:
    plan: list[tuple[int, Cast] | pa.DataType] = []
    for field in target:
        place = source.get_field_index(field.name)
        if place < 0:
            plan.append(field.type)
        else:
            plan.append((place, compile_cast(source.field(place).type, field.type, f"{path}.{field.name}")))

    def cast(column: pa.Array) -> pa.Array:
        children = []
        for each in plan:
            if isinstance(each, tuple):
                children.append(each[1](column.field(each[0])))
            else:
                children.append(pa.nulls(len(column), each))
        return struct_of(children, target, len(column), _valid(column))

    return cast


def _list(target: pa.ListType, item: Cast) -> Cast:
    def cast(column: pa.Array) -> pa.Array:
        counts = _counts(column)
        items = items_of(lambda: item(column.flatten()), counts)
        mask = mask_of(_valid(column))
        return pa.ListArray.from_arrays(offsets_of(counts), items, type=target, mask=mask)

    return cast


def _map(target: pa.MapType, key: Cast, item: Cast) -> Cast:
    def cast(column: pa.Array) -> pa.Array:
        counts = _counts(column)
        pairs = column.cast(pa.list_(pa.struct([("k", column.type.key_type), ("v", column.type.item_type)])))
        flat = pairs.flatten()
        keys = items_of(lambda: key(flat.field(0)), counts)
        items = items_of(lambda: item(flat.field(1)), counts)
        mask = mask_of(_valid(column))
        return pa.MapArray.from_arrays(offsets_of(counts), keys, items, type=target, mask=mask)

    return cast


def _counts(column: pa.Array) -> Ints:
    """How many items each row has; none where it is null."""
    raw = np.asarray(column.offsets).astype(np.int64)
    return np.where(np.asarray(column.is_valid()), np.diff(raw), 0)


def _valid(column: pa.Array) -> Flags | None:
    return np.asarray(column.is_valid()) if column.null_count else None
