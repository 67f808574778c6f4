"""Delta tables, with delta-rs. The one importer of deltalake.

What the table remembers beside its rows are Delta's application transactions, `(name, number)`, which are part
of a commit and survive checkpoints: a writer's last batch and its rows, and how far each partition is archived. Two
commits that name the same one conflict, so no writer overtakes another.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import PipelineError

from . import partitioning, schema
from .values import COLUMNS, Batch, File, Last, Position, follow, is_new

try:
    from deltalake import CommitProperties, DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
    from deltalake.transaction import AddAction, RemoveAction, Transaction
except ImportError:
    raise PipelineError("tables need the package deltalake: pip install 'penstock[delta]'") from None

ATTEMPTS_MAX: Final = 20
REPLACES_MAX: Final = 5
BACKOFF_S: Final = 0.05  # more each time: about 10 s in all

COMMITS_READ_MAX: Final = 1000  # of the log, for the rows of a batch that an earlier version committed

_UNREADABLE: Final = ("deletionVectors", "columnMapping")


class Snapshot:
    """A table at a version."""

    def __init__(self, table: DeltaTable, folder: Path) -> None:
        self._table = table
        self._folder = folder
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        self.partition_by = tuple(table.metadata().partition_columns)

    def files(self) -> list[File]:
        """The files that are the table, oldest first."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return sorted((self._file(action) for action in actions), key=lambda file: (file.at, file.path))

    def last(self, writer: str) -> Last | None:
        """The last batch of a writer; None before the first, and for a write without a name."""
        number = self._table.transaction_version(_key("writer", writer)) if writer else None
        if number is None:
            return None
        if self._table.transaction_version(_key("rows-of", writer)) == number:
            return Last(number, self._table.transaction_version(_key("rows", writer)))
        return Last(number, self._rows_in_log(writer, number))

    def position(self, topic: str, partition: int) -> Position | None:
        """How far a partition is archived."""
        end = self._table.transaction_version(_key("end", f"{topic}#{partition}"))
        if end is None:
            return None
        first = self._table.transaction_version(_key("first", f"{topic}#{partition}"))
        ledger = self._table.transaction_version(_key("ledger", f"{topic}#{partition}"))
        return Position(first or 0, end, -1 if ledger is None else ledger)

    def _rows_in_log(self, writer: str, number: int) -> int | None:
        """The rows that a commit of an earlier version added, from the log of the table, as far as that goes back."""
        for version in range(self.version, max(-1, self.version - COMMITS_READ_MAX), -1):
            path = self._folder / "_delta_log" / f"{version:020d}.json"
            try:
                actions = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
                if any(_is_batch(action.get("txn"), writer, number) for action in actions):
                    added = [action["add"] for action in actions if "add" in action]
                    return sum(int(json.loads(add["stats"])["numRecords"]) for add in added)
            except (OSError, ValueError, KeyError, TypeError):
                return None  # the log begins later, or an entry has no count
        return None

    def _file(self, action: dict[str, Any]) -> File:
        path = unquote(action["path"])
        if "://" in path:
            raise PipelineError(
                f"the table has the file {path} elsewhere; only tables in one folder are read"
            )
        values: dict[str, str | None] = {}
        for name in self.partition_by:
            found = action.get(f"partition.{name}")
            values[name] = (
                str(found).lower() if isinstance(found, bool) else None if found is None else str(found)
            )
        return File(
            path=path,
            size=action["size_bytes"],
            rows=action.get("num_records") or -1,
            at=_ms(action["modification_time"]),
            values=values,
            low={n: v for n in COLUMNS if (v := action.get(f"min.{n}")) is not None},
            high={n: v for n in COLUMNS if (v := action.get(f"max.{n}")) is not None},
        )


class Table:
    """A table in a folder. It keeps nothing open between calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """The table as it is, or was; None where there is none."""
        table = self._open(version)
        return None if table is None else Snapshot(table, self.folder)

    def create(self, columns: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make the table, without rows, unless it is there."""
        if self._open() is None:
            self._create(columns, partition_by)

    def commit(self, batch: Batch) -> bool:
        """Add a batch, in one step; False where it was there already. The schema grows with it.

        Raises BatchConflict as `is_new` does, DataLoss and PipelineError as `follow` and
        `schema.grow` do.
        """
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._commit(batch)
            except CommitFailedError as error:  # another writer was faster: look again
                if attempt == ATTEMPTS_MAX - 1:
                    raise PipelineError(
                        f"the table {self.folder} has too many writers: {error}", ErrorKind.UNAVAILABLE
                    ) from None
                time.sleep(BACKOFF_S * (attempt + 1))
        raise AssertionError("unreachable")

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
        """Delete files that no version of the last `hours` holds; returns how many."""
        table = self._open()
        if table is None:
            return 0
        return len(
            table.vacuum(
                retention_hours=int(hours), dry_run=False, enforce_retention_duration=False, full=True
            )
        )

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
            marks.append(Transaction(_key("writer", batch.writer), batch.number, int(time.time() * 1000)))
            marks.append(Transaction(_key("rows-of", batch.writer), batch.number))
            marks.append(Transaction(_key("rows", batch.writer), batch.rows))
        table.create_write_transaction(
            [_add(file, data_change=True) for file in batch.files],
            "overwrite" if batch.overwrite else "append",
            table.schema(),
            list(now.partition_by),
            commit_properties=CommitProperties(app_transactions=marks, max_commit_retries=0),
        )
        return True

    def _create(self, columns: pa.Schema, partition_by: Sequence[str]) -> DeltaTable:
        self.folder.mkdir(parents=True, exist_ok=True)
        return DeltaTable.create(self.folder, _delta(columns), mode="ignore", partition_by=list(partition_by))

    def _open(self, version: int | None = None) -> DeltaTable | None:
        if not (self.folder / "_delta_log").is_dir():
            return None
        try:
            table = DeltaTable(self.folder, version=version)
        except TableNotFoundError:
            return None
        except DeltaError as error:
            what = f"option version: the table {self.folder} has no version {version}"
            raise PipelineError(
                what if version is not None else f"the table {self.folder}: {error}"
            ) from None
        features = table.protocol().reader_features or []
        if found := [name for name in features if name in _UNREADABLE]:
            raise PipelineError(f"the table {self.folder} uses {', '.join(found)}, which is not read here")
        return table


def _marks(batch: Batch, now: Snapshot) -> list[Transaction]:
    marks = []
    for piece in batch.pieces:
        topic, partition = piece.topic, piece.partition
        position = follow(piece, now.position(topic, partition), batch.ledgers.get((topic, partition), -1))
        marks.append(Transaction(_key("first", f"{topic}#{partition}"), position.first))
        marks.append(Transaction(_key("end", f"{topic}#{partition}"), position.end))
        if position.ledger >= 0:
            marks.append(Transaction(_key("ledger", f"{topic}#{partition}"), position.ledger))
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


def _key(what: str, name: str) -> str:
    """An application transaction's name. `rows-of` says which batch `rows` are of: an earlier version commits a
    later batch without them."""
    return f"penstock.{what}:{name}"


def _is_batch(transaction: Any, writer: str, number: int) -> bool:
    return bool(
        transaction
        and transaction["appId"] == _key("writer", writer)
        and int(transaction["version"]) == number
    )


def _ms(value: Any) -> int:
    return value if isinstance(value, int) else int(value.timestamp() * 1000)
