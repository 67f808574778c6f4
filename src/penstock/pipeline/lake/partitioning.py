"""How rows are divided into a table's partitions: by plain columns, or by the day or month of a time. Pure."""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from hashlib import sha256
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.zones import UTC

_DERIVED: Final = re.compile(r"(day|month)\(\s*(.+?)\s*\)")
_SUFFIX: Final = re.compile(r"(.+)_(day|month)")
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_.-]")

# The days of the years 1 to 9999, counted from 1970: Delta's log has no others.
_DAY_MIN: Final = -719162
_DAY_MAX: Final = 2932896

# What Hive's readers take for null.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


class PartitionColumn(msgspec.Struct, frozen=True):
    """A partition column: `name`; derived from a time if it has a `source`, per `unit` (day, month) of `zone`."""

    name: str
    source: str = ""
    unit: str = ""
    zone: str = UTC


def parse(text: str, zone: str = UTC) -> tuple[PartitionColumn, ...]:
    """`day(timestamp),carrier`, with days and months of a time zone. Raises PipelineError."""
    found = []
    for part in (each.strip() for each in text.split(",")):
        if not part:
            continue
        if derived := _DERIVED.fullmatch(part):
            unit, source = derived.groups()
            found.append(PartitionColumn(f"{source}_{unit}", source, unit, zone))
        elif "(" in part or ")" in part:
            raise PipelineError(f"option partitionBy: {part!r}; a column, day(column) or month(column)")
        else:
            found.append(PartitionColumn(part))
    if len({by.name for by in found}) < len(found):
        raise PipelineError("option partitionBy: a column is named twice")
    return tuple(found)


def of_table(names: Sequence[str], incoming: pa.Schema, zone: str = UTC) -> tuple[PartitionColumn, ...]:
    """The partitioning of a table that has these partition columns: `t_day` is derived from `t`, if only `t` is given."""
    found = []
    for name in names:
        derived = _SUFFIX.fullmatch(name)
        if name not in incoming.names and derived and derived[1] in incoming.names:
            found.append(PartitionColumn(name, derived[1], derived[2], zone))
        else:
            found.append(PartitionColumn(name))
    return tuple(found)


def extend(schema: pa.Schema, bys: Sequence[PartitionColumn]) -> pa.Schema:
    """The columns with the derived ones. Raises PipelineError for columns that cannot part a table."""
    for by in bys:
        if by.source:
            if by.source not in schema.names:
                raise PipelineError(f"option partitionBy: there is no column {by.source}")
            kind = schema.field(by.source).type
            if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
                raise PipelineError(f"option partitionBy: column {by.source} is {kind}, no time")
            if by.name not in schema.names:
                schema = schema.append(pa.field(by.name, pa.date32()))
        elif by.name not in schema.names:
            raise PipelineError(f"option partitionBy: there is no column {by.name}")
        kind = schema.field(by.name).type
        if not (
            pa.types.is_string(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_date(kind)
            or pa.types.is_boolean(kind)
        ):
            raise PipelineError(
                f"option partitionBy: column {by.name} is {kind}; a text, a whole number, a date or a truth value"
            )
    if bys and len(bys) == len(schema):
        raise PipelineError("option partitionBy: a table needs a column beside those that part it")
    return schema


def part(
    batch: pa.RecordBatch, bys: Sequence[PartitionColumn]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Cut a batch by its partition values; rows keep their order within each."""
    if not bys:
        yield (), batch
        return
    keys = [_texts(batch, by) for by in bys]
    constant = [len(pc.unique(key)) <= 1 for key in keys]
    if all(constant):
        yield tuple(key[0].as_py() for key in keys), batch
        return
    codes = pa.RecordBatch.from_arrays(keys, names=[by.name for by in bys])
    table = pa.Table.from_batches([codes])
    groups = table.group_by(codes.schema.names, use_threads=False).aggregate([]).to_pylist()
    for group in groups:
        mask = None
        for by, key in zip(bys, keys, strict=True):
            wanted = group[by.name]
            same = pc.is_null(key) if wanted is None else pc.fill_null(pc.equal(key, wanted), False)
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple(group[by.name] for by in bys), batch.filter(mask)


def placed(batch: pa.RecordBatch, bys: Sequence[PartitionColumn]) -> pa.RecordBatch:
    """A batch with its partition columns as the table has them: derived ones too, an empty text null."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for by in bys:
        kind = columns[by.name].type if by.name in columns else pa.date32()
        columns[by.name] = _texts(batch, by).cast(kind)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _texts(batch: pa.RecordBatch, by: PartitionColumn) -> pa.Array:
    """A partition column's values as text; an empty text is null, as in Delta."""
    column = batch.column(batch.schema.get_field_index(by.source or by.name))
    if by.source and by.name not in batch.schema.names:
        if pa.types.is_timestamp(column.type):
            if column.type.tz is not None:  # the session's, which does not matter
                column = column.cast(pa.timestamp("us", by.zone))
            column = pc.floor_temporal(column, unit=by.unit)
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.date32())
        elif by.unit == "month":
            column = pc.floor_temporal(column, unit="month")
    if pa.types.is_date(column.type):
        column = _writable(column, by)
    texts = column.cast(pa.string())
    return pc.replace_with_mask(texts, pc.fill_null(pc.equal(texts, ""), False), pa.scalar(None, pa.string()))


def _writable(days: pa.Array, by: PartitionColumn) -> pa.Array:
    """Days that Delta's log can name; where they are derived, null for all others: the rows have the time itself."""
    numbers = days.cast(pa.date32()).cast(pa.int32())
    beyond = pc.fill_null(pc.or_(pc.less(numbers, _DAY_MIN), pc.greater(numbers, _DAY_MAX)), False)
    if not pc.any(beyond).as_py():
        return days
    if not by.source:
        found = days.filter(beyond)[:1].cast(pa.string())[0].as_py()
        raise PipelineError(
            f"option partitionBy: column {by.name} has the date {found}, and a table is parted by dates of the years"
            " 1 to 9999 only"
        )
    return pc.if_else(beyond, pa.scalar(None, days.type), days)


def value(text: str | None, kind: pa.DataType) -> Any:
    """A partition value from its text."""
    if text is None:
        return None
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_boolean(kind):
        return text == "true"
    return text


def constants(values: dict[str, str | None], schema: pa.Schema) -> dict[str, Any]:
    """The partition columns' values of a file, as far as `schema` has them."""
    return {n: value(t, schema.field(n).type) for n, t in values.items() if n in schema.names}


def folder(names: Sequence[str], values: Sequence[str | None]) -> str:
    """The folder of files of a partition, in Hive's way. Only people read it: the log has the values."""
    parts = []
    for name, text in zip(names, values, strict=True):
        shown = _NULL if text is None else text
        safe = _PLAIN.sub("_", shown)[:100]
        if safe != shown:  # distinct all the same
            safe += "-" + sha256(shown.encode()).hexdigest()[:8]
        parts.append(f"{_PLAIN.sub('_', name)}={safe}")
    return "/".join(parts)


def file_schema(schema: pa.Schema, bys: Sequence[PartitionColumn] | Sequence[str]) -> pa.Schema:
    """The columns in the files: all but the partition columns."""
    names = {by if isinstance(by, str) else by.name for by in bys}
    return pa.schema([field for field in schema if field.name not in names])


def check_same(given: Sequence[PartitionColumn], names: Sequence[str]) -> None:
    """A table keeps its partitioning."""
    if given and tuple(by.name for by in given) != tuple(names):
        have = ", ".join(names) or "nothing"
        raise PipelineError(f"option partitionBy: the table is parted by {have}, and stays so")
