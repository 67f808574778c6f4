"""Scanned values of one definition become a column as another definition sees it.

Avro's rules of resolution (`penstock.codec.avro.resolve`), and one more: an enum may be read as a string.
"""

from typing import cast

import numpy as np
import pyarrow as pa

from penstock.codec.avro.resolve import Resolution, writer_field
from penstock.codec.avro.types import Array, Enum, Fixed, Map, Primitive, Record, Type, Union
from penstock.pipeline.errors import PipelineError

from .arrays import items_of, mask_of, offsets_of, struct_of
from .leaves import Build, enum_column, leaf, span_array
from .raw import BadRows, Choice, Fields, Flags, Items, Numbers, Raw, Spans, size, take
from .scan import compile_scan, scan
from .shapes import arrow_type, members, merged, spark_type


class _Rules(Resolution):
    def check(self, reader: Type, writer: Type, path: str = "") -> str:
        if isinstance(writer, Enum) and reader.kind == "string":
            return ""
        return super().check(reader, writer, path)


def compile_build(writer: Type, reader: Type) -> Build:
    """The function from a scan by `writer` and its bytes to `reader`'s column; it raises BadRows.

    Raises PipelineError if `reader` cannot read what `writer` wrote.
    """
    rules = _Rules()
    try:
        why = rules.check(reader, writer)
    except RecursionError:
        why = "the types refer to one another too deeply to be compared"
    if why:
        raise PipelineError(f"the reader's schema cannot read this: {why}")
    return _compile(writer, reader, rules)


def _compile(writer: Type, reader: Type, rules: _Rules) -> Build:
    if isinstance(writer, Union):
        return _union(writer, reader, rules)
    if isinstance(reader, Union):
        return _member(reader, writer, rules)
    if writer.kind == "null":
        return _nulls(reader)
    if isinstance(writer, Record) and isinstance(reader, Record):
        return _record(writer, reader, rules)
    if isinstance(writer, Array) and isinstance(reader, Array):
        return _array(reader, _compile(writer.items, reader.items, rules))
    if isinstance(writer, Map) and isinstance(reader, Map):
        return _map(reader, _compile(writer.values, reader.values, rules))
    if isinstance(writer, Enum):
        return enum_column(writer, reader)
    return leaf(cast("Primitive | Fixed", writer), cast("Primitive | Fixed", reader))


def _nulls(reader: Type) -> Build:
    arrow = arrow_type(spark_type(reader))
    return lambda raw, _: pa.nulls(size(raw), arrow)


def _member(reader: Union, writer: Type, rules: _Rules) -> Build:
    """One type into a union's column."""
    if writer.kind == "null":
        return _nulls(reader)
    chosen = rules.branch(reader, writer)
    assert chosen is not None  # the definitions match
    build = _compile(writer, chosen, rules)
    whole = merged(reader)
    if whole is chosen:
        return build
    if whole is not None:
        target = arrow_type(spark_type(whole))
        return lambda raw, data: build(raw, data).cast(target)
    arrow = arrow_type(spark_type(reader))
    number = next(n for n, branch in enumerate(members(reader)) if branch is chosen)

    def read(raw: Raw, data: Numbers) -> pa.Array:
        built = build(raw, data)
        children = [built if n == number else pa.nulls(len(built), f.type) for n, f in enumerate(arrow)]
        return struct_of(children, arrow, len(built), raw.valid)

    return read


def _union(writer: Union, reader: Type, rules: _Rules) -> Build:
    branches = writer.branches
    if len(branches) == 2 and writer.nullable:  # its scan is that of the other type, with nulls
        return _compile(members(writer)[0], reader, rules)
    builds = [None if branch.kind == "null" else _compile(branch, reader, rules) for branch in branches]
    arrow = arrow_type(spark_type(reader))

    def read(raw: Raw, data: Numbers) -> pa.Array:
        choice = cast("Choice", raw)
        built, bad = [], np.zeros(len(choice.branch), np.bool_)
        why = ""
        for number, child in enumerate(choice.children):
            build = builds[number]
            try:
                built.append(pa.nulls(size(child), arrow) if build is None else build(child, data))
            except BadRows as error:
                bad[np.flatnonzero(choice.branch == number)[error.flags]] = True
                why = error.why
        if why:
            raise BadRows(bad, why)
        return _gather(choice, built)

    return read


