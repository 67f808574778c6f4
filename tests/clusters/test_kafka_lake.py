"""Archives of topics of a real Kafka, whose offsets skip: markers of transactions, and records of those that were aborted."""

import json
from pathlib import Path
from uuid import uuid4

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
from tests.support.kafka_broker import KafkaCluster

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.pipeline.lake.archive import ArchiveSpec, run_archive
from penstock.pipeline.lake.delta import Table
from penstock.pipeline.lake.replay import ReplaySpec, run_replay
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
    path = str(tmp_path / "table")
    spec = ArchiveSpec(server=Access(url=server.url), topics=(str(topic),), table=path, rows_max=60)
    first = run_archive(spark, spec)
    assert first.rows == 100

    publish(client, topic, 100, 50)
    transact(kafka_cluster, topic, 150, 50, commit=True)
    assert run_archive(spark, spec).rows == 100
    assert run_archive(spark, spec).batches == 0
    now = Table(Location.of(path)).snapshot()
    assert now is not None
    ends = [client.offsets(topic, partition).latest for partition in range(2)]
    assert [now.position(str(topic), partition).end for partition in range(2)] == ends  # type: ignore[union-attr]

    publish(client, topic, 200, 50)
    transact(kafka_cluster, topic, 950, 50, commit=False)
    live = {(row.partition, row.offset): bytes(row.value) for row in read(spark, server, topic).collect()}
    assert len(live) == 250
    both = read(spark, server, topic, archive=path).collect()
    assert {(row.partition, row.offset): bytes(row.value) for row in both} == live
    assert len(both) == 250
    middle = sorted(offset for partition, offset in live if partition == 0)[70]
    bounds = {"startingOffsets": json.dumps({str(topic): {"0": middle, "1": -1}})}
    some = read(spark, server, topic, archive=path, **bounds).collect()
    assert {(row.partition, row.offset) for row in some} == {
        (partition, offset) for partition, offset in live if partition == 0 and offset >= middle
    }

    copy = str(tmp_path / "copy")
    rows = spark.read.format("penstock_lake").load(path).drop("timestamp_day")
    writing = rows.write.format("penstock_lake").mode("append").option("partitionBy", "day(timestamp)")
    writing.options(archive="true", url=server.url).save(copy)
    copied = Table(Location.of(copy)).snapshot()
    assert copied is not None
    for partition in range(2):
        found = copied.position(str(topic), partition)
        assert found is not None
        assert not found.dense
        assert found.end <= ends[partition]
    assert run_archive(spark, ArchiveSpec(server=spec.server, topics=spec.topics, table=copy)).rows == 50

    target = new_topic(client, 0)
    replay = ReplaySpec(
        server=Access(url=server.url), table=path, topic=str(target), id=uuid4().hex, rows_max=40
    )
    assert run_replay(spark, replay).rows == 200
    for _ in range(2):
        run_replay(spark, replay)
        there = read(spark, server, target).collect()
        assert sorted(int(row.value) for row in there) == list(range(200))
