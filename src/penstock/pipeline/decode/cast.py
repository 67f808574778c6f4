"""A column of one type as a column of another: fields by name, and only what loses nothing."""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from penstock.pipeline.errors import PipelineError

from .arrays import fit
from .leaves import text
from .payloads import Decoder

Cast = Callable[[pa.Array], pa.Array]

_WIDER: Final[dict[pa.DataType, tuple[pa.DataType, ...]]] = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int16(): (pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float32(), pa.float64()),
    pa.int64(): (pa.float32(), pa.float64()),
    pa.float32(): (pa.float64(),),
    pa.string(): (pa.binary(),),
    pa.binary(): (pa.string(),),
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
    """The function from a column of `source` to one of `target`; it raises BadRows for text that is not UTF-8.

    Raises PipelineError if there is no such function.
    """
    _check(source, target, path)
    return lambda column: fit(column, target, _leaf)


def _check(source: pa.DataType, target: pa.DataType, path: str) -> None:
    if source == target or pa.types.is_null(source):
        return
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        for field in target:
            if (place := source.get_field_index(field.name)) >= 0:
                _check(source.field(place).type, field.type, f"{path}.{field.name}")
    elif pa.types.is_list(source) and pa.types.is_list(target):
        _check(source.value_type, target.value_type, f"{path}[]")
    elif pa.types.is_map(source) and pa.types.is_map(target):
        _check(source.key_type, target.key_type, f"{path}{{key}}")
        _check(source.item_type, target.item_type, f"{path}{{}}")
    elif not _holds(source, target):
        raise PipelineError(f"{path}: {source} was written, which {target} cannot hold")


def _holds(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        whole, wanted = source.precision - source.scale, target.precision - target.scale
        return bool(source.scale <= target.scale and whole <= wanted)
    return target in _WIDER.get(source, ())


def _leaf(column: pa.Array, target: pa.DataType) -> pa.Array:
    return text(column) if pa.types.is_string(target) else column.cast(target, safe=False)
