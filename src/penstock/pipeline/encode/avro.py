"""Columns to Avro payloads, a field of all rows at a time; what `penstock.codec.avro.write` writes, byte for byte."""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.codec.avro.form import NATIVE
from penstock.codec.avro.types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from penstock.codec.avro.varint import encode_long
from penstock.pipeline.decode.shapes import arrow_type, members, merged, spark_type
from penstock.pipeline.errors import PipelineError

from .binary import Encode, grouped, join, nullable, of_matrix, sizes, varints

_INT_MAX: Final = (1 << 31) - 1
_TICKS: Final = {"millis": -1_000, "micros": 1, "nanos": 1_000}  # of a us; below 0: us in a tick


def compile_write(kind: Type, arrow: pa.DataType, path: str = "value") -> Encode:
    """From a column without nulls to its encodings. The function raises PipelineError for what does not fit.

    Raises PipelineError if no value of that column could.
    """
    if isinstance(kind, Union):
        return _union(kind, arrow, path)
    if isinstance(kind, Record):
        return _record(kind, arrow, path)
    if isinstance(kind, Array):
        if not pa.types.is_list(arrow):
            raise unfit(path, arrow, "array")
        return _array(_inner(kind.items, arrow.value_type, f"{path}[]"))
    if isinstance(kind, Map):
        if not pa.types.is_map(arrow) or arrow.key_type != pa.string():
            raise unfit(path, arrow, "map")
        return _map(_inner(kind.values, arrow.item_type, f"{path}{{}}"))
    if isinstance(kind, Enum):
        return enum(kind, arrow, path)
    return leaf(kind, arrow, path)


def _inner(kind: Type, arrow: pa.DataType, path: str) -> Encode:
    """As `compile_write`, of a column that may hold nulls; only a union may have a place for them."""
    write = compile_write(kind, arrow, path)
    if isinstance(kind, Union) or pa.types.is_null(arrow):
        return write

    def checked(column: pa.Array) -> pa.Array:
        if column.null_count:
            raise PipelineError(f"{path}: null, which the schema does not allow here")
        return write(column)

    return checked


def _record(kind: Record, arrow: pa.DataType, path: str) -> Encode:
    if not pa.types.is_struct(arrow):
        raise unfit(path, arrow, f"record {kind.short}")
    names = [field.name for field in arrow]
    unknown = [name for name in names if name not in {field.name for field in kind.fields}]
    if unknown:
        raise PipelineError(f"{path}.{unknown[0]}: record {kind.short} has no such field")
    plan: list[tuple[int, Encode] | bytes] = []
    for field in kind.fields:
        inside = f"{path}.{field.name}"
        if field.name in names:
            place = names.index(field.name)
            plan.append((place, _inner(field.type, arrow.field(place).type, inside)))
        elif field.default is not None:
            plan.append(field.default)
        elif isinstance(field.type, Union) and field.type.nullable:
            plan.append(encode_long(next(n for n, b in enumerate(field.type.branches) if b.kind == "null")))
        else:
            raise PipelineError(f"{inside}: the column is missing, and the schema has no default for it")

    def record(column: pa.Array) -> pa.Array:
        children = column.flatten()
        pieces = [
            pa.repeat(pa.scalar(each, pa.binary()), len(column))
            if isinstance(each, bytes)
            else each[1](children[each[0]])
            for each in plan
        ]
        return join(pieces) if pieces else pa.array([b""] * len(column), pa.binary())

    return record


def _blocks(items: pa.Array, starts: Any) -> pa.Array:
    """Each row's items behind their number, and the end of them."""
    counts = np.diff(starts)
    heads = longs(counts)
    some = pa.array([b"", b"\0"], pa.binary()).take(pa.array((counts > 0).astype(np.int8)))
    return join([heads, grouped(items, starts.astype(np.int32)), some])


def _starts(column: pa.Array) -> Any:
    starts = np.asarray(column.offsets).astype(np.int64)
    return starts - starts[0]


def _array(item: Encode) -> Encode:
    return lambda column: _blocks(item(column.flatten()), _starts(column))


def _map(value: Encode) -> Encode:
    def maps(column: pa.Array) -> pa.Array:
        offsets = column.offsets
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        keys, items = column.keys[first:last], column.items[first:last]
        return _blocks(join([sized(keys.cast(pa.binary())), value(items)]), _starts(column))

    return maps


def _union(kind: Union, arrow: pa.DataType, path: str) -> Encode:
    branches = kind.branches
    null = next((n for n, branch in enumerate(branches) if branch.kind == "null"), -1)
    whole = merged(kind)
    if whole is None and arrow == arrow_type(spark_type(kind)):
        return _members(kind, arrow, null, path)
    number, write = _fitting(kind, arrow, path)

    def union(column: pa.Array) -> pa.Array:
        if not column.null_count:
            return join([pa.repeat(pa.scalar(encode_long(number), pa.binary()), len(column)), write(column)])
        if null < 0:
            raise PipelineError(f"{path}: null, which the schema does not allow here")
        valid = np.asarray(column.is_valid())
        return join([longs(np.where(valid, number, null)), nullable(write)(column)])

    return union


def _fitting(kind: Union, arrow: pa.DataType, path: str) -> tuple[int, Encode]:
    """The branch for a column: that of its very type, else the first that takes it."""
    found: list[tuple[bool, int, Encode]] = []
    why = ""
    for number, branch in enumerate(kind.branches):
        if branch.kind == "null" and not pa.types.is_null(arrow):
            continue
        try:
            write = compile_write(branch, arrow, path)
        except PipelineError as error:
            why = error.message
            continue
        found.append((arrow_type(spark_type(branch)) != arrow, number, write))
    if not found:
        raise PipelineError(why or f"{path}: {arrow} fits no branch of the union")
    _, number, write = min(found, key=lambda each: each[:2])
    return number, write


def _members(kind: Union, arrow: pa.DataType, null: int, path: str) -> Encode:
    """A struct of members as reading makes it: of each row, one is there."""
    numbers = [n for n, branch in enumerate(kind.branches) if branch.kind != "null"]
    writes = [compile_write(branch, arrow.field(n).type, path) for n, branch in enumerate(members(kind))]

    def union(column: pa.Array) -> pa.Array:
        children = column.flatten()
        there = np.array([np.asarray(child.is_valid()) for child in children])
        count = there.sum(axis=0)
        if (count > 1).any() or (null < 0 and (count < 1).any()):
            raise PipelineError(f"{path}: of a union's members, one must be there")
        number = np.full(len(column), null, np.int64)
        pieces = []
        for child, valid, branch, write in zip(children, there, numbers, writes, strict=True):
            number[valid] = branch
            pieces.append(nullable(write)(child))
        return join([longs(number), *pieces])

    return union


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
