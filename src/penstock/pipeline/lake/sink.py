"""The sink `penstock_lake`: tasks write files, the driver makes one commit of them.

A batch is known by `(writer, batch)`: the streaming query's id, or what the options say. A batch that the table
has is not committed again, whatever happened between; `is_new` says which is one. A batch without rows is checked
in the same way, but makes no commit: the table misses nothing of it. Files of attempts that lost, or of a driver
that died before its commit, are in no commit: no reader sees them, and vacuum takes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.errors import BatchConflict, PipelineError
from penstock.pipeline.http.logs import look
from penstock.pipeline.http.retry import retrying
from penstock.pipeline.versions import DataSourceStreamArrowWriter

from . import partitioning, schema
from .delta import Table
from .files import FileWriter, remove
from .options import WriteOptions, table_at, write_options
from .partitioning import PartitionColumn
from .values import COLUMNS, Batch, File, Key, LogState, Piece, merge, pieces_of

QUERY: Final = "sql.streaming.queryId"


class Written(WriterCommitMessage):
    """The result of a task: its files, their offsets if requested, and the query."""

    def __init__(self, files: tuple[File, ...], pieces: tuple[Piece, ...], query: str) -> None:
        self.files = files
        self.pieces = pieces
        self.query = query

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)


class TableSink:
    """What both writers do. Made on the driver, pickled to the tasks."""

    at_once: Final = False  # rows are seen when they are committed

    def __init__(
        self,
        given: Mapping[str, str],
        columns: StructType,
        *,
        overwrite: bool,
        suffix: str = "",
        replaces: str = "",
    ) -> None:
        self._suffix = suffix  # of the query's id, if a query writes to several sinks
        self._replaces = replaces  # a predicate: the rows replace those for which it is true
        self._options = write_options(given)
        self._since = table_at(self._options.path).version() if replaces else None
        self._overwrite = overwrite
        self._columns, self._bys = planned(self._options, columns)
        self._table: Table | None = None  # kept over the batches of a query that runs in this process

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        options = self._options
        # Rows that replace others are read again on the driver; the order of those with keys counts, which partitioned files do not keep.
        again = bool(options.keys or self._replaces)
        bys = () if again else self._bys
        columns = self._columns
        if options.deletes:
            columns = columns.append(pa.field(options.deletes, pa.bool_()))
        writer = FileWriter(options.path, columns, bys, options.target_bytes)
        pieces: list[Piece] = []
        try:
            with options.path.reached():
                for batch in iterator:
                    if batch.num_rows:
                        writer.write(partitioning.placed(batch, self._bys) if again else batch)
                        if options.archive:
                            pieces = merge([*pieces, *pieces_of(batch)])
                files = writer.finish()
        except BaseException:
            writer.discard()
            raise
        context = TaskContext.get()
        query = (context.getLocalProperty(QUERY) if context else None) or ""
        return Written(files, tuple(pieces), query and f"{query}{self._suffix}")

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get no table: that is the driver's."""
        return self.__dict__ | {"_table": None}

    def create(self) -> None:
        """Have the table made, so that readers find its columns before there are rows, and keep it open."""
        self._table = table_at(self._options.path)
        self._table.create(self._columns, [by.name for by in self._bys])

    def nothing(self, query: str, batch: int) -> WriterCommitMessage:
        """The messages of tasks without rows for this sink: they are committed, so that the batch number is checked."""
        return Written((), (), f"{query}{self._suffix}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Make the files the table's, once for each batch."""
        options = self._options
        written = [message for message in messages if isinstance(message, Written)]
        files = tuple(file for message in written for file in message.files)
        pieces = tuple(merge(piece for message in written for piece in message.pieces))
        writer = options.writer or next((m.query for m in written if m.query), "")
        number = options.batch if options.batch is not None else batchId
        batch = Batch(
            files=files,
            schema=self._columns,
            partition_by=tuple(by.name for by in self._bys),
            writer=writer if number is not None else "",
            number=number or 0,
            overwrite=self._overwrite,
            replaces=self._replaces,
            since=self._since,
            keys=options.keys,
            deletes=options.deletes,
            pieces=pieces,
            logs=_logs(options, pieces),
        )
        table = self._table or table_at(options.path)
        try:
            done = table.commit(batch)
        except Exception as error:
            # Files that are read again are not part of the table, whether or not the commit succeeded.
            if batch.rewritten or isinstance(error, BatchConflict):
                with suppress(OSError):
                    remove(options.path, files)
            raise
        if self._table is not None:
            self._table.look_ahead()
        if batch.rewritten:
            remove(options.path, files)
        elif not done and files:
            self._remove(table, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int | None = None) -> None:  # noqa: N803
        """Leave the files to vacuum: a commit that was reported as failed may have been made."""

    def _remove(self, table: Table, files: Sequence[File]) -> None:
        """Delete what a repeat wrote, but what the table has: a commit may have been made that was reported as failed."""
        now = table.snapshot()
        held = {file.path for file in now.files()} if now is not None else set()
        remove(self._options.path, [file for file in files if file.path not in held])


class BatchWriter(TableSink, DataSourceArrowWriter):
    """`df.write.format("penstock_lake")`."""


class StreamWriter(TableSink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("penstock_lake")`."""


def planned(options: WriteOptions, columns: StructType) -> tuple[pa.Schema, tuple[PartitionColumn, ...]]:
    """The columns of the files with the derived ones, and their partitioning; checked against the table.

    Raises PipelineError if rows of these columns cannot go into it.
    """
    incoming = schema.arrow_of(columns)
    if options.archive and (missing := set(COLUMNS) - set(incoming.names)):
        raise PipelineError(f"option archive: column {', '.join(sorted(missing))} is missing")
    if options.deletes:
        incoming = _without(incoming, options.deletes)
    if missing := set(options.keys) - set(incoming.names):
        raise PipelineError(
            f"option keys: there is no column {', '.join(sorted(missing))}; there are {', '.join(incoming.names)}"
        )
    now = table_at(options.path).snapshot()
    bys = options.partition_by
    if now is not None:
        partitioning.check_same(bys, now.partition_by)
        bys = bys or partitioning.of_table(now.partition_by, incoming, options.time_zone)
    made = partitioning.extend(incoming, bys)
    if now is not None:
        grown = schema.grow(now.schema, made)
        made = pa.schema([grown.field(field.name) for field in made])  # files have the table's own types
    return made, bys


def _without(columns: pa.Schema, deletes: str) -> pa.Schema:
    """The columns that a table keeps. Raises PipelineError unless the others are one of truth values."""
    if deletes not in columns.names or not pa.types.is_boolean(columns.field(deletes).type):
        raise PipelineError(f"option deleteColumn: there is no BOOLEAN column {deletes}")
    return pa.schema([field for field in columns if field.name != deletes])


def _logs(options: WriteOptions, found: Sequence[Piece]) -> dict[Key, LogState]:
    named = {piece.topic for piece in found}
    if options.server is None or not named:
        return {}
    topics = sorted(TopicName.parse(name) for name in named)
    with HttpClient(options.server) as client:
        there = retrying(lambda: look(client, topics))
    return {log.key: LogState(log.ledger, log.dense) for log in there.logs or []}
