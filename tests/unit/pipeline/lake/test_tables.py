"""What a table promises: each batch once, columns that grow, the past, small files put together."""

import os
import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from penstock.pipeline.errors import BatchConflict, DataLoss, PipelineError
from penstock.pipeline.lake.delta import UNCOMMITTED_HOURS, Table, last_by
from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.options import check_format, snapshot_of, table_at
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch, File, Last, LogState, Piece, Position

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return table_at(Location.of(tmp_path / "table"))


def files(table: Table, numbers: list[int], schema: pa.Schema = SCHEMA, by: str = "") -> tuple[File, ...]:
    bys = [PartitionColumn(by)] if by else []
    writer = FileWriter(table.folder, schema, bys)
    columns = {"n": numbers, "text": [str(n % 3) for n in numbers], "more": numbers}
    writer.write(
        pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name]).cast(field.type) for field in schema], schema=schema
        )
    )
    return writer.finish()


def piece(topic: str, partition: int, start: int, end: int) -> Piece:
    return Piece(topic, partition, start, end, end - start, sum(range(start, end)))


def add(table: Table, numbers: list[int], writer: str = "", number: int = 0, **more: object) -> bool:
    schema = more.pop("schema", SCHEMA)
    by = str(more.pop("by", ""))
    made = files(table, numbers, schema, by)  # type: ignore[arg-type]
    return table.commit(
        Batch(
            files=made,
            schema=schema,  # type: ignore[arg-type]
            partition_by=(by,) if by else (),
            writer=writer,
            number=number,
            **more,  # type: ignore[arg-type]
        )
    )


def numbers(table: Table, version: int | None = None) -> list[int]:
    now = table.snapshot(version)
    assert now is not None
    return [
        n
        for file in now.files()
        for n in pq.read_table(Path(table.folder.url) / file.path, columns=["n"])["n"].to_pylist()
    ]


@pytest.mark.parametrize("by", ["", "text"])
def test_rows_replace_those_of_their_key(table: Table, by: str) -> None:
    def put(ns: list[int], more: list[int], number: int) -> bool:
        columns = pa.schema([*SCHEMA, ("more", pa.int64())])
        writer = FileWriter(table.folder, columns, [PartitionColumn(by)] if by else [])
        arrays = [pa.array(ns), pa.array([str(n % 3) for n in ns]), pa.array(more)]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=columns))
        return table.commit(
            Batch(
                files=writer.finish(),
                schema=columns,
                partition_by=(by,) if by else (),
                writer="q",
                number=number,
                keys=("n", "text"),
            )
        )

    def rows() -> list[tuple[int, int]]:
        found = DeltaTable(str(table.folder)).to_pyarrow_table().to_pylist()
        return sorted((row["n"], row["more"]) for row in found)

    assert put([1, 2, 1], [10, 20, 11], 0)
    assert rows() == [(1, 11), (2, 20)], "of a batch's rows with one key the last"
    assert put([2, 3], [21, 30], 1)
    assert rows() == [(1, 11), (2, 21), (3, 30)]
    assert not put([2, 3], [21, 30], 1), "a repeat"
    assert rows() == [(1, 11), (2, 21), (3, 30)]
    with pytest.raises(BatchConflict):
        put([2], [22], 0)


def test_a_key_is_never_null() -> None:
    rows = pa.table({"k": ["a", None]})
    with pytest.raises(PipelineError, match="column k is null in some row"):
        last_by(rows, ["k"])


def test_a_batch_counts_once(table: Table) -> None:
    assert table.snapshot() is None
    assert add(table, [1, 2], "q", 0)
    assert not add(table, [1, 2], "q", 0)
    assert add(table, [3], "q", 1)
    assert not add(table, [3], "q", 1)
    assert add(table, [4], "other", 0)
    assert numbers(table) == [1, 2, 3, 4]
    now = table.snapshot()
    assert now is not None
    assert (now.last("q"), now.last("other"), now.last("unknown")) == (Last(1, 1), Last(0, 1), None)


def test_columns_grow_with_a_batch(table: Table) -> None:
    add(table, [1])
    add(table, [2], schema=SCHEMA.append(pa.field("more", pa.int32())))
    now = table.snapshot()
    assert now is not None
    assert now.schema.names == ["n", "text", "more"]
    with pytest.raises(PipelineError, match="column n is int64"):
        add(table, [3], schema=pa.schema([("n", pa.string())]))
    assert numbers(table) == [1, 2]


