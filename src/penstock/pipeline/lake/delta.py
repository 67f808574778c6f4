"""Delta tables, with delta-rs: their commits and their maintenance.

The table's further state are Delta's application transactions, `(name, number)`, which are part
of a commit and survive checkpoints: a writer's last batch and its rows, and how far each partition is archived. Two
commits that name the same one conflict, so no writer overtakes another.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import NEEDS_DELTA, PipelineError

from . import partitioning, schema
from .store import Location, sentence
from .values import (
    CLEARED,
    METADATA,
    Batch,
    File,
    Last,
    LogState,
    Position,
    Snapshot,
    check_whole,
    follow,
    is_new,
    log_name,
    mark_name,
)

try:
    from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, Transaction
except ImportError:
    raise PipelineError(NEEDS_DELTA) from None

ATTEMPTS_MAX: Final = 20
BACKOFF_S: Final = 0.05  # more each time: about 10 s in all
UNCOMMITTED_HOURS: Final = 168  # longer than any batch takes from its first file to its commit
COMMIT_EVERY: Final = timedelta(seconds=30)  # of a long compaction: finished parts are kept
TASKS: Final = 2  # of a compaction, at once: it runs beside a pipeline

# A reader of an old version has a week, as for the files (VACUUM_HOURS). Opening a table reads the commits since the last
# checkpoint, each by one request in an object store.
SETTINGS: Final = {"delta.logRetentionDuration": "interval 168 hours", "delta.checkpointInterval": "50"}

T = TypeVar("T")

_UNREADABLE: Final = ("deletionVectors", "columnMapping")

_ROW: Final = "_row"


class Table:
    """A table in a folder or a store. Raises StoreError.

    It keeps the version that its last commit was behind: the next one reads the commits since, not the table.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder
        self._newest: DeltaTable | None = None
        self._lock = threading.Lock()  # of `_newest`, which threads share

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """The table as it is, or was; None if there is none."""
        with self.folder.reached():
            table = self._open(version)
            return None if table is None else Snapshot(table)

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make the table, without rows, unless it is there."""
        with self.folder.reached():
            if self._open() is None:
                self._create(columns, partition_by)

    def commit(self, batch: Batch) -> bool:
        """Add a batch, in one step; False if it was there already. The schema grows with it. A batch without rows is
        only checked, unless it makes the table or overwrites it.

        Raises BatchConflict as `is_new` does, DataLoss and PipelineError as `check_whole`, `follow` and `schema.grow` do.
        """
        with self._lock:
            if batch.replaces and batch.since is not None:
                with self.folder.reached():
                    self._replace(batch, batch.since)
                return True
            return self._until_first(lambda: self._commit(batch))

    def version(self) -> int | None:
        """The newest version; None if there is no table."""
        with self.folder.reached():
            table = self._open()
            return None if table is None else int(table.version())

    def look_ahead(self) -> None:
        """Read what the last commit has made of the table now, in a thread, and not in the next commit: delta-rs then lists all
        files in memory. The process ends after the thread: delta-rs does not survive the interpreter."""
        threading.Thread(target=self._look_ahead, name="table").start()

    def compact(self, partition: Mapping[str, str | None], target_bytes: int) -> int:
        """Put small files of a partition together, into files of `target_bytes`; returns how many files went. Rows stay as
        they are, and so does what the table remembers.

        0 if a writer was faster and changed the files: the next time will do. Raises PipelineError for files that
        delta-rs cannot rewrite.
        """
        with self.folder.reached():
            table = self._open()
            if table is None:
                return 0
            try:
                done = table.optimize.compact(
                    partition_filters=[(name, "=", text or "") for name, text in partition.items()] or None,
                    target_size=target_bytes,
                    max_concurrent_tasks=TASKS,
                    min_commit_interval=COMMIT_EVERY,
                )
            except CommitFailedError:
                return 0
            except DeltaError as error:
                raise PipelineError(f"the table {self.folder}: {sentence(error)}") from None
            return int(done["numFilesRemoved"])

    def vacuum(self, hours: float) -> int:
        """Delete files that no version of the last `hours` holds, and commits that the log's retention no longer asks for;
        returns how many files.

        A file that no version holds may be one that a task has written and the driver will commit: it stays for
        UNCOMMITTED_HOURS at least.
        """
        with self.folder.reached():
            gone = self._vacuum(max(hours, UNCOMMITTED_HOURS), full=True)
            if hours < UNCOMMITTED_HOURS:
                gone += self._vacuum(hours, full=False)
            if (table := self._open()) is not None:
                table.cleanup_metadata()
            return gone

    def settle(self) -> None:
        """Set SETTINGS of a table that has none of them: one of an earlier version, or of another program."""
        with self.folder.reached():
            table = self._open()
            if table is None:
                return
            given = table.metadata().configuration
            if missing := {name: text for name, text in SETTINGS.items() if name not in given}:
                table.alter.set_table_properties(missing)

    def _vacuum(self, hours: float, *, full: bool) -> int:
        """`full`: also files that the log does not name."""
        table = self._open()
        if table is None:
            return 0
        found = table.vacuum(
            retention_hours=int(hours), dry_run=False, enforce_retention_duration=False, full=full
        )
        return len(found)

    def _until_first(self, attempted: Callable[[], T]) -> T:
        """Run an operation that ends in a commit; again from the start if another writer was faster."""
        for attempt in range(ATTEMPTS_MAX):
            try:
                with self.folder.reached():
                    return attempted()
            except CommitFailedError as error:
                if attempt == ATTEMPTS_MAX - 1:
                    raise PipelineError(
                        f"the table {self.folder} has too many writers: {sentence(error)}",
                        ErrorKind.UNAVAILABLE,
                    ) from None
                time.sleep(BACKOFF_S * (attempt + 1))
        raise AssertionError("unreachable")

    def _commit(self, batch: Batch) -> bool:
        table = self._current()
        made = table is None
        if table is None:
            table = self._newest = self._create(batch.schema, batch.partition_by)
        now = Snapshot(table)
        partitioning.check_same(
            [partitioning.PartitionColumn(name) for name in batch.partition_by], now.partition_by
        )
        if not is_new(self.folder, batch, now.last(batch.writer)):
            return False
        if not (batch.files or batch.overwrite or batch.replaces or made):
            return True
        marks, properties = _marks(batch, now)
        grown = schema.grow(now.schema, batch.schema)
        if grown != now.schema:
            # A step of its own, which done twice does nothing: the rows come in the next.
            _grow(table, now.schema, grown)
            return self._commit(batch)  # of the version now, which another writer may have changed
        commit = CommitProperties(properties, max_commit_retries=0, app_transactions=marks)
        if batch.keys and batch.files:
            upsert(table, rows_of(batch, self.folder.open), batch, commit)
            return True
        table.create_write_transaction(
            [_add(file) for file in batch.files],
            "overwrite" if batch.overwrite else "append",
            table.schema(),
            list(now.partition_by),
            commit_properties=commit,
        )
        return True

    def _replace(self, batch: Batch, since: int) -> None:
        """Put the batch's rows in place of those for which its predicate is true, as they were at a version.

        Other writers go on: Delta lets this commit pass behind theirs, unless they changed rows of the range. It has no METADATA,
        which would be of the old version; what the table remembers is in its transactions.
        """
        table = self._open(since)
        assert table is not None
        now = Snapshot(table)
        partitioning.check_same(
            [partitioning.PartitionColumn(name) for name in batch.partition_by], now.partition_by
        )
        rows = rows_read_again(batch, self.folder.open)
        mode: dict[str, Any] = {"mode": "overwrite", "schema_mode": "merge", "predicate": batch.replaces}
        try:
            write_deltalake(table, rows, **mode)
        except CommitFailedError:
            raise PipelineError(
                f"the table {self.folder}: rows of the range were written, or its files put together, since the backfill began:"
                " run it again",
                ErrorKind.UNAVAILABLE,
            ) from None
        self._newest = None

    def _create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        return DeltaTable.create(
            self.folder.url,
            _delta(columns),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=SETTINGS,
            storage_options=self.folder.store(),
        )

    def _current(self) -> DeltaTable | None:
        """The newest version. Reads the commits since the last question, unless the table is another one now."""
        table = self._newest
        if table is not None and self.folder.has(f"_delta_log/{table.version():020d}.json"):
            try:
                table.update_incremental()
                return table
            except DeltaError:
                pass
        self._newest = self._open()
        return self._newest

    def _look_ahead(self) -> None:
        with self._lock, suppress(Exception), self.folder.reached():  # the next commit reports the error
            self._current()

    def _open(self, version: int | None = None) -> DeltaTable | None:
        if not self.folder.has("_delta_log"):
            return None
        try:
            table = DeltaTable(self.folder.url, version=version, storage_options=self.folder.store())
        except TableNotFoundError:
            return None
        except DeltaError as error:
            what = f"option version: the table {self.folder} has no version {version}"
            raise PipelineError(
                what if version is not None else f"the table {self.folder}: {sentence(error)}"
            ) from None
        features = table.protocol().reader_features or []
        if found := [name for name in features if name in _UNREADABLE]:
            raise PipelineError(f"the table {self.folder} uses {', '.join(found)}, which is not read here")
        return table


def _marks(batch: Batch, now: Snapshot) -> tuple[list[Transaction], dict[str, str]]:
    """What a commit has the table remember: as transactions, and with all else that it remembers as metadata."""
    before = {piece.key: None if batch.overwrite else now.position(*piece.key) for piece in batch.pieces}
    check_whole(batch.pieces, lambda key: _is_dense(batch.logs.get(key), before[key]))
    marks = []
    logs: dict[str, Position] = {}
    for piece in batch.pieces:
        name = log_name(*piece.key)
        position = logs[name] = follow(piece, before[piece.key], batch.logs.get(piece.key, LogState()))
        marks.append(Transaction(mark_name("first", name), position.first))
        marks.append(Transaction(mark_name("end", name), position.end))
        marks.append(Transaction(mark_name("at", name), now.version + 1))
        if position.ledger >= 0:
            marks.append(Transaction(mark_name("ledger", name), position.ledger))
        if not position.dense:
            marks.append(Transaction(mark_name("sparse", name), 1))
    if batch.writer:
        marks.append(Transaction(mark_name("writer", batch.writer), batch.number, int(time.time() * 1000)))
        marks.append(Transaction(mark_name("rows-of", batch.writer), batch.number))
        marks.append(Transaction(mark_name("rows", batch.writer), batch.rows))
    kept = now.remembered.logs
    if batch.overwrite:
        marks.append(Transaction(CLEARED, now.version))
        kept = {}
    remembered = now.remembered.with_batch(batch.writer, Last(batch.number, batch.rows), kept | logs)
    return marks, {METADATA: msgspec.json.encode(remembered).decode()}


def _is_dense(log: LogState | None, position: Position | None) -> bool:
    """Whether each offset of a log belongs to a message, as far as the server and the table know."""
    return (log is None or log.dense) and (position is None or position.dense)


def _grow(table: DeltaTable, before: pa.Schema, after: pa.Schema) -> None:
    there = {field.name: field.type for field in before}
    changed = [field for field in after if there.get(field.name) != field.type]
    try:
        table.alter.add_columns(list(_delta(pa.schema(changed)).fields))
    except CommitFailedError:
        raise
    except DeltaError as error:
        raise PipelineError(f"the table's columns cannot grow: {error}") from None


def _delta(columns: pa.Schema) -> Schema:
    try:
        return Schema.from_arrow(columns)
    except Exception as error:
        raise PipelineError(f"Delta has no such column: {error}") from None


def _add(file: File) -> AddAction:
    return AddAction(file.path, file.size, file.values, file.at, True, file.stats or "{}")


def rows_of(batch: Batch, opened: Callable[[str], Any]) -> pa.Table:
    """The rows of a batch's files, with their partition columns; of those with one key the last. `opened` opens a file.

    Tasks write the files as for any batch; they are read again here, on the driver, and are no part of the table.
    """
    tables = [_rows(file, batch, opened) for file in batch.files]
    return last_by(pa.concat_tables(tables), batch.keys)


def last_by(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key. Raises PipelineError for a key that is null."""
    for key in keys:
        if rows[key].null_count:
            raise PipelineError(f"column {key} is null in some row, and it is one of the sink's keys")
    numbered = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    return rows.take(last.take(pc.sort_indices(last)))


