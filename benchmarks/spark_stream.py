"""How fast Spark streams topics, next to a batch that reads the same, and what a batch and an idle query cost.

    python -m benchmarks.spark_stream [--rows 5000000] [--batch 1000] [--seconds 20]

The rows come from a bare process, as in `spark_scan`; the idle query follows a Penstock.
"""

import argparse
import multiprocessing as mp
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.session import session

from . import servers
from .idle import cpu_s
from .spark_scan import PARTITIONS, measure, serve

TOPICS = 10
SMALL_BATCHES = 40


@contextmanager
def bare(rows: int, batch: int, topics: int = 1) -> Iterator[str]:
    """A process that serves `rows` messages in all; yields its URL."""
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(
        target=serve, args=(rows // PARTITIONS // topics, batch, theirs, topics), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def available_now(spark: SparkSession, url: str, **options: Any) -> list[dict[str, Any]]:
    """Stream what there is into nothing; returns the progress of every batch."""
    reader = spark.readStream.format("penstock").option("url", url).option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [dict(each) for each in query.recentProgress]


def family(root: int) -> list[int]:
    """A process and all that came of it (Linux)."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(path.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def idle(spark: SparkSession, seconds: float) -> None:
    """The share of a core that a query without work takes: Spark's JVM, its Python processes, the server."""
    with servers.penstock() as (port, pid), tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        url = f"http://127.0.0.1:{port}"
        with HttpClient(url) as client:
            for n in range(TOPICS):
                client.create_topic(TopicName.parse(f"t{n}"), 4)
        reader = spark.readStream.format("penstock").option("url", url).option("subscribePattern", "t.*")
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", folder)

        def burnt() -> dict[int, float]:
            return {each: cpu_s(each) for each in family(os.getpid()) if Path(f"/proc/{each}").exists()}

        def share(before: dict[int, float]) -> float:
            """Of a core since then; a process that ended meanwhile does not count."""
            return sum(now - before.get(each, 0) for each, now in burnt().items()) / seconds

        time.sleep(5)
        before = burnt()
        time.sleep(seconds)
        without = share(before)
        query: StreamingQuery = writer.start()
        while not query.recentProgress:
            time.sleep(0.1)
        time.sleep(10)
        before, server_before = burnt(), cpu_s(pid)
        time.sleep(seconds)
        busy, server = share(before), (cpu_s(pid) - server_before) / seconds
        query.stop()
        print(
            f"idle query on {TOPICS} topics of 4 partitions: Spark {busy * 100:.2f} % of a core ({without * 100:.2f} %"
            f" without the query), server {server * 100:.2f} %"
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--batch", type=int, default=1000, help="messages in an entry")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--master", default="local[2]")
    given = arguments.parse_args()
    spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
    try:
        with bare(given.rows, given.batch) as url:
            source = spark.read.format("penstock").option("url", url).option("subscribe", "bench").load()
            batch_s = measure(given.repeats, lambda: source.write.format("noop").mode("overwrite").save())
            stream_s = measure(given.repeats, lambda: available_now(spark, url, subscribe="bench"))
            limited_s = measure(
                1, lambda: available_now(spark, url, subscribe="bench", maxOffsetsPerTrigger=1_000_000)
            )
            print(f"{given.rows:,} rows, entries of {given.batch}, {given.master}, into noop")
            print(f"batch                        {given.rows / batch_s / 1e6:5.2f} M rows/s")
            for name, taken in (("stream, available now", stream_s), ("stream, batches of 1 M", limited_s)):
                print(f"{name:28} {given.rows / taken / 1e6:5.2f} M rows/s   ratio {batch_s / taken:.2f}")
        with bare(SMALL_BATCHES * 2 * given.batch, given.batch) as url:
            progress = available_now(spark, url, subscribe="bench", maxOffsetsPerTrigger=2 * given.batch)
            ms = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
            print(
                f"batches of {2 * given.batch} rows: {statistics.median(ms):.0f} ms each (median of {len(ms)})"
            )
        with bare(given.rows, given.batch, TOPICS) as url:
            many_s = measure(1, lambda: available_now(spark, url, subscribePattern="bench.*"))
            print(f"{TOPICS} topics in one query        {given.rows / many_s / 1e6:5.2f} M rows/s")
        idle(spark, given.seconds)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
