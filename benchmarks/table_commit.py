"""What a batch costs that adds one file to a table: to an empty table, and to one of 10,000 files.

    python -m benchmarks.table_commit [--files 10000] [--rounds 15] [--spark]

The sink of a pipeline that runs writes the file and commits it, for both tables in turns; `--spark` has a declared batch's
whole job around it. Times are medians.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from penstock.pipeline.lake.files import FileWriter
from penstock.pipeline.lake.options import table_at
from penstock.pipeline.lake.partitioning import PartitionColumn
from penstock.pipeline.lake.sink import StreamWriter
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Batch

COLUMNS = StructType(
    [
        StructField("n", LongType()),
        *(StructField(f"c{n}", LongType()) for n in range(10)),
        StructField("text", StringType()),
        StructField("at", TimestampType()),
    ]
)
ROWS = 1000
COMMITS = 100  # that make the large table
PAUSE_S = 0.5


def rows(first: int) -> pa.RecordBatch:
    numbers = pa.array(range(first, first + ROWS), pa.int64())
    times = pa.array([first * 1_000_000] * ROWS, pa.timestamp("us", "UTC"))
    arrays = [*[numbers] * 11, numbers.cast(pa.string()), times]
    return pa.RecordBatch.from_arrays(arrays, names=COLUMNS.names)


def fill(path: Path, files: int) -> None:
    """A table of so many files: one that is there, under other names."""
    location = Location.of(path)
    columns = rows(0).schema.append(pa.field("at_day", pa.date32()))
    writer = FileWriter(location, columns, [PartitionColumn("at_day", "at", "day")])
    writer.write(rows(0))
    (file,) = writer.finish()
    table = table_at(location)
    each = files // COMMITS
    import msgspec

    for n in range(COMMITS):
        copies = [
            msgspec.structs.replace(file, path=f"at_day=1970-01-01/part-{n}-{i}.parquet") for i in range(each)
        ]
        table.commit(Batch(files=tuple(copies), schema=columns, partition_by=("at_day",)))
    assert len(DeltaTable(str(path)).file_uris()) == files


def sink(path: Path) -> Callable[[int], None]:
    """A batch of a pipeline that runs, without Spark."""
    writer = StreamWriter({"path": str(path), "partitionBy": "day(at)"}, COLUMNS, overwrite=False)
    writer.create()

    def batch(number: int) -> None:
        message: Any = writer.write(iter([rows(number)]))
        message.query = "q"
        writer.commit([message], number)

    return batch


def job(path: Path, spark: Any) -> Callable[[int], None]:
    """The same with the job of a declared batch, which collects what its tasks wrote."""
    from penstock.pipeline.run.writing import RESULT, commit, row_writer

    writer = StreamWriter({"path": str(path), "partitionBy": "day(at)"}, COLUMNS, overwrite=False)
    writer.create()
    write = row_writer({"s": (writer, ("s",))}, {"s": "s"})
    columns = ", ".join(f"id AS {name}" for name in COLUMNS.names[:11])
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        f"struct({columns}, string(id) AS text, timestamp_seconds(id) AS at) AS s"
    )

    def batch(number: int) -> None:
        found = frame.mapInArrow(write, RESULT).collect()
        commit({"s": writer}, found, number, {}, lambda name: nullcontext())

    return batch


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--files", type=int, default=10_000)
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--spark", action="store_true")
    given = arguments.parse_args()
    spark = None
    if given.spark:
        from penstock.pipeline.session import session

        spark = session("benchmark", "local[2]")
    with tempfile.TemporaryDirectory() as folder:
        paths = {0: Path(folder) / "empty", given.files: Path(folder) / "full"}
        fill(paths[given.files], given.files)
        batches = {
            files: job(path, spark) if spark is not None else sink(path) for files, path in paths.items()
        }
        wall: dict[int, list[float]] = {files: [] for files in paths}
        cpu: dict[int, list[float]] = {files: [] for files in paths}
        for number in range(given.rounds + 1):
            for files, batch in batches.items():
                time.sleep(PAUSE_S)  # batches of a pipeline do not follow one another at once
                begun, used = time.perf_counter(), time.process_time()
                batch(number)
                wall[files].append(time.perf_counter() - begun)
                cpu[files].append(time.process_time() - used)
        found = {files: statistics.median(times[1:]) for files, times in wall.items()}
        for files in paths:
            print(
                f"{files:6,} files: {found[files] * 1000:6.1f} ms a batch, least {min(wall[files][1:]) * 1000:6.1f} ms,"
                f" CPU of the driver {statistics.median(cpu[files][1:]) * 1000:6.1f} ms"
            )
        print(f"ratio {found[given.files] / found[0]:.2f}")
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    main()
