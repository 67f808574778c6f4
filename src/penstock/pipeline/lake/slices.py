"""Ranges of offsets out of an archive: which files hold them, their rows in order, each once; and where a time lies."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from penstock.pipeline.errors import DataLoss, PipelineError

from . import schema as schemas
from .files import open_file
from .partitioning import constants
from .snapshot import Snapshot
from .store import Location
from .values import COLUMNS, OffsetRange

ROWS_MAX: Final = 500_000  # of a task
BATCH: Final = 16_384
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Source = tuple[str, dict[str, str | None]]  # a file's path and its partition values


class Slice(InputPartition):
    """One task: a range of offsets, and the files that hold it. If it is not `dense`, some offsets belong to no message."""

    def __init__(
        self, folder: Location, files: Sequence[Source], piece: OffsetRange, *, dense: bool = True
    ) -> None:
        super().__init__(None)
        self.folder = folder
        self.files = tuple(files)
        self.piece = piece
        self.dense = dense


def plan_slices(
    folder: Location, now: Snapshot, pieces: Sequence[OffsetRange], rows_max: int = ROWS_MAX
) -> list[Slice]:
    """The tasks that read `pieces` of an archive. Raises PipelineError where the table is none, DataLoss where
    it does not reach so far."""
    if missing := [name for name in COLUMNS if name not in now.schema.names]:
        raise PipelineError(f"the table {folder} has no column {missing[0]}: it is no archive of a topic")
    files = now.files()
    found: list[Slice] = []
    for piece in pieces:
        if piece.start >= piece.end:
            continue
        position = now.position(piece.topic, piece.partition)
        if position is not None and not position.first <= piece.start <= piece.end <= position.end:
            raise DataLoss(
                f"{piece.topic}, partition {piece.partition}: offsets {piece.start} to {piece.end - 1} are asked for,"
                f" and the table {folder} has {position.first} to {position.end - 1}"
            )
        holding = sorted(
            (f for f in files if _may_hold(f.low, f.high, piece)),
            key=lambda f: (f.low.get("offset", 0), f.at),
        )
        count = -(-(piece.end - piece.start) // rows_max)
        size = piece.end - piece.start
        for n in range(count):
            start, end = piece.start + size * n // count, piece.start + size * (n + 1) // count
            own = OffsetRange(piece.topic, piece.partition, start, end)
            sources = [(f.path, f.values) for f in holding if _may_hold(f.low, f.high, own)]
            found.append(Slice(folder, sources, own, dense=position is None or position.dense))
    return found


def read_slice(part: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a slice in the order of their offsets. Raises DataLoss where one comes twice or, in a dense log, is missing."""
    if not part.dense:
        yield from _read_sparse(part, schema)
        return
    piece = part.piece
    at = piece.start
    aside: list[tuple[Any, pa.RecordBatch]] = []
    for offsets, rows in _rows(part, schema):
        if _go_on(offsets, at):
            yield rows
            at += len(offsets)
        else:
            aside.append((offsets, rows))
    if aside:  # files that were written across one another: what is left is put in order at once
        offsets = np.concatenate([each for each, _ in aside])
        order = np.argsort(offsets, kind="stable")
        ordered = offsets[order]
        if not _go_on(ordered, at):
            raise DataLoss(f"{_where(part)}: offsets come twice or are missing from {at} on")
        at += len(ordered)
        table = pa.Table.from_batches([rows for _, rows in aside]).take(pa.array(order))
        yield from table.combine_chunks().to_batches(max_chunksize=BATCH)
    if at != piece.end:
        raise DataLoss(f"{_where(part)}: offsets {at} to {piece.end - 1} are missing")


