"""The source `penstock_lake`: a table as rows, by files and parts of files.

The driver chooses files by the table's log and opens none; a task opens the files of its part and fits their columns to
the table's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.query import asks_for_filters, carried, carry, given_options
from penstock.pipeline.versions import arrow_schema

from . import schema as schemas
from .files import open_file, runs
from .options import ReadOptions, read_options, snapshot_of
from .partitioning import constants
from .store import Location
from .values import File

if TYPE_CHECKING:  # PySpark 4.0 has none
    from pyspark.sql.datasource import Filter

PART_BYTES: Final = 32 << 20  # of a task, compressed; a task costs Spark 25 to 45 ms
ROWS: Final = 16_384  # of a batch
_END: Final = 1 << 62  # of a file, whatever its size is said to be

_MS: Final = pa.scalar(1000, pa.duration("us"))  # writers cut the bounds of times to ms

Test = Callable[[Any, Any], Any]  # of bounds and a value

# By kind of filter: how the lowest and the highest value of a file compare with the filter's.
_COMPARED: Final[dict[str, tuple[Test | None, Test | None]]] = {
    "EqualTo": (pc.less_equal, pc.greater_equal),
    "EqualNullSafe": (pc.less_equal, pc.greater_equal),
    "GreaterThan": (None, pc.greater),
    "GreaterThanOrEqual": (None, pc.greater_equal),
    "LessThan": (pc.less, None),
    "LessThanOrEqual": (pc.less_equal, None),
}


class Chunk(msgspec.Struct, frozen=True):
    """A file, or its row groups whose middle is in the `start .. end-1` of its bytes."""

    path: str
    values: dict[str, str | None]
    size: int
    start: int
    end: int


class Part(InputPartition):
    """One task."""

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        super().__init__(None)
        self.chunks = tuple(chunks)


def table_schema(given: Mapping[str, str]) -> StructType:
    """The columns of the table that the options name."""
    texts, declared = _given(given)
    options = read_options(texts)
    now = snapshot_of(options.path, options.version)
    made = schemas.spark_of(_chosen(now.schema, options))
    return carry(made, texts) if declared else made


class TableReader(DataSourceReader):
    """Reads a table as it is when the query is planned, or as it was."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = read_options(carried(schema, _given(given)[0]))
        self._schema = arrow_schema(schema)
        self._filters: tuple[Filter, ...] = ()
        self.prunes = self._options.prune

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        now = snapshot_of(options.path, options.version)
        if missing := [name for name in self._schema.names if name not in now.schema.names]:
            raise PipelineError(f"the table {options.path} has no column {missing[0]}")
        return list(parts(now.files(partial(kept, filters=self._filters))))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        with self._options.path.reached():
            if isinstance(partition, Part):  # Spark makes another kind if there is nothing to read
                for chunk in partition.chunks:
                    yield from read_chunk(self._options.path, chunk, self._schema)


class FilteringTableReader(TableReader):
    """A reader to which Spark pushes filters down: they choose files, and Spark applies them to the rows."""

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's name
        """Take note of the filters; all are left to Spark."""
        self._filters = tuple(filters)
        return filters


def reader_for(given: Mapping[str, str], schema: StructType) -> TableReader:
    """A reader for the process of Spark that asks for one.

    Spark 4.3 keeps what a reader planned with the filters of one query for the next query of the same DataFrame, which may have
    none: so only `pruneFiles` has filters choose files.
    """
    reader = TableReader(given, schema)
    return FilteringTableReader(given, schema) if asks_for_filters() and reader.prunes else reader


def parts(files: Iterable[File]) -> list[Part]:
    """The tasks that read files: small ones together, large ones in parts."""
    chunks = (chunk for file in files for chunk in _chunks(file))
    return [Part(run) for run in runs(chunks, PART_BYTES, lambda chunk: chunk.size)]


