"""Which files filters leave, by partitions and statistics: never too few."""

import math
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.options import snapshot_of, table_at
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.reader import kept
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch

AT = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("t", pa.timestamp("us", "UTC")),
        ("s", pa.string()),
        ("day", pa.date32()),
    ]
)


@pytest.fixture(scope="module")
def actions(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """Five files: of n 0..9, 10..19, …; the last but one has no day, the last has nothing but nulls."""
    folder = Location.of(tmp_path_factory.mktemp("lake") / "table")
    table = table_at(folder)
    for k in range(5):
        rows: list[dict[str, Any]] = [
            {
                "n": 10 * k + i,
                "f": math.nan if k == 1 and i == 3 else float(10 * k + i),
                "t": AT + timedelta(hours=k, microseconds=123_456 + i),
                "s": f"{k}-{i}",
                "day": date(2026, 1, k + 1) if k < 3 else None,
            }
            for i in range(10)
        ]
        if k == 4:
            rows = [dict.fromkeys(SCHEMA.names)] * 3
        writer = FileWriter(folder, SCHEMA, [PartitionColumn("day")])
        writer.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
        table.commit(Batch(files=writer.finish(), schema=SCHEMA, partition_by=("day",)))
    return snapshot_of(folder).actions()


def left(actions: pa.Table, *filters: Filter) -> list[Any]:
    """The lowest n of each file that is left."""
    return sorted(
        (n for n in kept(actions, filters)["min.n"].to_pylist()), key=lambda n: -1 if n is None else n
    )


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (EqualTo(("n",), 12), [None, 10]),
        (In(("n",), (1, 25)), [None, 0, 20]),
        (GreaterThan(("n",), 19), [None, 20, 30]),
        (GreaterThanOrEqual(("n",), 19), [None, 10, 20, 30]),
        (LessThan(("n",), 10), [None, 0]),
        (LessThanOrEqual(("n",), 10), [None, 0, 10]),
        (EqualTo(("s",), "2-5"), [None, 20]),
        (EqualTo(("day",), date(2026, 1, 2)), [10]),
        (GreaterThan(("day",), date(2026, 1, 2)), [20]),
        (In(("day",), (date(2026, 1, 1), date(2026, 1, 9))), [0]),
        (IsNull(("day",)), [None, 30]),
        (IsNotNull(("day",)), [0, 10, 20]),
        (IsNull(("n",)), [None]),
        (IsNotNull(("n",)), [0, 10, 20, 30]),
        (GreaterThan(("f",), 1000.0), [None, 0, 10, 20, 30]),
        (LessThan(("f",), 10.0), [None, 0]),
        (GreaterThan(("t",), AT + timedelta(hours=2, minutes=30)), [None, 30]),
        (EqualTo(("t",), AT + timedelta(hours=1, microseconds=123_459)), [None, 10]),
        (EqualTo(("t",), (AT + timedelta(hours=1)).replace(tzinfo=None)), [None, 0, 10, 20, 30]),
        (EqualTo(("n",), "twelve"), [None, 0, 10, 20, 30]),
        (Not(EqualTo(("n",), 12)), [None, 0, 10, 20, 30]),
        (StringStartsWith(("s",), "2"), [None, 0, 10, 20, 30]),
        (EqualTo(("s", "inner"), "2"), [None, 0, 10, 20, 30]),
        (EqualTo(("none",), 1), [None, 0, 10, 20, 30]),
    ],
)
def test_filters_leave_the_files_that_may_have_rows(
    actions: pa.Table, found: Filter, expected: list[Any]
) -> None:
    assert left(actions, found) == expected


def test_filters_add_up(actions: pa.Table) -> None:
    assert left(actions, GreaterThan(("n",), 9), IsNotNull(("n",)), LessThan(("s",), "2")) == [10]
    assert left(actions) == [None, 0, 10, 20, 30]


@given(
    st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]),
    st.integers(-2, 40),
)
def test_no_file_with_a_row_that_passes_is_left_out(actions: pa.Table, kind: type, value: int) -> None:
    compare = {
        EqualTo: lambda n: n == value,
        GreaterThan: lambda n: n > value,
        GreaterThanOrEqual: lambda n: n >= value,
        LessThan: lambda n: n < value,
        LessThanOrEqual: lambda n: n <= value,
    }[kind]
    wanted = {10 * (n // 10) for n in range(40) if compare(n)}
    assert wanted <= set(left(actions, kind(("n",), value)))


def test_the_driver_opens_no_file_to_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.pipeline.lake import reader

    monkeypatch.setattr(reader, "PART_BYTES", 2000)
    monkeypatch.setattr("penstock.pipeline.lake.files.GROUP_BYTES", 4000)
    folder = Location.of(tmp_path / "table")
    columns = pa.schema([("n", pa.int64()), ("s", pa.string())])
    writer = FileWriter(folder, columns, [])
    for n in range(20):
        batch = [{"n": 100 * n + i, "s": f"{n * i * 7919:09d}"} for i in range(100)]
        writer.write(pa.RecordBatch.from_pylist(batch, columns))
    table_at(folder).commit(Batch(files=writer.finish(), schema=columns, partition_by=()))
    with monkeypatch.context() as patched:
        patched.delattr(reader, "open_file")
        patched.delattr(Location, "open")
        found = reader.parts(snapshot_of(folder).files())
    assert len(found) > 3
    numbers = [
        [
            n
            for chunk in part.chunks
            for rows in reader.read_chunk(folder, chunk, columns)
            for n in rows.column("n").to_pylist()
        ]
        for part in found
    ]
    assert [n for part in numbers for n in part] == list(range(2000))
    assert sum(bool(part) for part in numbers) > 3, "a large file is read by several tasks"
