"""How fast Spark reads messages that were published alone, beside the same messages in batches.

    python -m benchmarks.spark_alone [--rows 500000] [--rounds 5] [--batch 1000]

One Penstock with its embedded engine has both topics, with rows of 200 bytes and keys in 2 partitions, published over Pulsar's
protocol. They are read in turns in one session of Spark: lines show medians, and of the ratios the least and the most.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

from penstock.client.aio.client import Client
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.session import session

from . import servers
from .spark_scan import PARTITIONS, VALUE

WAITING_MAX = 2000  # messages of the producer without a receipt


async def publish(url: str, topic: str, rows: int, batch: int) -> None:
    """Publish the rows, in batches of so many; 1: alone."""
    client = Client(url)
    options = {"batching_enabled": batch > 1, "batching_max_messages": batch, "max_pending_messages": 0}
    options |= {"batching_max_allowed_size_in_bytes": 1 << 20, "send_timeout_millis": 0}
    producer = await client.create_producer(topic, **options)  # type: ignore[arg-type]
    failed: list[object] = []

    def told(error: object, _: object) -> None:
        if error:
            failed.append(error)

    for number in range(rows):
        value = (VALUE % (number % 9999, number % 500, f"{number * 7919:0120d}")).encode()
        producer.send_async(value, told, partition_key=f"key-{number % 9973:06d}")
        if number % WAITING_MAX == WAITING_MAX - 1:
            await producer.flush()
    await producer.flush()
    await client.close()
    assert not failed, failed[0]


def cases(spark: SparkSession, url: str) -> dict[str, Callable[[str], None]]:
    def table(topic: str, **options: str) -> DataFrame:
        reader = spark.read.format("penstock").options(url=url, subscribe=topic, **options)
        return reader.load()

    def scan(topic: str) -> None:
        table(topic).write.format("noop").mode("overwrite").save()

    def with_metadata(topic: str) -> None:
        wide = table(topic, include="message_id,producer_name,sequence_id,properties")
        wide.write.format("noop").mode("overwrite").save()

    def total(topic: str) -> None:
        table(topic).selectExpr("sum(length(value))", "max(offset)").collect()

    return {
        "every row into noop": scan,
        "with four further columns": with_metadata,
        "sum(length(value))": total,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    sides = {"batches": given.batch, "alone": 1}
    with servers.penstock_urls() as (url, binary, *_):
        for topic, batch in sides.items():
            with HttpClient(url) as client:
                client.create_topic(TopicName.parse(topic), PARTITIONS)
            asyncio.run(publish(binary, topic, given.rows, batch))
        spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
        try:
            print(f"{given.rows:,} rows, batches of at most {given.batch}, {given.master}")
            for name, work in cases(spark, url).items():
                taken: dict[str, list[float]] = {topic: [] for topic in sides}
                for number in range(given.rounds + 1):  # the first warms up
                    for topic in sides if number % 2 else reversed(sides):
                        begun = time.perf_counter()
                        work(topic)
                        if number:
                            taken[topic].append(time.perf_counter() - begun)
                rates = [
                    f"{topic} {given.rows / statistics.median(each):9,.0f}/s" for topic, each in taken.items()
                ]
                ratios = [a / b for a, b in zip(taken["batches"], taken["alone"], strict=True)]
                shown = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                print(f"{name:26} {'   '.join(rates)}   ratio {shown}", flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main()