def rows_read_again(batch: Batch, opened: Callable[[str], Any]) -> pa.RecordBatchReader:
    """The rows of a batch's files, one file after the other; of those with one key the last, if it has keys and is not deleted."""
    if batch.keys and batch.files:
        rows = rows_of(batch, opened)
        if batch.deletes:
            gone = pc.fill_null(rows[batch.deletes], False)
            rows = rows.filter(pc.invert(gone)).select(batch.schema.names)
        return rows.to_reader()
    tables = (_rows(file, batch, opened) for file in batch.files)
    found = (piece for table in tables for piece in table.cast(batch.schema).to_batches())
    return pa.RecordBatchReader.from_batches(batch.schema, found)


def upsert(table: Any, rows: pa.Table, batch: Batch, properties: Any) -> None:
    """Replace, add and delete rows, in one commit with `properties`. Raises what `deltalake` raises."""
    merger = table.merge(
        rows,
        " AND ".join(f"target.`{key}` = source.`{key}`" for key in batch.keys),
        source_alias="source",
        target_alias="target",
        commit_properties=properties,
    )
    untouched = [field.name for field in table.schema().fields if field.name not in batch.schema.names]
    kept = None
    if batch.deletes:
        gone = f"coalesce(source.`{batch.deletes}`, false)"
        merger, kept = merger.when_matched_delete(predicate=gone), f"NOT {gone}"
        untouched.append(batch.deletes)
    merger = merger.when_matched_update_all(predicate=kept, except_cols=untouched)
    merger.when_not_matched_insert_all(predicate=kept, except_cols=untouched).execute()


def _rows(file: File, batch: Batch, opened: Callable[[str], Any]) -> pa.Table:
    with opened(file.path) as content:
        rows = pq.read_table(content)
    for name in batch.partition_by:
        if name in rows.column_names:
            continue
        kind = batch.schema.field(name).type
        value = pa.scalar(file.values[name], pa.string()).cast(kind)
        rows = rows.append_column(name, pa.array([value] * rows.num_rows, kind))
    return rows.select([*batch.schema.names, *([batch.deletes] if batch.deletes else [])])
