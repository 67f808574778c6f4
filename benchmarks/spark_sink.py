"""How fast Spark writes into a topic, exactly once, next to writing the same rows to Parquet and to nothing.

    python benchmarks/spark_sink.py [--rows 5000000] [--partitions 2] [--runs 3]

The server is a process of its own on the same machine, with its store on the disk.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
from pyspark.sql import DataFrame

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.session import session
from penstock.testing.server import launch

TOPIC = TopicName.parse("sink")


def measured(runs: int, rows: int, work: Callable[[], None]) -> float:
    """Rows a second: the median of `runs`, after one that warms up."""
    speeds = []
    for run in range(runs + 1):
        start = time.perf_counter()
        work()
        if run:
            speeds.append(rows / (time.perf_counter() - start))
    return statistics.median(speeds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    spark = session("sink", "local[2]")
    frame = spark.range(0, given.rows, 1, 2).selectExpr(
        "concat('key-', id % 9973) AS key",
        """concat('{"n":', id, ',"note":"', repeat(md5(string(id)), 5), '"}') AS value""",
    )
    with tempfile.TemporaryDirectory() as folder, launch(Path(folder) / "data") as server:
        with HttpClient(server.url) as client:
            client.create_topic(TOPIC, given.partitions)

        def write(frame: DataFrame, **options: str) -> None:
            chosen = {"url": server.url, "topic": str(TOPIC), **options}
            frame.write.format("penstock").options(**chosen).mode("append").save()

        def parquet() -> None:
            frame.write.mode("overwrite").parquet(str(Path(folder) / "floor"))

        cases: dict[str, Callable[[], None]] = {
            "nothing (Spark's own work)": lambda: frame.write.format("noop").mode("append").save(),
            "Parquet": parquet,
            "topic, exactly once": lambda: write(frame),
            "topic, exactly once, zstd": lambda: write(frame, compression="zstd"),
            "topic, at least once": lambda: write(frame, delivery="at_least_once"),
        }
        for name, work in cases.items():
            print(f"{name:32}{measured(given.runs, given.rows, work):12,.0f} rows/s")
        slowest = commit_beside(server.url, frame, write)
        print(f"{'slowest publish meanwhile':32}{slowest * 1000:12,.1f} ms")
    spark.stop()


def commit_beside(url: str, frame: DataFrame, write: Callable[[DataFrame], None]) -> float:
    """The slowest of many single publishes to another topic while a write is staged and committed, seconds."""
    from concurrent.futures import ThreadPoolExecutor

    message = {"messages": [{"value": "x"}]}
    written = threading.Event()

    def publish() -> float:
        slowest = 0.0
        with httpx.Client() as client:
            while not written.is_set():
                start = time.perf_counter()
                client.post(f"{url}/topics/public/default/beside", json=message).raise_for_status()
                slowest = max(slowest, time.perf_counter() - start)
        return slowest

    # Spark's writes stay in this thread: others of ours have no session of theirs.
    with ThreadPoolExecutor(1) as pool:
        publishing = pool.submit(publish)
        try:
            write(frame)
        finally:
            written.set()
        return publishing.result()


if __name__ == "__main__":
    main()
