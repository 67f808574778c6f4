"""What a table is made of, what one commit brings, and whether it may: by its offsets, and by its number.

A writer's batches have numbers that grow. A number above the last one is new. The last number again is a repeat where
the batch has as many rows as the commit had; then there is nothing to do. Everything else means that the numbers and
the rows no longer belong together (a checkpoint was rolled back, lost or copied, two writes share a name): it fails,
as rows that were passed over would be lost.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import BatchConflict, DataLoss, PipelineError

Cell = str | int | None  # a bound of a column as far as reading cares: topics, partitions, offsets

Key = tuple[str, int]  # a topic's partition

COLUMNS: Final = ("topic", "partition", "offset")

log = logging.getLogger(__name__)


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of a table. `path` is relative to the table's folder; `at` is ms since the epoch.

    `values` are its partition values as text, None for null. `stats` is Delta's JSON of counts and bounds;
    `low` and `high` are the bounds of the columns `topic`, `partition` and `offset`, where they are known.
    """

    path: str
    size: int
    rows: int
    at: int
    values: dict[str, str | None] = {}
    stats: str = ""
    low: dict[str, Cell] = {}
    high: dict[str, Cell] = {}


class OffsetRange(msgspec.Struct, frozen=True, order=True):
    """The offsets `start .. end-1` of a topic's partition."""

    topic: str
    partition: int
    start: int
    end: int


class Piece(msgspec.Struct, frozen=True, order=True):
    """Rows of a topic's partition in one batch: `rows` of the offsets `start .. end-1`."""

    topic: str
    partition: int
    start: int
    end: int
    rows: int

    @property
    def key(self) -> Key:
        return self.topic, self.partition


class Position(msgspec.Struct, frozen=True):
    """What a table has archived of a partition: `first .. end-1` of the log `ledger` (-1: not known). If it is not `dense`,
    some of these offsets belong to no message."""

    first: int
    end: int
    ledger: int = -1
    dense: bool = True


