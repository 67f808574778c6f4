"""The source `penstock_lake`: a table as rows, by files and row groups.

The driver plans from the table's log; a task opens the files of its part and fits their columns to the table's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.query import carried, carry, given_options

from . import schema as schemas
from .files import open_file, runs
from .options import ReadOptions, read_options, snapshot_of
from .partitioning import constants
from .slices import Slice, plan_slices, read_slice
from .snapshot import Snapshot
from .store import Location
from .values import File

PART_BYTES: Final = 32 << 20  # of a task, compressed; a task costs Spark 25 to 45 ms
ROWS: Final = 16_384  # of a batch


class Chunk(msgspec.Struct, frozen=True):
    """Some or all row groups of a file."""

    path: str
    values: dict[str, str | None]
    groups: tuple[int, ...] | None
    size: int


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
        self._schema = schemas.plain(schema)

    def partitions(self) -> list[InputPartition]:  # a list and nothing else: Spark insists
        """The tasks of the query."""
        options = self._options
        now = snapshot_of(options.path, options.version)
        if missing := [name for name in self._schema.names if name not in now.schema.names]:
            raise PipelineError(f"the table {options.path} has no column {missing[0]}")
        if options.offsets is not None:
            found: list[InputPartition] = list(plan_slices(options.path, now, options.offsets))
            return found
        return list(parts(options.path, now))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        with self._options.path.reached():
            if isinstance(partition, Slice):
                yield from read_slice(partition, self._schema)
            elif isinstance(partition, Part):  # Spark makes one of its own where there is nothing to read
                for chunk in partition.chunks:
                    yield from read_chunk(self._options.path, chunk, self._schema)


def parts(folder: Location, now: Snapshot) -> list[Part]:
    """The tasks that read a table: small files together, large ones by row groups."""
    chunks = (chunk for file in now.files() for chunk in _chunks(folder, file))
    return [Part(run) for run in runs(chunks, PART_BYTES, lambda chunk: chunk.size)]


def read_chunk(folder: Location, chunk: Chunk, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a chunk with the columns of `schema`; what the file does not have is null."""
    fixed = constants(chunk.values, schema)
    with open_file(folder, chunk.path) as file:
        wanted = [name for name in file.schema_arrow.names if name in schema.names]
        groups = list(range(file.num_row_groups)) if chunk.groups is None else list(chunk.groups)
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


def _chunks(folder: Location, file: File) -> Iterator[Chunk]:
    if file.size <= PART_BYTES:
        yield Chunk(file.path, file.values, None, file.size)
        return
    with open_file(folder, file.path) as opened:
        sizes = [
            sum(group.column(c).total_compressed_size for c in range(group.num_columns))
            for group in map(opened.metadata.row_group, range(opened.num_row_groups))
        ]
    for groups in runs(range(len(sizes)), PART_BYTES, sizes.__getitem__):
        yield Chunk(file.path, file.values, tuple(groups), sum(sizes[n] for n in groups))


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
