"""Columns of a table: Spark's types as Arrow's, and how a table's columns may grow. Pure."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.pipeline.decode.arrays import fit
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.versions import arrow_schema

_WIDER = {
    pa.int8(): (pa.int16(), pa.int32(), pa.int64()),
    pa.int16(): (pa.int32(), pa.int64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.float32(): (pa.float64(),),
}
_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def arrow_of(schema: StructType) -> pa.Schema:
    """A DataFrame's columns as the table has them: all nullable, timestamps in us and UTC."""
    try:
        made = arrow_schema(schema)
    except Exception as error:
        raise PipelineError(f"these columns cannot be kept in a table: {error}") from None
    for field in made:
        _check(field.name, field.type)
    return pa.schema([pa.field(field.name, _nullable(field.type)) for field in made])


def spark_of(schema: pa.Schema) -> StructType:
    """A table's columns for Spark."""
    nullable = pa.schema([pa.field(f.name, _nullable(f.type)) for f in schema])
    return from_arrow_schema(nullable, prefer_timestamp_ntz=True)  # the default since Spark 4.2


def grow(table: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """The columns of a table that also holds `incoming`: its columns, then the new ones; fields of structs in the same way, also
    within lists and maps.

    A column that is missing is null. A narrower number is widened; a whole number that is wider than the table's is kept as the
    table's, as Delta does it when schemas are merged, where it fits (`conform`). Raises PipelineError if a column's type
    changed otherwise, or if two names differ in case alone.
    """
    fields = list(table)
    places = {field.name: place for place, field in enumerate(fields)}
    cases = {name.lower(): name for name in places}
    for field in incoming:
        if field.name not in places:
            if other := cases.get(field.name.lower()):
                raise PipelineError(f"column {field.name} differs from the table's {other} in case alone")
            places[field.name] = len(fields)
            cases[field.name.lower()] = field.name
            fields.append(field)
            continue
        place = places[field.name]
        kind = _grow(field.name, fields[place].type, field.type)
        fields[place] = pa.field(field.name, kind)
    return pa.schema(fields)


def conform(batch: pa.RecordBatch, schema: pa.Schema, constants: dict[str, Any] | None = None) -> Any:
    """`batch` with exactly the columns of `schema`: missing ones null or constant, the rest cast. Raises PipelineError for a
    value that does not fit."""
    arrays = []
    names = {name: place for place, name in enumerate(batch.schema.names)}
    for field in schema:
        if constants is not None and field.name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows))
        elif field.name in names:
            column = batch.column(names[field.name])
            try:
                arrays.append(fit(column, field.type, pc.cast))
            except pa.ArrowInvalid as error:
                raise PipelineError(
                    f"column {field.name}: {error}: the table keeps it as {field.type}, and this is {column.type}. Reject such"
                    " rows before the sink, or write to a new table"
                ) from None
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _grow(name: str, table: pa.DataType, incoming: pa.DataType) -> pa.DataType:
    if table == incoming or _alike(table, incoming):
        return table
    if pa.types.is_struct(table) and pa.types.is_struct(incoming):
        inner = grow(pa.schema(list(table)), pa.schema(list(incoming)))
        return pa.struct(list(inner))
    if pa.types.is_list(table) and pa.types.is_list(incoming):
        return pa.list_(table.value_field.with_type(_grow(name, table.value_type, incoming.value_type)))
    if pa.types.is_map(table) and pa.types.is_map(incoming) and _alike(table.key_type, incoming.key_type):
        return pa.map_(
            table.key_field, table.item_field.with_type(_grow(name, table.item_type, incoming.item_type))
        )
    if table in _WIDER.get(incoming, ()) or (table in _WHOLE and incoming in _WHOLE):
        return table
    raise PipelineError(f"column {name} is {table} in the table and {incoming} here: a column's type stays")


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether types differ in the names or the nullability of a list's or a map's parts alone."""
    return bool(_nullable(one) == _nullable(other))


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same type in the one spelling that Spark's own has: everything nullable, no large or view types."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _nullable(f.type)) for f in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _check(name: str, kind: pa.DataType) -> None:
    if pa.types.is_null(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise PipelineError(f"column {name} is {kind}, which no table keeps; cast it")
    if pa.types.is_time(kind):
        raise PipelineError(f"column {name} is {kind}, which no table keeps; cast it")
    for n in range(kind.num_fields):
        _check(f"{name}.{kind.field(n).name}", kind.field(n).type)
