"""What a table is made of, what one commit brings, and whether it may: by its offsets, and by its number.

A writer's batches have numbers that grow. A number above the last one is new. The last number again is a repeat where
the batch has as many rows as the commit had; then there is nothing to do. Everything else means that the numbers and
the rows no longer belong together (a checkpoint was rolled back, lost or copied, two writes share a name): it fails,
as rows that were passed over would be lost.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import BatchConflict, DataLoss, PipelineError

Key = tuple[str, int]  # a topic's partition

COLUMNS: Final = ("topic", "partition", "offset")

log = logging.getLogger(__name__)

METADATA: Final = "penstock"  # in a commit's metadata
COMMITS_READ: Final = 8  # how many commits of maintenance may be behind the last one of a batch
NONE: Final = -1  # the end of a partition whose rows an earlier version overwrote
CLEARED: Final = (
    "penstock.cleared:"  # a transaction: positions up to this version of the table were overwritten
)
WRITERS_KEPT: Final = 64  # in the metadata; older ones are found by their transactions

# Operations that leave alone what the table remembers. Others may be an earlier version's, which writes no metadata.
_NEUTRAL: Final = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD COLUMN")


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a table. `path` is relative to the table's folder; `at` is ms since the epoch.

    `values` are its partition values as text, None for null. `stats` is Delta's JSON of counts and bounds.
    """

    path: str
    size: int
    rows: int
    at: int
    values: dict[str, str | None] = {}
    stats: str = ""


class Piece(msgspec.Struct, frozen=True):
    """Rows of a topic's partition: `rows` of the offsets `start .. end-1`, which add up to `total`."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int
    total: int

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def complete(self) -> bool:
        """Whether it has each of its offsets once."""
        return self.rows == self.end - self.start and 2 * self.total == self.rows * (
            self.start + self.end - 1
        )


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The archived offsets of a partition: `first .. end-1` of the log `ledger` (-1: unknown). Unless `dense`, some of these
    offsets belong to no message."""

    first: int
    end: int
    ledger: int = -1
    dense: bool = True


