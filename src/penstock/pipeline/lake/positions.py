"""Which offsets a batch holds, and whether they go on where the table ends. Pure."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import DataLoss, PipelineError

from .values import OffsetRange, Position

COLUMNS = ("topic", "partition", "offset")


def pieces(batch: pa.RecordBatch) -> list[OffsetRange]:
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
