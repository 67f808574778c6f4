"""What a table is made of, what one commit brings, and whether it may: by its offsets, and by its number.

A writer's batches have numbers that grow. A number above the last one is new. The last number again is a repeat where
the batch has as many rows as the commit had; then there is nothing to do. Everything else means that the numbers and
the rows no longer belong together (a checkpoint was rolled back, lost or copied, two writes share a name): it fails,
as rows that were passed over would be lost.
"""

import logging
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import BatchConflict, DataLoss, PipelineError

Cell = str | int | None  # a bound of a column as far as reading cares: topics, partitions, offsets

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


class Position(msgspec.Struct, frozen=True):
    """What a table has archived of a partition: `first .. end-1` of the log `ledger` (-1: not known)."""

    first: int
    end: int
    ledger: int = -1


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one commit brings. `writer` and `number` name it; without a writer it is not remembered. With `keys`, its rows
    replace those that agree in these columns.

    `pieces` are what an archive's batch holds, one for each partition, and `ledgers` the logs they are of: they
    must go on where the table ends.
    """

    files: tuple[File, ...]
    schema: pa.Schema
    partition_by: tuple[str, ...]
    writer: str = ""
    number: int = 0
    overwrite: bool = False
    keys: tuple[str, ...] = ()
    pieces: tuple[OffsetRange, ...] = ()
    ledgers: Mapping[tuple[str, int], int] = {}

    @property
    def rows(self) -> int:
        """The rows of its files."""
        return sum(file.rows for file in self.files)


def pieces_of(batch: pa.RecordBatch) -> list[OffsetRange]:
    """The runs of offsets in a batch, by topic and partition. Raises PipelineError for a null among them."""
    topic, partition, offset = (batch.column(batch.schema.get_field_index(name)) for name in COLUMNS)
    if topic.null_count or partition.null_count or offset.null_count:
        raise PipelineError("an archive's rows need a topic, a partition and an offset each")
    found: list[OffsetRange] = []
    topics, partitions = pc.unique(topic).to_pylist(), pc.unique(partition).to_pylist()
    for name in topics:
        for number in partitions:
            offsets = offset
            if len(topics) > 1 or len(partitions) > 1:
                offsets = offset.filter(pc.and_(pc.equal(topic, name), pc.equal(partition, number)))
            if len(offsets):
                found += [OffsetRange(name, number, start, end) for start, end in _runs(offsets.to_numpy())]
    return found


def _runs(offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[tuple[int, int]]:
    ordered = np.sort(offsets)
    cuts = np.flatnonzero(np.diff(ordered) != 1) + 1
    edges = [0, *cuts.tolist(), len(ordered)]
    return [(int(ordered[a]), int(ordered[b - 1]) + 1) for a, b in pairwise(edges)]


def merge(found: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Pieces that touch become one; those that overlap stay as they are, for `whole` to see."""
    merged: list[OffsetRange] = []
    for each in sorted(found):
        last = merged[-1] if merged else None
        if last and (last.topic, last.partition, last.end) == (each.topic, each.partition, each.start):
            merged[-1] = OffsetRange(last.topic, last.partition, last.start, each.end)
        else:
            merged.append(each)
    return merged


def whole(found: Iterable[OffsetRange]) -> list[OffsetRange]:
    """One piece for each partition. Raises DataLoss for a gap, PipelineError for offsets that come twice."""
    merged = merge(found)
    for one, other in pairwise(merged):
        if (one.topic, one.partition) == (other.topic, other.partition):
            where = f"{one.topic}, partition {one.partition}"
            if other.start < one.end:
                raise PipelineError(f"{where}: offset {other.start} comes twice in a batch of the archive")
            raise DataLoss(
                f"{where}: offsets {one.end} to {other.start - 1} are missing in a batch of the archive"
            )
    return merged


def follow(piece: OffsetRange, position: Position | None, ledger: int) -> Position:
    """Where a partition stands after a piece.

    Raises DataLoss where the piece leaves a gap, ALREADY_EXISTS where the table has some of it already or is the
    archive of another log of that name.
    """
    where = f"{piece.topic}, partition {piece.partition}"
    if position is None:
        return Position(piece.start, piece.end, ledger)
    if ledger >= 0 and position.ledger >= 0 and ledger != position.ledger:
        raise PipelineError(
            f"{where}: the table archives an earlier topic of that name; archive this one into another table",
            ErrorKind.ALREADY_EXISTS,
        )
    if piece.start > position.end:
        raise DataLoss(f"{where}: the archive ends at {position.end}, and the batch begins at {piece.start}")
    if piece.start < position.end:
        raise PipelineError(
            f"{where}: the archive ends at {position.end} already, and the batch begins at {piece.start}",
            ErrorKind.ALREADY_EXISTS,
        )
    return Position(position.first, piece.end, ledger if ledger >= 0 else position.ledger)


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
