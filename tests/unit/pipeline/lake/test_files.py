"""Files of bounded size, parted, with statistics that tell the truth."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.pipeline.lake import files as module
from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.store import Location

US = pa.timestamp("us", tz="UTC")


def batch(start: int, count: int) -> pa.RecordBatch:
    times = [
        datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=n) for n in range(start, start + count)
    ]
    return pa.RecordBatch.from_pydict(
        {
            "offset": pa.array(range(start, start + count), pa.int64()),
            "time": pa.array(times, US),
            "text": ["x" * 100 if n % 2 else None for n in range(count)],
            "kind": [str(n % 50) for n in range(count)],
        }
    )


def test_statistics_bound_what_is_there(tmp_path: Path) -> None:
    rows = batch(5, 10)
    writer = FileWriter(Location.of(tmp_path), rows.schema, [])
    writer.write(rows)
    (file,) = writer.finish()
    stats = json.loads(file.stats)
    assert stats["numRecords"] == file.rows == 10
    assert (stats["minValues"]["offset"], stats["maxValues"]["offset"]) == (5, 14)
    assert stats["minValues"]["time"] == "2024-01-01T00:00:00.000Z"
    assert stats["maxValues"]["time"] == "2024-01-01T00:00:00.001Z", "an upper bound goes up"
    assert "text" not in stats["maxValues"], "a long text bounds nothing"
    assert stats["nullCount"]["text"] == 5


def test_bounds_that_cannot_be_written_are_left_out(tmp_path: Path) -> None:
    """Dates of the years before 1 and after 9999 are Spark's own; NaN is above all numbers there, and in no bound."""
    late, early = 2_932_897, -800_000
    days = pa.array([early, 0, late], pa.date32())
    times = pa.array([0, 0, late * 86_400_000_000], US)
    rows = pa.RecordBatch.from_pydict(
        {
            "day": days,
            "time": times,
            "local": times.cast(pa.timestamp("us")),
            "number": pa.array([1.5, 2.5, float("nan")]),
            "none": pa.array([float("nan")] * 3),
            "amount": pa.array(["1.5", "2.5", None]).cast(pa.decimal128(20, 4)),
            "n": pa.array([1, 2, 3]),
        }
    )
    writer = FileWriter(Location.of(tmp_path), rows.schema, [])
    writer.write(rows)
    (file,) = writer.finish()
    stats = json.loads(file.stats)
    assert stats["minValues"] == {
        "time": "1970-01-01T00:00:00.000Z",
        "local": "1970-01-01T00:00:00.000",
        "number": 1.5,
        "n": 1,
    }
    assert stats["maxValues"] == {"n": 3}
    assert set(stats["nullCount"]) >= {"day", "time", "number", "amount", "n"}
    assert pq.read_table(tmp_path / file.path)["day"].combine_chunks().equals(days)


def test_files_end_at_the_target_and_rows_keep_their_order(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "GROUP_BYTES", 1 << 12)
    rows = batch(0, 100)
    writer = FileWriter(Location.of(tmp_path), rows.schema, [], target_bytes=1 << 12)
    for n in range(30):
        writer.write(batch(100 * n, 100))
    made = writer.finish()
    assert len(made) > 3
    got = [n for file in made for n in pq.read_table(tmp_path / file.path)["offset"].to_pylist()]
    assert got == list(range(3000))


def test_many_partitions_keep_few_files_open(tmp_path: Path) -> None:
    rows = batch(0, 500)
    writer = FileWriter(Location.of(tmp_path), rows.schema, [PartitionColumn("kind")])
    writer.write(rows)
    assert len(writer._open) <= module.OPEN_MAX
    made = writer.finish()
    assert {file.values["kind"] for file in made} == {str(n) for n in range(50)}
    assert sum(file.rows for file in made) == 500
    assert "kind" not in pq.read_schema(tmp_path / made[0].path).names


def test_what_a_failed_task_wrote_goes(tmp_path: Path) -> None:
    rows = batch(0, 10)
    writer = FileWriter(Location.of(tmp_path), rows.schema, [])
    writer.write(rows)
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))