def read_chunk(folder: Location, chunk: Chunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk with the columns of `schema`; what the file does not have is null."""
    fixed = constants(chunk.values, schema)
    with open_file(folder, chunk.path) as file:
        wanted = [name for name in file.schema_arrow.names if name in schema.names]
        groups = _groups(file.metadata, chunk)
        if not wanted:  # nothing but partition columns and new ones: the rows count all the same
            rows = sum(file.metadata.row_group(n).num_rows for n in groups)
            for at in range(0, rows, ROWS):
                count = min(ROWS, rows - at)
                yield schemas.conform(_empty(count), schema, fixed)
            return
        for batch in file.iter_batches(batch_size=ROWS, row_groups=groups, columns=wanted):
            yield schemas.conform(batch, schema, fixed)


def _empty(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(rows, pa.int8())], names=[""])


def _chunks(file: File) -> Iterator[Chunk]:
    count = max(1, -(-file.size // PART_BYTES))
    for n in range(count):
        start, end = file.size * n // count, file.size * (n + 1) // count
        yield Chunk(file.path, file.values, end - start, start, end if n < count - 1 else _END)


def _groups(footer: pq.FileMetaData, chunk: Chunk) -> list[int]:
    """The row groups of a chunk."""
    found, start = [], 0
    for n in range(footer.num_row_groups):
        group = footer.row_group(n)
        size = sum(group.column(c).total_compressed_size for c in range(group.num_columns))
        if chunk.start <= start + size // 2 < chunk.end:
            found.append(n)
        start += size
    return found


def _chosen(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    if not options.columns:
        return schema
    for name in options.columns:
        if name not in schema.names:
            raise PipelineError(f"option columns: the table has no column {name!r}")
    return pa.schema([schema.field(name) for name in options.columns])


def _given(given: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The user's own options, and whether they are those of a table declared in SQL.

    Such a table's path is its location, whichever way it was given; the other properties are Spark's.
    """
    if "provider" not in given or "location" not in given:
        return dict(given), False
    own, any_own = given_options(given)
    return {"path": given["location"], **(own if any_own else {})}, True


def kept(actions: pa.Table, filters: "Iterable[Filter]") -> pa.Table:
    """The rows of `Snapshot.actions` whose files may have rows that pass all filters, by partitions and by statistics.

    Spark applies the filters to the rows all the same: a file that is kept in vain costs time only.
    """
    for each in filters:
        if (mask := _mask(actions, each)) is not None:
            actions = actions.filter(pc.fill_null(mask, True))
    return actions


def _mask(actions: pa.Table, given: "Filter") -> Any:
    """Which files may have rows that pass; None if all may, null for files without statistics."""
    path: Sequence[str] = getattr(given, "attribute", ())
    if len(path) != 1:
        return None
    kind, value = type(given).__name__, getattr(given, "value", None)

    def column(prefix: str) -> Any:
        name = f"{prefix}.{path[0]}"
        return actions[name] if name in actions.column_names else None

    partition = column("partition")
    if kind in ("IsNull", "IsNotNull"):
        nulls = column("null_count")
        if partition is not None:
            return pc.is_null(partition) if kind == "IsNull" else pc.is_valid(partition)
        if nulls is None:
            return None
        return pc.greater(nulls, 0) if kind == "IsNull" else pc.less(nulls, actions["num_records"])
    low, high = (column("min"), column("max")) if partition is None else (partition, partition)
    if partition is None and high is not None:
        if pa.types.is_timestamp(high.type):
            high = pc.add(high, _MS)
        elif pa.types.is_floating(high.type):
            high = None  # bounds pass over NaN, which Spark holds to be above all numbers
    values = value if kind == "In" else [value]
    masks = [_compared("EqualTo" if kind == "In" else kind, low, high, one) for one in values or ()]
    if not masks or any(mask is None for mask in masks):
        return None
    found = reduce(pc.or_kleene, masks)
    # Nothing but null is equal to null, or compared with it.
    return found if partition is None else pc.fill_null(found, False)


def _compared(kind: str, low: Any, high: Any, value: Any) -> Any:
    """Which files may have values that compare so with one; None if all may."""
    column = low if low is not None else high
    if kind not in _COMPARED or column is None or value is None:
        return None
    if isinstance(value, datetime) and (value.tzinfo is None) != (getattr(column.type, "tz", None) is None):
        return None
    try:
        wanted = pa.scalar(value).cast(column.type)
        tests = [(_COMPARED[kind][0], low), (_COMPARED[kind][1], high)]
        masks = [test(bound, wanted) for test, bound in tests if test is not None and bound is not None]
    except (pa.ArrowException, OverflowError, TypeError, ValueError):  # not to be compared
        return None
    return reduce(pc.and_kleene, masks) if masks else None