def _read_sparse(part: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a slice whose offsets skip: first the offsets alone are read, to know whether files overlap."""
    offsets = np.concatenate([np.zeros(0, np.int64), *(each for each, _ in _rows(part, pa.schema([])))])
    order = np.argsort(offsets, kind="stable")
    if (twice := np.flatnonzero(np.diff(offsets[order]) == 0)).size:
        raise DataLoss(f"{_where(part)}: offset {offsets[order][twice[0]]} comes twice")
    found = (rows for _, rows in _rows(part, schema))
    if (np.diff(offsets) > 0).all():
        yield from found
        return
    table = pa.Table.from_batches(found, schema).take(pa.array(order))
    yield from table.combine_chunks().to_batches(max_chunksize=BATCH)


def _go_on(offsets: Any, at: int) -> bool:
    """Whether these are the offsets from `at` on, without a gap."""
    return bool(offsets[0] == at and (np.diff(offsets) == 1).all())


def offset_at(folder: Location, now: Snapshot, topic: str, partition: int, ms: int) -> int | None:
    """The first archived offset of a partition whose timestamp is `ms` since the epoch or later; None where all
    are earlier, or nothing is archived."""
    position = now.position(topic, partition)
    if position is None:
        return None
    piece = OffsetRange(topic, partition, position.first, position.end)
    wanted = _EPOCH + timedelta(milliseconds=ms)
    best: int | None = None
    for file in sorted(
        (f for f in now.files() if _may_hold(f.low, f.high, piece)),
        key=lambda f: int(f.low.get("offset") or 0),
    ):
        if best is not None and int(file.low.get("offset") or 0) >= best:
            break
        with open_file(folder, file.path) as opened:
            names = opened.schema_arrow.names
            columns = [n for n in ("topic", "partition", "offset", "timestamp") if n in names]
            for batch in opened.iter_batches(columns=columns):
                found = _first(batch, topic, partition, wanted)
                if found is not None and (best is None or found < best):
                    best = found
                    break
    return best


def _first(batch: pa.RecordBatch, topic: str, partition: int, wanted: datetime) -> int | None:
    """The lowest offset of a batch at or after a time."""
    bound = pa.scalar(wanted, pa.timestamp("us", tz="UTC"))
    mask = pc.greater_equal(batch.column("timestamp"), bound)
    for name, value in (("topic", topic), ("partition", partition)):
        if name in batch.schema.names:
            mask = pc.and_(mask, pc.equal(batch.column(name), value))
    lowest: int | None = pc.min(batch.column("offset").filter(mask)).as_py()
    return lowest


def _rows(part: Slice, schema: pa.Schema) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The slice's rows file by file, with their offsets."""
    piece = part.piece
    for path, values in part.files:
        try:
            file = pq.ParquetFile(part.folder.open(path), pre_buffer=True)
        except FileNotFoundError:
            raise DataLoss(f"the table {part.folder} has lost the file {path}") from None
        with file:
            there = file.schema_arrow.names
            wanted = [name for name in there if name in schema.names or name in COLUMNS]
            groups = [
                n for n in range(file.num_row_groups) if _group_holds(file.metadata.row_group(n), piece)
            ]
            if not groups:
                continue
            fixed = constants(values, schema)
            for batch in file.iter_batches(batch_size=BATCH, row_groups=groups, columns=wanted):
                rows = batch.filter(_mask(batch, values, piece))
                if rows.num_rows:
                    offsets = rows.column(rows.schema.get_field_index("offset")).to_numpy()
                    yield offsets, schemas.conform(rows, schema, fixed)


def _mask(batch: pa.RecordBatch, values: dict[str, str | None], piece: OffsetRange) -> Any:
    """Which rows are of the piece. A table may be parted by topic or partition: then the files lack them."""

    def column(name: str) -> Any:
        return batch.column(batch.schema.get_field_index(name))

    offset = column("offset")
    mask = pc.and_(pc.greater_equal(offset, piece.start), pc.less(offset, piece.end))
    for name, wanted in (("topic", piece.topic), ("partition", piece.partition)):
        if name in values:
            if values[name] != str(wanted):
                return pa.repeat(False, batch.num_rows)
        else:
            mask = pc.and_(mask, pc.equal(column(name), wanted))
    return mask


def _group_holds(group: pq.RowGroupMetaData, piece: OffsetRange) -> bool:
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for number in range(group.num_columns):
        column = group.column(number)
        name = column.path_in_schema
        if name in COLUMNS and column.statistics is not None and column.statistics.has_min_max:
            low[name], high[name] = column.statistics.min, column.statistics.max
    return _may_hold(low, high, piece)


def _may_hold(low: Mapping[str, Any], high: Mapping[str, Any], piece: OffsetRange) -> bool:
    """Whether a file or row group may have rows of a piece, by its bounds; without bounds it may."""
    for name, first, last in (
        ("topic", piece.topic, piece.topic),
        ("partition", piece.partition, piece.partition),
        ("offset", piece.start, piece.end - 1),
    ):
        if name in low and low[name] > last:
            return False
        if name in high and high[name] < first:
            return False
    return True


def _where(part: Slice) -> str:
    return f"the archive {part.folder} of {part.piece.topic}, partition {part.piece.partition}"
