"""Spark before a real Kafka: topics as tables, as streams and as sinks that write exactly once."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.conftest import spark  # noqa: F401 - the one session of a run
from tests.support.kafka_broker import KafkaCluster

from penstock.broker.settings import ClusterSettings
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, running

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SCHEMA = {
    "type": "AVRO",
    "schema": json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}],
        }
    ),
    "properties": {},
}


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    with running(engine=ClusterSettings(url=kafka_cluster.service_url)) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[HttpClient]:
    with HttpClient(server.url) as client:
        yield client


def new_topic(client: HttpClient, partitions: int) -> TopicName:
    name = TopicName.parse(f"kf-spark-{uuid4().hex[:12]}")
    client.create_topic(name, partitions)
    return name


def publish(client: HttpClient, topic: TopicName, first: int, count: int) -> None:
    for start in range(first, first + count, 50):
        values = [{"key": f"k{n}", "value": str(n)} for n in range(start, start + 50)]
        client.produce(topic, values)


def transact(cluster: KafkaCluster, topic: TopicName, first: int, count: int, *, commit: bool) -> None:
    """Write records in a transaction, as any producer of Kafka's does: its marker takes an offset of each partition."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": uuid4().hex, "linger.ms": 5}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(first, first + count):
        producer.produce(topic.local, str(number).encode(), partition=number % 2)
    producer.flush(60)
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def read(spark: SparkSession, server: Address, topic: TopicName, **options: object) -> DataFrame:  # noqa: F811
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", str(topic))
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    return reader.load()


def test_a_topic_with_gaps_is_a_table(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    kafka_cluster: KafkaCluster,
) -> None:
    topic = new_topic(client, 2)
    publish(client, topic, 0, 100)
    transact(kafka_cluster, topic, 100, 50, commit=True)
    transact(kafka_cluster, topic, 900, 50, commit=False)
    publish(client, topic, 150, 50)
    transact(kafka_cluster, topic, 950, 50, commit=False)
    rows = read(spark, server, topic, include="message_id", minPartitions=4).collect()
    assert sorted(int(row.value) for row in rows) == list(range(200))
    for partition in range(2):
        mine = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        published = client.read(topic, partition, max_messages=1000)["messages"]
        assert [(row.offset, row.message_id) for row in mine] == [
            (one["offset"], one["messageId"]) for one in published
        ]
        assert mine[-1].offset > len(mine), "there are gaps"
    middle = sorted(row.offset for row in rows if row.partition == 0)[70]
    bounds = {"startingOffsets": json.dumps({str(topic): {"0": middle, "1": -1}})}
    some = read(spark, server, topic, **bounds).collect()
    assert [row.offset for row in some] == sorted(
        row.offset for row in rows if row.partition == 0 and row.offset >= middle
    )
    since = max(row.timestamp for row in rows)
    late = read(spark, server, topic, startingTimestamp=int(since.timestamp() * 1000)).count()
    assert late == len(
        [row for row in rows if row.timestamp >= since.replace(microsecond=since.microsecond // 1000 * 1000)]
    )


def test_a_stream_goes_on_from_its_checkpoint(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    kafka_cluster: KafkaCluster,
    tmp_path: Path,
) -> None:
    topic = new_topic(client, 2)
    group = f"kf-{uuid4().hex[:12]}"

    def follow(**options: object) -> list[dict[str, Any]]:
        reader = spark.readStream.format("penstock").option("url", server.url)
        reader = reader.option("subscribe", str(topic)).option("subscription", group)
        for name, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(name, str(value))
        frame = reader.load().selectExpr("CAST(value AS STRING) AS text")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(120)
        return [dict(each) for each in query.recentProgress if each["numInputRows"]]

    publish(client, topic, 0, 400)
    transact(kafka_cluster, topic, 900, 50, commit=False)
    assert len(follow(maxBytesPerTrigger=5000)) > 1
    publish(client, topic, 400, 100)
    assert len(follow(maxOffsetsPerTrigger=60)) >= 2
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.text) for row in rows) == list(range(500))