def _gather(choice: Choice, built: list[pa.Array]) -> pa.Array:
    """The branches' columns, row by row."""
    place = np.zeros(len(choice.branch), np.int64)
    first = 0
    for number, column in enumerate(built):
        rows = choice.branch == number
        place[rows] = first + np.arange(len(column))
        first += len(column)
    return pa.concat_arrays(built).take(pa.array(place, mask=choice.branch < 0))


def _record(writer: Record, reader: Record, rules: _Rules) -> Build:
    arrow = arrow_type(spark_type(reader))
    by_name = {field.name: field for field in writer.fields}
    places = {field.name: number for number, field in enumerate(writer.fields)}
    plan: list[tuple[int, Build | pa.Array]] = []
    for field in reader.fields:
        source = writer_field(field, by_name)
        if source is None:
            assert field.default is not None  # the rules said so
            plan.append((-1, _default(field.type, field.default)))
        else:
            plan.append((places[source.name], _compile(source.type, field.type, rules)))

    def read(raw: Raw, data: Numbers) -> pa.Array:
        fields = cast("Fields", raw)
        children = []
        bad: Flags | None = None
        why = ""
        for place, build in plan:
            if isinstance(build, pa.Array):
                children.append(build.take(pa.array(np.zeros(fields.rows, np.int64))))
                continue
            try:
                children.append(build(fields.children[place], data))
            except BadRows as error:
                bad = error.flags if bad is None else bad | error.flags
                why = error.why
        if bad is not None:
            raise BadRows(bad, why)
        return struct_of(children, arrow, fields.rows, fields.valid)

    return read


def _default(kind: Type, encoded: bytes) -> pa.Array:
    """The default as a column of one row."""
    ends = np.array([len(encoded)])
    raw, _, data = scan(compile_scan(kind), encoded, ends - ends, ends)
    return _compile(kind, kind, _Rules())(raw, data)


def _array(reader: Array, build: Build) -> Build:
    arrow = arrow_type(spark_type(reader))

    def read(raw: Raw, data: Numbers) -> pa.Array:
        items = cast("Items", raw)
        child = items_of(lambda: build(items.child, data), items.counts)
        return pa.ListArray.from_arrays(
            offsets_of(items.counts), child, type=arrow, mask=mask_of(items.valid)
        )

    return read


def _map(reader: Map, build: Build) -> Build:
    arrow = arrow_type(spark_type(reader))

    def read(raw: Raw, data: Numbers) -> pa.Array:
        items = _without_repeats(cast("Items", raw), data)
        pairs = cast("Fields", items.child)
        key, value = pairs.children
        keys = items_of(lambda: span_array(cast("Spans", key), data, pa.string()), items.counts)
        values = items_of(lambda: build(value, data), items.counts)
        offsets = offsets_of(items.counts)
        return pa.MapArray.from_arrays(offsets, keys, values, type=arrow, mask=mask_of(items.valid))

    return read


def _without_repeats(items: Items, data: Numbers) -> Items:
    """A key that a map has twice counts once, with its last value: Spark refuses such maps."""
    pairs = cast("Fields", items.child)
    if not pairs.rows:
        return items
    keys = span_array(cast("Spans", pairs.children[0]), data, pa.binary()).dictionary_encode()
    owner = np.repeat(np.arange(len(items.counts)), items.counts)
    both = owner * len(keys.dictionary) + keys.indices.to_numpy()
    _, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    if len(first) == len(both):
        return items
    last = np.zeros(len(first), np.int64)
    last[inverse] = np.arange(len(both))  # the last one written stays
    order = np.argsort(first)
    chosen = last[order]
    counts = np.bincount(owner[chosen], minlength=len(items.counts)).astype(np.int64)
    return Items(counts, take(pairs, chosen), items.valid)
