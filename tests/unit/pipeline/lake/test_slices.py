"""Ranges of offsets out of an archive: of a log whose offsets skip, and of one without a gap."""

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.pipeline.errors import DataLoss
from penstock.pipeline.lake.delta import Table
from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.slices import plan_slices, read_slice
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch, LogState, OffsetRange

SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())]
)


def archive(folder: Path, *files: list[int], dense: bool) -> Table:
    """A table that has archived the offsets 0 to 99 of a partition, in files that hold some of them."""
    table = Table(Location.of(str(folder / "table")))
    written = []
    for offsets in files:
        writer = FileWriter(table.folder, SCHEMA, ())
        rows = [{"topic": "t", "partition": 0, "offset": n, "value": f"v{n}"} for n in offsets]
        writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
        written += writer.finish()
    batch = Batch(
        files=tuple(written),
        schema=SCHEMA,
        partition_by=(),
        pieces=(OffsetRange("t", 0, 0, 100),),
        logs={("t", 0): LogState(7, dense)},
        planned=True,
    )
    table.commit(batch)
    return table


def read(table: Table, start: int, end: int, rows_max: int = 500_000) -> list[tuple[int, str]]:
    now = table.snapshot()
    assert now is not None
    slices = plan_slices(table.folder, now, [OffsetRange("t", 0, start, end)], rows_max)
    return [
        (row["offset"], row["value"])
        for part in slices
        for batch in read_slice(part, SCHEMA)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize("files", [[[3, 5, 40], [41, 97]], [[3, 40, 97], [5, 41]]], ids=["apart", "across"])
def test_offsets_that_skip_come_in_order_once(tmp_path: Path, files: list[list[int]]) -> None:
    table = archive(tmp_path, *files, dense=False)
    every = [(n, f"v{n}") for n in (3, 5, 40, 41, 97)]
    assert read(table, 0, 100) == every
    assert read(table, 0, 100, rows_max=10) == every, "also where a task has nothing but gaps"
    assert read(table, 4, 41) == every[1:3]
    assert read(table, 42, 97) == []


def test_an_offset_that_comes_twice_is_no_gap(tmp_path: Path) -> None:
    table = archive(tmp_path, [3, 5], [5, 7], dense=False)
    with pytest.raises(DataLoss, match="offset 5 comes twice"):
        read(table, 0, 100)


def test_a_dense_log_has_every_offset(tmp_path: Path) -> None:
    table = archive(tmp_path, [*range(50)], [*range(51, 100)], dense=True)
    assert len(read(table, 0, 50)) == 50
    with pytest.raises(DataLoss, match="offsets come twice or are missing from 50 on"):
        read(table, 0, 100)
