"""Delta tables, with delta-rs. The one importer of deltalake.

What the table remembers beside its rows are Delta's application transactions, `(name, number)`, which are part
of a commit and survive checkpoints: a writer's last batch and its rows, and how far each partition is archived. Two
commits that name the same one conflict, so no writer overtakes another.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import NEEDS_DELTA, PipelineError

from . import partitioning, schema
from .snapshot import Snapshot, mark_name
from .store import Location, sentence
from .upsert import rows_of, rows_read_again, upsert
from .values import Batch, File, LogState, follow, is_new

try:
    from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction, Transaction
except ImportError:
    raise PipelineError(NEEDS_DELTA) from None

ATTEMPTS_MAX: Final = 20
REPLACES_MAX: Final = 5
UNCOMMITTED_HOURS: Final = 168  # longer than any batch takes from its first file to its commit
BACKOFF_S: Final = 0.05  # more each time: about 10 s in all

T = TypeVar("T")

_UNREADABLE: Final = ("deletionVectors", "columnMapping")


class Table:
    """A table in a folder or a store. It keeps nothing open between calls. Raises StoreError."""

    def __init__(self, folder: Location) -> None:
        self.folder = folder

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """The table as it is, or was; None where there is none."""
        with self.folder.reached():
            table = self._open(version)
            return None if table is None else Snapshot(table, self.folder)

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make the table, without rows, unless it is there."""
        with self.folder.reached():
            if self._open() is None:
                self._create(columns, partition_by)

    def commit(self, batch: Batch) -> bool:
        """Add a batch, in one step; False where it was there already. The schema grows with it.

        Raises BatchConflict as `is_new` does, DataLoss and PipelineError as `follow` and
        `schema.grow` do.
        """
        return self._until_first(lambda: self._commit(batch))

    def claim(self, replay: str, number: int, seen: int | None) -> int:
        """Let the table remember `number` as that of a replay's plan, where it remembers `seen`; what it then remembers."""
        return self._until_first(lambda: self._claim(replay, number, seen))

    def claimed(self, replay: str) -> int | None:
        """The number of a replay's plan; None where the table remembers none."""
        with self.folder.reached():
            table = self._open()
            return None if table is None else table.transaction_version(mark_name("replay", replay))

    def replace(self, old: list[File], new: list[File]) -> bool:
        """Put rewritten files in the place of others, rows unchanged; False where another writer was faster."""
        gone = {file.path for file in old}
        for _ in range(REPLACES_MAX):
            table = self._open()
            # Delta would take the new files though the old ones are gone, and bring back what was overwritten.
            if table is None or not gone <= {file.path for file in Snapshot(table, self.folder).files()}:
                return False
            now = int(time.time() * 1000)
            removed = [RemoveAction(path, False, now) for path in sorted(gone)]
            try:
                table.create_write_transaction(
                    [*removed, *(_add(file, data_change=False) for file in new)],
                    "append",
                    table.schema(),
                    table.metadata().partition_columns,
                    commit_properties=CommitProperties(max_commit_retries=0),
                )
            except CommitFailedError:
                continue
            return True
        return False

    def vacuum(self, hours: float) -> int:
        """Delete files that no version of the last `hours` holds; returns how many.

        A file that no version holds may be one that a task has written and the driver will commit: it stays for
        UNCOMMITTED_HOURS at least.
        """
        gone = self._vacuum(max(hours, UNCOMMITTED_HOURS), full=True)
        return gone if hours >= UNCOMMITTED_HOURS else gone + self._vacuum(hours, full=False)

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
        """Do something that ends in a commit, from the start where another writer was faster."""
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

    def _claim(self, replay: str, number: int, seen: int | None) -> int:
        table = self._open()
        assert table is not None, "a replay is of a table"
        found: int | None = table.transaction_version(mark_name("replay", replay))
        if found is not None and found != seen:
            return found
        mark = Transaction(mark_name("replay", replay), number)
        table.create_write_transaction(
            [],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[mark], max_commit_retries=0),
        )
        return number

    def _commit(self, batch: Batch) -> bool:
        table = self._open() or self._create(batch.schema, batch.partition_by)
        now = Snapshot(table, self.folder)
        partitioning.check_same(
            [partitioning.PartitionColumn(name) for name in batch.partition_by], now.partition_by
        )
        if not is_new(self.folder, batch, now.last(batch.writer)):
            return False
        marks = _marks(batch, now)
        grown = schema.grow(now.schema, batch.schema)
        if grown != now.schema:
            # A step of its own, which done twice does nothing: the rows come in the next.
            _grow(table, now.schema, grown)
        if batch.writer:
            marks.append(
                Transaction(mark_name("writer", batch.writer), batch.number, int(time.time() * 1000))
            )
            marks.append(Transaction(mark_name("rows-of", batch.writer), batch.number))
            marks.append(Transaction(mark_name("rows", batch.writer), batch.rows))
        properties = CommitProperties(app_transactions=marks, max_commit_retries=0)
        if batch.replaces:
            rows = rows_read_again(batch, self.folder.open)
            mode: dict[str, Any] = {"mode": "overwrite", "schema_mode": "merge", "predicate": batch.replaces}
            # Tried again by Delta itself: commits that only add rows, as those of a stream, stand beside this one.
            write_deltalake(table, rows, commit_properties=CommitProperties(app_transactions=marks), **mode)
            return True
        if batch.keys and batch.files:
            rows = rows_of(batch, self.folder.open)
            upsert(table, rows, batch.keys, properties)
            return True
        table.create_write_transaction(
            [_add(file, data_change=True) for file in batch.files],
            "overwrite" if batch.overwrite else "append",
            table.schema(),
            list(now.partition_by),
            commit_properties=properties,
        )
        return True

    def _create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        return DeltaTable.create(
            self.folder.url,
            _delta(columns),
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=self.folder.store(),
        )

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


def _marks(batch: Batch, now: Snapshot) -> list[Transaction]:
    marks = []
    for piece in batch.pieces:
        topic, partition = piece.topic, piece.partition
        log = batch.logs.get((topic, partition), LogState())
        position = follow(piece, now.position(topic, partition), log, planned=batch.planned)
        marks.append(Transaction(mark_name("first", f"{topic}#{partition}"), position.first))
        marks.append(Transaction(mark_name("end", f"{topic}#{partition}"), position.end))
        if position.ledger >= 0:
            marks.append(Transaction(mark_name("ledger", f"{topic}#{partition}"), position.ledger))
        if not position.dense:
            marks.append(Transaction(mark_name("sparse", f"{topic}#{partition}"), 1))
    return marks


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


def _add(file: File, *, data_change: bool) -> AddAction:
    return AddAction(file.path, file.size, file.values, file.at, data_change, file.stats or "{}")
