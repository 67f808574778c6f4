"""How fast a topic is archived, next to Spark writing the same rows as Parquet itself (the floor).

    python benchmarks/spark_lake.py [--rows 5000000] [--batch 1000]

The topic is served by a bare process (see spark_scan.py), so that the figure is the archive's own. Both sides
read from it; Spark's writer is given the same columns, compression and session.
"""

import argparse
import json
import multiprocessing as mp
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame

from benchmarks.spark_scan import PARTITIONS, serve
from penstock.client.access import Access
from penstock.pipeline.options import server_options
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.pipeline.session import session

TOPIC = "persistent://public/default/bench"


def measured(work: Callable[[Path], None], repeats: int) -> float:
    """The best of several runs into folders of their own, in seconds; one more warms up."""
    seconds = []
    for _ in range(repeats + 1):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            work(Path(folder) / "table")
            seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--batch", type=int, default=1000, help="messages in an entry")
    arguments.add_argument("--repeats", type=int, default=2)
    arguments.add_argument("--master", default="local[2]")
    given = arguments.parse_args()

    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(
        target=serve, args=(given.rows // PARTITIONS, given.batch, theirs), daemon=True
    )
    process.start()
    access = Access(url=f"http://127.0.0.1:{ours.recv()}")
    spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
    each = given.rows // PARTITIONS
    rows = each * PARTITIONS
    try:
        whole = {TOPIC: {str(n): each for n in range(PARTITIONS)}}
        for name, include in (("all columns", tuple(INCLUDABLE)), ("basic columns", ())):

            def frame(include: tuple[str, ...] = include) -> DataFrame:
                options = server_options(access) | {
                    "assign": json.dumps({TOPIC: list(range(PARTITIONS))}),
                    "endingOffsets": json.dumps(whole),
                }
                if include:
                    options["include"] = ",".join(include)
                return spark.read.format("penstock").options(**options).load()

            def archived(path: Path, frame: Callable[[], DataFrame] = frame) -> None:
                options = {"archive": "true", "partitionBy": "day(timestamp)"}
                frame().write.format("penstock_lake").mode("append").options(**options).save(str(path))
                assert DeltaTable(path).count() == rows

            def floor(path: Path, frame: Callable[[], DataFrame] = frame) -> None:
                frame().write.option("compression", "zstd").parquet(str(path))

            floor_s = measured(floor, given.repeats)
            seconds = measured(archived, given.repeats)
            print(
                f"{rows:,} rows, {name:13} {rows / seconds / 1e3:5.0f} k rows/s   Spark's own Parquet"
                f" {rows / floor_s / 1e3:5.0f} k rows/s   ratio {floor_s / seconds:.2f}",
                flush=True,
            )
    finally:
        spark.stop()
        process.kill()


if __name__ == "__main__":
    main()