class LogState(NamedTuple):
    """A log as the server has it: which it is, and whether each of its offsets belongs to a message."""

    ledger: int = -1
    dense: bool = True


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit brings. `writer` and `number` name it; without a writer it is not remembered. With `keys`, its rows
    replace those that agree in these columns; with `replaces`, a predicate in SQL, those for which it is true.

    `pieces` are what an archive's batch holds, one for each partition, and `logs` the logs they are of: they
    must go on where the table ends. `planned`: they are the ranges that were read, whatever rows these have.
    """

    files: tuple[File, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    writer: str = ""
    number: int = 0
    overwrite: bool = False
    replaces: str = ""
    keys: tuple[str, ...] = ()
    pieces: tuple[OffsetRange, ...] = ()
    logs: Mapping[Key, LogState] = {}
    planned: bool = False

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)

    @property
    def rewritten(self) -> bool:
        """Whether the commit reads its files again, and writes others."""
        return bool(self.keys or self.replaces)


def pieces_of(batch: pa.RecordBatch, *, hulls: bool = False) -> list[Piece]:
    """The runs of offsets in a batch, by topic and partition; with `hulls` only one piece for each partition, from its first
    offset to its last. Raises PipelineError for a null among them, and for an offset that comes twice."""
    topic, partition, offset = (batch.column(batch.schema.get_field_index(name)) for name in COLUMNS)
    if topic.null_count or partition.null_count or offset.null_count:
        raise PipelineError("an archive's rows need a topic, a partition and an offset each")
    found: list[Piece] = []
    topics, partitions = pc.unique(topic).to_pylist(), pc.unique(partition).to_pylist()
    for name in topics:
        for number in partitions:
            offsets = offset
            if len(topics) > 1 or len(partitions) > 1:
                offsets = offset.filter(pc.and_(pc.equal(topic, name), pc.equal(partition, number)))
            if len(offsets):
                ordered = np.sort(offsets.to_numpy())
                steps = np.diff(ordered)
                if (twice := np.flatnonzero(steps == 0)).size:
                    raise _twice((name, number), int(ordered[twice[0]]))
                cuts = [] if hulls else (np.flatnonzero(steps != 1) + 1).tolist()
                for a, b in pairwise([0, *cuts, len(ordered)]):
                    found.append(Piece(name, number, int(ordered[a]), int(ordered[b - 1]) + 1, b - a))
    return found


def merge(found: Iterable[Piece], *, hulls: bool = False) -> list[Piece]:
    """Pieces that touch become one; with `hulls` also those that do not overlap. The others stay as they are, for `whole` to
    see."""
    merged: list[Piece] = []
    for each in sorted(found):
        last = merged[-1] if merged else None
        if last and last.key == each.key and (last.end == each.start or (hulls and last.end < each.start)):
            merged[-1] = Piece(*last.key, last.start, each.end, last.rows + each.rows)
        else:
            merged.append(each)
    return merged


def whole(
    found: Iterable[Piece], dense: Callable[[Key], bool], planned: Iterable[OffsetRange] | None = None
) -> list[OffsetRange]:
    """One range for each partition: what was `planned`, or what the rows have.

    Raises DataLoss for a gap in a dense log, PipelineError for offsets that come twice or were not planned.
    """
    pieces = merge(found)
    for one, other in pairwise(pieces):
        if one.key == other.key and other.start < one.end:
            raise _twice(one.key, other.start)
        if one.key == other.key and planned is None and dense(one.key):
            raise DataLoss(
                f"{_where(one.key)}: offsets {one.end} to {other.start - 1} are missing in a batch of the archive"
            )
    hulls = {piece.key: piece for piece in merge(pieces, hulls=True)}
    if planned is None:
        return [OffsetRange(*key, hull.start, hull.end) for key, hull in hulls.items()]
    wanted = sorted(planned)
    for each in wanted:
        key = each.topic, each.partition
        hull = hulls.pop(key, Piece(*key, each.start, each.start, 0))
        if hull.start < each.start or hull.end > each.end:
            hulls[key] = hull
        elif hull.rows < each.end - each.start and dense(key):
            raise DataLoss(
                f"{_where(key)}: a batch of the archive has {hull.rows} messages of the offsets {each.start} to {each.end - 1}"
            )
    for key, hull in hulls.items():
        raise PipelineError(
            f"{_where(key)}: a batch of the archive has offsets {hull.start} to {hull.end - 1}, which it was not to have"
        )
    return wanted


def follow(
    piece: OffsetRange, position: Position | None, log: LogState, *, planned: bool = False
) -> Position:
    """Where a partition stands after a piece.

    Raises DataLoss where the piece leaves a gap (which rows of a log that is not dense may, and a range that was `planned` may
    not), ALREADY_EXISTS where the table has some of it already or is the archive of another log of that name.
    """
    where = f"{piece.topic}, partition {piece.partition}"
    if position is None:
        return Position(piece.start, piece.end, log.ledger, log.dense)
    if log.ledger >= 0 and position.ledger >= 0 and log.ledger != position.ledger:
        raise PipelineError(
            f"{where}: the table archives an earlier topic of that name; archive this one into another table",
            ErrorKind.ALREADY_EXISTS,
        )
    dense = position.dense and log.dense
    if piece.start > position.end and (dense or planned):
        raise DataLoss(f"{where}: the archive ends at {position.end}, and the batch begins at {piece.start}")
    if piece.start < position.end:
        raise PipelineError(
            f"{where}: the archive ends at {position.end} already, and the batch begins at {piece.start}",
            ErrorKind.ALREADY_EXISTS,
        )
    ledger = log.ledger if log.ledger >= 0 else position.ledger
    return Position(position.first, piece.end, ledger, dense)


def _twice(key: Key, offset: int) -> PipelineError:
    return PipelineError(f"{_where(key)}: offset {offset} comes twice in a batch of the archive")


def _where(key: Key) -> str:
    return f"{key[0]}, partition {key[1]}"


class Last(NamedTuple):
    """The last batch that a table has of a writer, and its rows; None where no commit says how many."""

    batch: int
    rows: int | None


def is_new(folder: object, batch: Batch, last: Last | None) -> bool:
    """Whether `batch` is to be committed; False for a repeat, which is logged. Raises BatchConflict."""
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
