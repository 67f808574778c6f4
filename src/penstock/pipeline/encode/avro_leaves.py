"""Columns without parts as Avro writes them; see `avro`."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codec.avro.form import NATIVE
from penstock.codec.avro.types import Enum, Fixed, Primitive
from penstock.pipeline.errors import PipelineError

from .binary import Encode, join, of_matrix, sizes, varints

_INT_MAX: Final = (1 << 31) - 1
_TICKS: Final = {"millis": -1_000, "micros": 1, "nanos": 1_000}  # of a us; below 0: us in a tick


def unfit(path: str, arrow: pa.DataType, kind: str) -> PipelineError:
    """A column that a type cannot take."""
    return PipelineError(f"{path}: {arrow} cannot be written as {kind}")


def longs(values: Any) -> pa.Array:
    """Zigzag varints."""
    values = values.astype(np.int64)
    return varints(None, ((values << 1) ^ (values >> 63)).view(np.uint64))


def _numbers(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def leaf(kind: Primitive | Fixed, arrow: pa.DataType, path: str) -> Encode:
    """Of numbers, texts, bytes and logical types."""
    name, logical = kind.kind, kind.logical
    if logical is not None and logical.name in ("decimal", "uuid"):
        return _by_item(kind, arrow, path)
    if name == "null" and pa.types.is_null(arrow):
        return lambda column: pa.array([b""] * len(column), pa.binary())
    if name == "boolean" and pa.types.is_boolean(arrow):
        return lambda column: of_matrix(_numbers(column).astype(np.uint8).reshape(-1, 1))
    if name in ("int", "long"):
        return _integer(kind, arrow, path)
    if name in ("float", "double") and (pa.types.is_floating(arrow) or pa.types.is_integer(arrow)):
        return _float(name, path)
    if name == "string" and pa.types.is_string(arrow):
        return lambda column: sized(column.cast(pa.binary()))
    if name == "bytes" and pa.types.is_binary(arrow):
        return sized
    if isinstance(kind, Fixed) and pa.types.is_binary(arrow):
        return _fixed(kind.size, path)
    raise unfit(path, arrow, logical.name if logical is not None else name)


def sized(column: pa.Array) -> pa.Array:
    """Bytes behind their length."""
    return join([longs(sizes(column)), column])


def _integer(kind: Primitive | Fixed, arrow: pa.DataType, path: str) -> Encode:
    logical = kind.logical
    if pa.types.is_integer(arrow):
        narrow = kind.kind == "int"

        def integers(column: pa.Array) -> pa.Array:
            values = _numbers(column)
            if narrow and len(values) and (values.max() > _INT_MAX or values.min() < -_INT_MAX - 1):
                raise PipelineError(f"{path}: a number that does not fit 32 bits")
            return longs(values)

        return integers
    if logical is not None and logical.name == "date" and pa.types.is_date32(arrow):
        return lambda column: longs(_numbers(column.view(pa.int32())))
    local = logical is not None and logical.name.startswith("local-timestamp-")
    if (
        logical is not None
        and "timestamp-" in logical.name
        and pa.types.is_timestamp(arrow)
        and arrow.unit == "us"
        and (arrow.tz is None) == local  # an instant is the same in every zone
    ):
        factor = _TICKS[logical.name.rpartition("-")[2]]

        def timestamps(column: pa.Array) -> pa.Array:
            micros = _numbers(column.view(pa.int64()))
            if factor < 0:
                return longs(micros // -factor)
            limit = ((1 << 63) - 1) // factor
            if len(micros) and (micros.max() > limit or micros.min() < -limit):
                raise PipelineError(f"{path}: a time beyond what {logical.name} holds")
            return longs(micros * factor)

        return timestamps
    raise unfit(path, arrow, logical.name if logical is not None else kind.kind)


def _float(name: str, path: str) -> Encode:
    layout = np.dtype("<f4" if name == "float" else "<f8")

    def floats(column: pa.Array) -> pa.Array:
        wide = _numbers(column).astype(np.float64)
        with np.errstate(over="ignore"):
            values = wide.astype(layout)
        if (np.isinf(values) & ~np.isinf(wide)).any():
            raise PipelineError(f"{path}: a number that is too large for a {name}")
        return of_matrix(values.view(np.uint8).reshape(-1, layout.itemsize))

    return floats


def _fixed(size: int, path: str) -> Encode:
    def fixed(column: pa.Array) -> pa.Array:
        if (sizes(column) != size).any():
            raise PipelineError(f"{path}: bytes that are not {size} long")
        return column

    return fixed


def _by_item(kind: Primitive | Fixed, arrow: pa.DataType, path: str) -> Encode:
    """Decimals and UUIDs, one by one."""
    assert kind.logical is not None
    wanted = pa.types.is_decimal(arrow) if kind.logical.name == "decimal" else pa.types.is_string(arrow)
    if not wanted:
        raise unfit(path, arrow, kind.logical.name)
    convert = NATIVE.into(kind)
    assert convert is not None

    def items(column: pa.Array) -> pa.Array:
        try:
            raw = [convert(item) for item in column.to_pylist()]
        except (ValueError, TypeError, OverflowError) as error:
            raise PipelineError(f"{path}: a value that is no {kind.logical.name}: {error}") from None  # type: ignore[union-attr]
        found = pa.array([item.encode() if isinstance(item, str) else item for item in raw], pa.binary())
        return found if isinstance(kind, Fixed) else sized(found)

    return items


def enum(kind: Enum, arrow: pa.DataType, path: str) -> Encode:
    """Of symbols."""
    if not pa.types.is_string(arrow):
        raise unfit(path, arrow, f"enum {kind.short}")
    symbols = pa.array(kind.symbols, pa.string())

    def indices(column: pa.Array) -> pa.Array:
        index = pc.index_in(column, symbols)
        if index.null_count:
            unknown = column.filter(index.is_null())[0].as_py()
            raise PipelineError(f"{path}: {unknown!r} is no symbol of enum {kind.short}")
        return longs(_numbers(index))

    return indices
