"""Columns to Avro payloads, a field of all rows at a time; what `penstock.codec.avro.write` writes, byte for byte."""

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.codec.avro.types import Array, Enum, Map, Record, Type, Union
from penstock.codec.avro.varint import encode_long
from penstock.pipeline.decode.shapes import arrow_type, members, merged, spark_type
from penstock.pipeline.errors import PipelineError

from .avro_leaves import enum, leaf, longs, sized, unfit
from .binary import Encode, grouped, join, nullable


def compile_write(kind: Type, arrow: pa.DataType, path: str = "value") -> Encode:
    """From a column without nulls to its encodings. The function raises PipelineError for what does not fit.

    Raises PipelineError where no value of that column could.
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
