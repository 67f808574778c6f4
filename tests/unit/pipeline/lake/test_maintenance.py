"""The maintenance of a table: which partitions are due, and what compaction and vacuum leave as it was."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.unit.pipeline.lake.test_tables import SCHEMA, add, files, numbers, piece

from penstock.pipeline.lake.delta import SETTINGS, Table
from penstock.pipeline.lake.maintenance import CLOSED_MS, SMALL_MIN, STEP, Due, due, maintain
from penstock.pipeline.lake.options import table_at
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch, Last, Position

NOW = 1_800_000_000_000
TARGET = 8000
OLD = NOW - CLOSED_MS - 1


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return table_at(Location.of(tmp_path / "table"))


def actions(*found: tuple[str | None, int, int]) -> pa.Table:
    """Files by partition, size and time."""
    days, sizes, times = zip(*found, strict=True) if found else ((), (), ())
    return pa.table(
        {
            "size_bytes": pa.array(sizes, pa.int64()),
            "modification_time": pa.array(times, pa.int64()),
            "partition.day": pa.array(days, pa.string()),
        }
    )


def test_partitions_that_are_written_to_get_middle_sized_files_until_these_make_a_whole_one() -> None:
    small = TARGET // STEP - 1
    few = [("a", small, NOW)] * (SMALL_MIN - 1)
    assert due(actions(*few), ["day"], TARGET, NOW) == []
    assert due(actions(*few, ("a", small, NOW)), ["day"], TARGET, NOW) == [
        Due({"day": "a"}, TARGET // STEP, closed=False)
    ]
    middles = [("a", small + 1, NOW)] * STEP
    assert due(actions(*middles[1:]), ["day"], TARGET, NOW) == []
    assert due(actions(*middles), ["day"], TARGET, NOW) == [Due({"day": "a"}, TARGET, closed=False)]
    large = [("a", TARGET // 2, OLD)] * 50
    assert due(actions(*large), ["day"], TARGET, NOW) == []


def test_closed_partitions_come_first_and_become_as_few_files_as_they_can() -> None:
    found = [("a", 1, NOW)] * 100 + [("b", 1, OLD)] * 2 + [(None, 500, OLD)] * 3 + [("c", 1, OLD)]
    assert due(actions(*found), ["day"], TARGET, NOW) == [
        Due({"day": None}, TARGET, closed=True),
        Due({"day": "b"}, TARGET, closed=True),
        Due({"day": "a"}, TARGET // STEP, closed=False),
    ]
    assert due(actions(), ["day"], TARGET, NOW) == []
    assert due(actions(*found), [], TARGET, NOW) == [Due({}, TARGET // STEP, closed=False)]


def test_small_files_become_one_and_nothing_else_changes(table: Table) -> None:
    for n in range(20):
        add(table, [2 * n, 2 * n + 1], "q", n, pieces=(piece("t", 0, 2 * n, 2 * n + 2),))
    assert maintain(table).compacted == 20
    now = table.snapshot()
    assert now is not None
    (file,) = now.files()
    assert file.rows == 40
    assert sorted(numbers(table)) == list(range(40))
    assert now.last("q") == Last(19, 2)
    assert now.position("t", 0) == Position(0, 40, -1)
    assert not add(table, [38, 39], "q", 19)
    add(table, [40], "q", 20, pieces=(piece("t", 0, 40, 41),))
    assert sorted(numbers(table)) == list(range(41))
    assert maintain(table).compacted == 0


def test_compaction_stays_within_partitions_and_fills_in_new_columns(table: Table) -> None:
    struct = pa.schema([*SCHEMA, ("more", pa.int32())])
    for n in range(SMALL_MIN):
        add(table, [n * 3, n * 3 + 1, n * 3 + 2], by="text")
    add(table, [100], by="text", schema=struct)
    assert maintain(table).compacted == 3 * SMALL_MIN + 1
    now = table.snapshot()
    assert now is not None
    assert sorted(str(file.values["text"]) for file in now.files()) == ["0", "1", "2"]
    assert sorted(numbers(table)) == [*range(3 * SMALL_MIN), 100]
    assert DeltaTable(table.folder.url).to_pyarrow_table()["more"].null_count == 3 * SMALL_MIN


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (pa.struct([("a", pa.int64())]), {"a": 1}),
        (pa.list_(pa.struct([("a", pa.int64())])), [{"a": 1}]),
        (pa.map_(pa.string(), pa.string()), [("k", "v")]),
    ],
)
def test_columns_of_every_shape_are_rewritten_though_they_grew(
    table: Table, before: pa.DataType, after: object
) -> None:
    grown = before
    if pa.types.is_struct(before):
        grown = pa.struct([*before, ("b", pa.string())])
    elif pa.types.is_list(before):
        grown = pa.list_(pa.struct([*before.value_type, ("b", pa.string())]))
    from penstock.pipeline.lake.files import FileWriter

    for n in range(SMALL_MIN):
        columns = pa.schema([("x", before if n % 2 else grown), ("n", pa.int64())])
        writer = FileWriter(table.folder, columns, [])
        writer.write(pa.RecordBatch.from_pylist([{"x": after, "n": n}, {"x": None, "n": n}], columns))
        table.commit(Batch(files=writer.finish(), schema=columns, partition_by=()))
    reader = DeltaTable(table.folder.url).to_pyarrow_table
    rows = sorted(reader().to_pylist(), key=str)
    report = maintain(table)
    assert (report.compacted, report.errors) == (SMALL_MIN, [])
    assert sorted(reader().to_pylist(), key=str) == rows


def test_files_that_cannot_be_rewritten_are_named_and_the_table_stays(table: Table) -> None:
    """delta-rs rewrites no map whose structs grew."""
    from penstock.pipeline.lake.files import FileWriter

    for n in range(SMALL_MIN):
        value = pa.struct([("a", pa.int64()), *([("b", pa.int64())] if n else [])])
        columns = pa.schema([("n", pa.int64()), ("m", pa.map_(pa.string(), value))])
        writer = FileWriter(table.folder, columns, [])
        writer.write(pa.RecordBatch.from_pylist([{"n": n, "m": [("k", {"a": n})]}], columns))
        table.commit(Batch(files=writer.finish(), schema=columns, partition_by=()))
    report = maintain(table)
    assert report.compacted == 0
    assert len(report.errors) == 1
    assert "m" in report.errors[0]
    assert sorted(numbers(table)) == list(range(SMALL_MIN))


def test_compaction_gives_way_to_an_overwriting(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        add(table, [n])
    stale = DeltaTable(table.folder.url)
    add(table, [99], overwrite=True)
    monkeypatch.setattr(type(table), "_open", lambda self: stale)
    assert table.compact({}, 1 << 30) == 0
    monkeypatch.undo()
    assert numbers(table) == [99], "rows that were overwritten do not come back"


def test_compaction_goes_behind_batches_that_were_faster(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(20):
        add(table, [n], "q", n)
    stale = DeltaTable(table.folder.url)
    add(table, [20], "q", 20)
    with monkeypatch.context() as patched:
        patched.setattr(type(table), "_open", lambda self: stale)
        assert table.compact({}, 1 << 30) == 20
    assert sorted(numbers(table)) == list(range(21))
    assert not add(table, [20], "q", 20)


def test_a_run_is_bounded(table: Table) -> None:
    for n in range(SMALL_MIN):
        add(table, [n * 3, n * 3 + 1, n * 3 + 2], by="text")
    clock = iter((0.0, 1.0, 11.0, 12.0))
    report = maintain(table, seconds_max=10.0, clock=lambda: next(clock))
    assert (report.compacted, report.left) == (SMALL_MIN, 2)


def test_settings_of_the_log_are_set_once(tmp_path: Path) -> None:
    path = str(tmp_path / "old")
    DeltaTable.create(
        path, pa.schema(SCHEMA), configuration={"delta.logRetentionDuration": "interval 2 days"}
    )
    table = table_at(Location.of(path))
    for _ in range(2):
        maintain(table)
        given = DeltaTable(path).metadata().configuration
        assert given == SETTINGS | {"delta.logRetentionDuration": "interval 2 days"}
        assert DeltaTable(path).version() == 1
    add(made := table_at(Location.of(tmp_path / "new")), [1])
    assert DeltaTable(made.folder.url).metadata().configuration == SETTINGS


def test_a_process_maintains_the_tables_that_it_is_told(table: Table, tmp_path: Path) -> None:
    for n in range(SMALL_MIN):
        add(table, [n])
    orders = [
        {"path": str(tmp_path / "none"), "storage": {}, "vacuum": True},
        {"path": "s3:/x", "storage": {"a": "env:NOT_THERE"}, "vacuum": False},
        {"path": table.folder.url, "storage": {}, "vacuum": True},
    ]
    (tmp_path / "s3:").mkdir()
    (tmp_path / "s3:" / "x").write_text("no table")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.pipeline.lake.maintenance"],
        input=json.dumps(orders),
        text=True,
        capture_output=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    now = table.snapshot()
    assert now is not None
    assert len(now.files()) == 1


def test_vacuum_forgets_commits_of_the_log_that_are_old_enough(table: Table) -> None:
    for n in range(60):
        add(table, [n])
    log = Path(table.folder.url) / "_delta_log"
    before = len(list(log.glob("*.json")))
    from os import utime

    for path in log.iterdir():
        old = time.time() - 9 * 86_400
        utime(path, (old, old))
    waiting = files(table, [99])
    table.vacuum(168)
    assert len(list(log.glob("*.json"))) < before
    assert table.commit(Batch(files=waiting, schema=SCHEMA, partition_by=()))
    assert sorted(numbers(table)) == [*range(60), 99]
