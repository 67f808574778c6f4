"""Archives of topics of a real Kafka, whose offsets skip: markers of transactions, and records of those that were aborted."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.clusters.test_kafka_spark import (
    client,  # noqa: F401 - the fixtures
    new_topic,
    publish,
    read,
    server,  # noqa: F401
    spark,  # noqa: F401
    transact,
)
from tests.pipeline.declared import Bench
from tests.pipeline.test_archive import ARCHIVE, recipe
from tests.support.kafka_broker import KafkaCluster

from penstock.client.http import HttpClient
from penstock.pipeline.lake.options import snapshot_of
from penstock.pipeline.lake.store import Location
from penstock.testing.server import Address

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_topics_with_gaps_are_archived_read_and_replayed(
    server: Address,  # noqa: F811
    client: HttpClient,  # noqa: F811
    spark: SparkSession,  # noqa: F811
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    topic = new_topic(client, 2)
    publish(client, topic, 0, 100)
    transact(kafka_cluster, topic, 900, 50, commit=False)  # a gap, and at the end a marker
    bench = Bench(tmp_path, server.url, spark)
    archive = ARCHIVE.replace("persistent://public/default/t", str(topic))
    archive = archive.replace("[sources.messages]", "[sources.messages]\nmax_rows_per_batch = 60")
    path = str(tmp_path / "table")

    def archived() -> list[int]:
        """Archive what there is; the values in the table."""
        bench.run_once(archive)
        return sorted(int(row["value"]) for row in bench.table("table"))

    assert archived() == list(range(100))
    publish(client, topic, 100, 50)
    transact(kafka_cluster, topic, 150, 50, commit=True)
    assert archived() == list(range(200))
    version = snapshot_of(Location.of(path)).version
    assert archived() == list(range(200))
    now = snapshot_of(Location.of(path))
    assert now.version == version
    offsets = {(row["partition"], row["offset"]) for row in bench.table("table")}
    for partition in range(2):
        position = now.position(str(topic), partition)
        assert position is not None
        assert not position.dense
        assert position.end == 1 + max(offset for n, offset in offsets if n == partition)

    publish(client, topic, 200, 50)
    transact(kafka_cluster, topic, 950, 50, commit=False)
    live = {(row.partition, row.offset): bytes(row.value) for row in read(spark, server, topic).collect()}
    assert len(live) == 250
    both = recipe("archived_and_live")(spark, path, str(topic), url=server.url).collect()
    assert {(row.partition, row.offset): bytes(row.value) for row in both} == live
    assert len(both) == 250

    copy = str(tmp_path / "copy")
    rows = spark.read.format("penstock_lake").load(path).drop("timestamp_day")
    writing = rows.write.format("penstock_lake").mode("append").option("partitionBy", "day(timestamp)")
    writing.options(archive="true", url=server.url).save(copy)
    copied = snapshot_of(Location.of(copy))
    assert [copied.position(str(topic), n) for n in range(2)] == [
        now.position(str(topic), n) for n in range(2)
    ]

    target = new_topic(client, 0)
    for _ in range(2):
        recipe("replay")(spark, path, "offset >= 0", str(target), "again", url=server.url)
        there = read(spark, server, target).collect()
        assert sorted(int(row.value) for row in there) == list(range(200))