def test_what_is_archived_goes_on_where_it_ended(table: Table) -> None:
    logs = {("t", 0): LogState(7)}
    add(table, [1], pieces=(piece("t", 0, 10, 20),), logs=logs)
    with pytest.raises(DataLoss, match="ends at 20, and the batch begins at 21"):
        add(table, [2], pieces=(piece("t", 0, 21, 22),), logs=logs)
    with pytest.raises(PipelineError, match="already"):
        add(table, [2], pieces=(piece("t", 0, 10, 20),), logs=logs)
    add(table, [2], pieces=(piece("t", 0, 20, 30), piece("t", 1, 0, 5)), logs=logs)
    now = table.snapshot()
    assert now is not None
    assert now.position("t", 0) == Position(10, 30, 7)
    assert now.position("t", 1) == Position(0, 5, -1)
    assert now.position("t", 2) is None
    assert numbers(table) == [1, 2]


def test_an_archive_remembers_that_offsets_skip(table: Table) -> None:
    logs = {("t", 0): LogState(7, dense=False)}
    add(table, [1], pieces=(Piece("t", 0, 10, 20, 3, 45),), logs=logs)
    add(table, [2], pieces=(piece("t", 0, 22, 23),))
    now = table.snapshot()
    assert now is not None
    assert now.position("t", 0) == Position(10, 23, 7, dense=False)
    with pytest.raises(DataLoss, match="some are missing"):
        add(table, [3], pieces=(Piece("t", 1, 10, 20, 3, 45),))
    assert numbers(table) == [1, 2]


def test_a_batch_without_rows_makes_no_version(table: Table) -> None:
    add(table, [1], "q", 0)
    before = table.snapshot()
    assert table.commit(Batch(files=(), schema=SCHEMA, partition_by=(), writer="q", number=1))
    now = table.snapshot()
    assert before is not None
    assert now is not None
    assert now.version == before.version


def test_a_table_that_was_made_again_is_another(table: Table) -> None:
    for n in range(3):
        add(table, [n], "q", n)
    shutil.rmtree(table.folder.url)
    assert add(table, [7], "q", 0)
    assert numbers(table) == [7]


def test_writers_at_once_lose_nothing(table: Table) -> None:
    add(table, [0])
    failed: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for n in range(5):
                add(table_at(table.folder), [first + n], f"w{first}", n)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in (10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(numbers(table)) == [0, *range(10, 15), *range(20, 25), *range(30, 35)]


def test_one_of_two_equal_batches_counts(table: Table) -> None:
    add(table, [0])
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(add(table_at(table.folder), [1], "q", 5)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert numbers(table) == [0, 1]


def test_overwriting_keeps_the_past(table: Table) -> None:
    add(table, [1, 2])
    before = table.snapshot()
    assert before is not None
    add(table, [3], overwrite=True)
    assert numbers(table) == [3]
    assert numbers(table, before.version) == [1, 2]
    with pytest.raises(PipelineError, match="option version"):
        table.snapshot(99)


def test_vacuum_takes_what_no_version_holds(table: Table) -> None:
    add(table, [1])
    orphan = files(table, [2])
    old = time.time() - (UNCOMMITTED_HOURS + 1) * 3600
    full = Path(table.folder.url) / orphan[0].path
    assert table.vacuum(0) == 0, "it may be about to be committed"
    os.utime(full, (old, old))
    assert table.vacuum(0) == 1
    assert not full.exists()
    assert numbers(table) == [1]


@pytest.mark.parametrize("hours", [0, 1, UNCOMMITTED_HOURS])
def test_vacuum_takes_no_file_that_is_to_be_committed(table: Table, hours: int) -> None:
    """Whatever other writers of the table say."""
    for number in range(16):
        add(table, [number])
    waiting = files(table, [99])
    assert table.compact({}, 1 << 30) == 16
    assert table.vacuum(hours) == (16 if hours == 0 else 0)
    assert table.commit(Batch(files=waiting, schema=SCHEMA, partition_by=()))
    assert sorted(numbers(table)) == [*range(16), 99]


def test_a_table_stays_what_it_is(table: Table, tmp_path: Path) -> None:
    add(table, [1], by="text")
    with pytest.raises(PipelineError, match="parted by text"):
        add(table, [1], by="n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("mine")
    with pytest.raises(PipelineError, match="something else"):
        table_at(Location.of(tmp_path / "full"))
    with pytest.raises(PipelineError, match="there is no table"):
        snapshot_of(Location.of(tmp_path / "nowhere"))


def test_a_table_that_another_writer_makes_meanwhile_is_no_stranger(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(table, [1])
    monkeypatch.setattr("penstock.pipeline.lake.options.is_table", lambda folder: False)  # a moment before
    assert numbers(table_at(table.folder)) == [1]


def test_a_parquet_table_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old" / "_penstock").mkdir(parents=True)
    for use in (table_at, snapshot_of):
        with pytest.raises(
            PipelineError, match=r"is a Parquet table, and tables are Delta only: see .*docs/lake\.md"
        ):
            use(Location.of(tmp_path / "old"))
    with pytest.raises(PipelineError, match=r"option table: tables are Delta only: see .*docs/lake\.md"):
        check_format("parquet")
    assert sorted((tmp_path / "old").rglob("*")) == [tmp_path / "old" / "_penstock"]