class LogState(NamedTuple):
    """A log as the server has it: its ledger, and whether each of its offsets belongs to a message."""

    ledger: int = -1
    dense: bool = True


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit brings. `writer` and `number` name it; without a writer it is not remembered. With `keys`, its rows
    replace those that agree in these columns, or delete them if the column `deletes` is true; with `replaces`, a predicate in
    SQL, they replace those for which it is true.

    `pieces` are the offsets of an archive's batch, and `logs` the logs that they are of: they must continue at the end of the table.
    """

    files: tuple[File, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    writer: str = ""
    number: int = 0
    overwrite: bool = False
    replaces: str = ""
    since: int | None = (
        None  # with `replaces`: the table's version before its rows were read; None: there was no table
    )
    keys: tuple[str, ...] = ()
    deletes: str = ""
    pieces: tuple[Piece, ...] = ()
    logs: Mapping[Key, LogState] = {}

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)

    @property
    def rewritten(self) -> bool:
        """Whether the commit reads its files again, and writes others."""
        return bool(self.keys or self.replaces)


def pieces_of(batch: pa.RecordBatch) -> list[Piece]:
    """The offsets in a batch, by topic and partition. Raises PipelineError for a null among them."""
    rows = pa.table({name: batch.column(batch.schema.get_field_index(name)) for name in COLUMNS})
    if any(column.null_count for column in rows.columns):
        raise PipelineError("an archive's rows need a topic, a partition and an offset each")
    groups = rows.group_by(["topic", "partition"], use_threads=False).aggregate(
        [("offset", "min"), ("offset", "max"), ("offset", "count"), ("offset", "sum")]
    )
    return [
        Piece(
            topic=row["topic"],
            partition=row["partition"],
            start=row["offset_min"],
            end=row["offset_max"] + 1,
            rows=row["offset_count"],
            total=row["offset_sum"],
        )
        for row in groups.to_pylist()
    ]


def merge(found: Iterable[Piece]) -> list[Piece]:
    """One piece for each partition."""
    merged: dict[Key, Piece] = {}
    for each in found:
        one = merged.get(each.key)
        merged[each.key] = (
            each
            if one is None
            else Piece(
                *each.key,
                min(one.start, each.start),
                max(one.end, each.end),
                one.rows + each.rows,
                one.total + each.total,
            )
        )
    return sorted(merged.values(), key=lambda piece: piece.key)


def check_whole(pieces: Iterable[Piece], dense: Callable[[Key], bool]) -> None:
    """Raises PipelineError for offsets that come twice, DataLoss for offsets of a dense log that are missing."""
    for piece in pieces:
        span = f"{_where(piece.key)}: a batch of the archive has {piece.rows} messages of the offsets {piece.start} to"
        if piece.rows > piece.end - piece.start:
            raise PipelineError(f"{span} {piece.end - 1}: some come twice")
        if dense(piece.key) and not piece.complete:
            raise DataLoss(f"{span} {piece.end - 1}: some are missing")


def follow(piece: Piece, position: Position | None, log: LogState) -> Position:
    """The position of a partition after a piece.

    Raises DataLoss if the piece leaves a gap in a dense log, ALREADY_EXISTS if the table has some of it already or is the
    archive of another log of that name.
    """
    where = _where(piece.key)
    if position is None:
        return Position(piece.start, piece.end, log.ledger, log.dense)
    if log.ledger >= 0 and position.ledger >= 0 and log.ledger != position.ledger:
        raise PipelineError(
            f"{where}: the table archives an earlier topic of that name; archive this one into another table",
            ErrorKind.ALREADY_EXISTS,
        )
    dense = position.dense and log.dense
    if piece.start > position.end and dense:
        raise DataLoss(f"{where}: the archive ends at {position.end}, and the batch begins at {piece.start}")
    if piece.start < position.end:
        raise PipelineError(
            f"{where}: the archive ends at {position.end} already, and the batch begins at {piece.start}",
            ErrorKind.ALREADY_EXISTS,
        )
    ledger = log.ledger if log.ledger >= 0 else position.ledger
    return Position(position.first, piece.end, ledger, dense)


def _where(key: Key) -> str:
    return f"{key[0]}, partition {key[1]}"


class Last(NamedTuple):
    """The last batch that a table has of a writer, and its rows; None if no commit says how many."""

    batch: int
    rows: int | None


def is_new(folder: object, batch: Batch, last: Last | None) -> bool:
    """Whether to commit `batch`; False for a repeat, which is logged. Raises BatchConflict."""
    if not batch.writer or last is None or batch.number > last.batch:
        return True
    if batch.number < last.batch:
        raise BatchConflict(
            f"the table {folder} has batch {last.batch} of writer {batch.writer} already, and now batch"
            f" {batch.number} with {batch.rows} rows came: nothing of it was written"
        )
    if last.rows is None:
        log.warning(
            "the table %s has batch %d of writer %s already; an earlier version of Penstock committed it and kept no"
            " count: the %d rows that come now are taken for a repeat",
            *(folder, batch.number, batch.writer, batch.rows),
        )
        return False
    if batch.rows != last.rows:
        raise BatchConflict(
            f"the table {folder} has batch {batch.number} of writer {batch.writer} already, with {last.rows} rows, and"
            f" now it came with {batch.rows}: nothing of it was written"
        )
    log.warning(
        "the table %s has batch %d of writer %s already: its %d rows are a repeat and are not written again",
        *(folder, batch.number, batch.writer, batch.rows),
    )
    return False


class Remembered(msgspec.Struct, array_like=True):
    """What a table remembers: the last batch of writers, and positions by `log_name`."""

    writers: dict[str, Last] = {}
    logs: dict[str, Position] = {}

    def with_batch(self, writer: str, last: Last, logs: dict[str, Position]) -> "Remembered":
        """The same after a batch, with these positions."""
        writers = self.writers
        if writer:
            kept = [(name, one) for name, one in writers.items() if name != writer][1 - WRITERS_KEPT :]
            writers = dict([*kept, (writer, last)])
        return Remembered(writers, logs)


class Snapshot:
    """A Delta table at a version: its columns, its files, and what it remembers of writers and archived logs.

    Each commit of ours has all that the table remembers in its metadata, so that the next one asks for that commit alone. The
    truth are Delta's application transactions, which survive checkpoints and the log's retention: they are asked, one by one,
    for what the metadata lacks.
    """

    def __init__(self, table: Any) -> None:
        self._table = table
        self.version = int(table.version())
        self.schema = pa.schema(table.schema().to_arrow())
        self.partition_by = tuple(table.metadata().partition_columns)
        self._remembered: Remembered | None = None

    def actions(self) -> pa.Table:
        """The files that are the table, as columns: path, size_bytes, modification_time, num_records, `partition.NAME`, and
        `min.NAME`, `max.NAME`, `null_count.NAME` as far as statistics are known."""
        return pa.table(self._table.get_add_actions(flatten=True))

    def files(self, choose: Callable[[pa.Table], pa.Table] = lambda actions: actions) -> list[File]:
        """The files that are the table, oldest first; only those that `choose` leaves of `actions`."""
        actions = choose(self.actions())
        names = ["path", "size_bytes", "modification_time", "num_records"]
        partitions = {f"partition.{name}": name for name in self.partition_by}
        found = (self._file(row, partitions) for row in actions.select([*names, *partitions]).to_pylist())
        return sorted(found, key=lambda file: (file.at, file.path))

    @property
    def remembered(self) -> Remembered:
        """What the newest commit of ours has in its metadata; empty if it cannot be trusted."""
        if self._remembered is None:
            self._remembered = Remembered()
            for commit in self._commits():
                if METADATA in commit:
                    self._remembered = msgspec.json.decode(commit[METADATA], type=Remembered)
                if commit.get("operation") not in _NEUTRAL:
                    break
        return self._remembered

    def last(self, writer: str) -> Last | None:
        """The last batch of a writer; None before the first, and for a write without a name."""
        if not writer:
            return None
        if found := self.remembered.writers.get(writer):
            return found
        number = self._table.transaction_version(mark_name("writer", writer))
        if number is None:
            return None
        counted = self._table.transaction_version(mark_name("rows-of", writer)) == number
        return Last(number, self._table.transaction_version(mark_name("rows", writer)) if counted else None)

    def position(self, topic: str, partition: int) -> Position | None:
        """How far a partition is archived."""
        name = log_name(topic, partition)
        if found := self.remembered.logs.get(name):
            return found
        end = self._table.transaction_version(mark_name("end", name))
        if end is None or end == NONE:
            return None
        cleared = self._table.transaction_version(CLEARED)
        if cleared is not None and (self._table.transaction_version(mark_name("at", name)) or 0) <= cleared:
            return None
        first, ledger, sparse = (
            self._table.transaction_version(mark_name(what, name)) for what in ("first", "ledger", "sparse")
        )
        return Position(first or 0, end, -1 if ledger is None else ledger, dense=sparse is None)

    def _commits(self) -> Iterator[dict[str, Any]]:
        """The newest commits: the last one first, which mostly is enough."""
        yield from self._table.history(1)
        yield from self._table.history(COMMITS_READ)[1:]

    def _file(self, action: dict[str, Any], partitions: dict[str, str]) -> File:
        path = unquote(action["path"])
        if "://" in path:
            raise PipelineError(
                f"the table has the file {path} elsewhere; only tables in one folder are read"
            )
        return File(
            path=path,
            size=action["size_bytes"],
            rows=action["num_records"] or -1,
            at=action["modification_time"],
            values={name: text_of(action[column]) for column, name in partitions.items()},
        )


def text_of(value: Any) -> str | None:
    """A partition's value as Delta's log has it."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def log_name(topic: str, partition: int) -> str:
    """The name of a topic's partition among positions."""
    return f"{topic}#{partition}"


def mark_name(what: str, name: str) -> str:
    """An application transaction's name. `rows-of` says which batch `rows` are of: an earlier version commits a
    later batch without them."""
    return f"penstock.{what}:{name}"
