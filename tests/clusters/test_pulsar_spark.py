"""Spark before a real broker: topics as tables, as streams and as sinks."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.conftest import spark  # noqa: F401 - the one session of a run
from tests.support.pulsar_broker import PulsarCluster

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
def server(pulsar_cluster: PulsarCluster) -> Iterator[Address]:
    with running(engine=pulsar_cluster.settings) as address:
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[HttpClient]:
    with HttpClient(server.url) as client:
        yield client


def new_topic(client: HttpClient, partitions: int) -> TopicName:
    name = TopicName.parse(f"spark-{uuid4().hex[:12]}")
    client.create_topic(name, partitions)
    return name


def publish(client: HttpClient, topic: TopicName, first: int, count: int) -> None:
    for start in range(first, first + count, 50):
        values = [{"key": f"k{n}", "value": str(n)} for n in range(start, start + 50)]
        client.produce(topic, values)


def read(spark: SparkSession, server: Address, topic: TopicName, **options: object) -> DataFrame:  # noqa: F811
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", str(topic))
    for name, value in options.items():
        reader = reader.option(name.replace("_", "."), str(value))
    return reader.load()


def test_a_topic_is_a_table(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    pulsar_cluster: PulsarCluster,
) -> None:
    topic = new_topic(client, 2)
    publish(client, topic, 0, 100)
    pulsar_cluster.admin("PUT", f"persistent/public/default/{topic.local}/unload")  # a second ledger
    publish(client, topic, 100, 100)
    rows = read(spark, server, topic, include="message_id", minPartitions=4).collect()
    assert sorted(int(row.value) for row in rows) == list(range(200))
    for partition in range(2):
        mine = sorted((row for row in rows if row.partition == partition), key=lambda row: row.offset)
        assert [row.offset for row in mine] == list(range(len(mine)))
        published = client.read(topic, partition, max_messages=1000)["messages"]
        assert [row.message_id for row in mine] == [one["messageId"] for one in published]


def test_a_stream_goes_on_from_its_checkpoint(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    pulsar_cluster: PulsarCluster,
    tmp_path: Path,
) -> None:
    topic = new_topic(client, 2)

    def follow(**options: object) -> list[dict[str, Any]]:
        reader = spark.readStream.format("penstock").option("url", server.url)
        reader = reader.option("subscribe", str(topic)).option("subscription", "follower")
        for name, value in {"startingOffsets": "earliest", **options}.items():
            reader = reader.option(name, str(value))
        frame = reader.load().selectExpr("CAST(value AS STRING) AS text")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(300)
        return [dict(each) for each in query.recentProgress if each["numInputRows"]]

    def backlog() -> int:
        path = f"persistent/public/default/{topic.local}/partitioned-stats"
        stats = pulsar_cluster.admin("GET", path).json()
        return int(stats["subscriptions"]["follower"]["msgBacklog"])

    publish(client, topic, 0, 400)
    assert len(follow(maxBytesPerTrigger=5000)) > 1
    assert backlog() == 0
    publish(client, topic, 400, 100)
    assert backlog() > 0
    assert len(follow(maxOffsetsPerTrigger=60)) == 2
    assert backlog() == 0
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.text) for row in rows) == list(range(500))


def test_rows_are_written_at_least_once_and_read_by_schema(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = new_topic(client, 2)
    path = f"/admin/v2/schemas/public/default/{topic.local}/schema"
    client.call("POST", path, body=SCHEMA)
    orders = spark.range(0, 300, 1, 2).selectExpr(
        "string(id) AS key", "named_struct('id', int(id), 'item', concat('i', id)) AS value"
    )
    target = orders.write.format("penstock").option("url", server.url).option("topic", str(topic))
    target.mode("append").save()
    assert "is written at least once" in capfd.readouterr().err
    rows = read(spark, server, topic, value_decode="struct", include="schema_version").collect()
    assert sorted((row.value.id, row.value.item) for row in rows) == [(n, f"i{n}") for n in range(300)]
    assert {row.schema_version for row in rows} == {0}
    with pytest.raises(Exception, match="no staged publishing"):
        target.option("delivery", "exactly_once").mode("append").save()

    copy = new_topic(client, 0)
    frame = spark.readStream.format("penstock").option("url", server.url)
    frame = frame.option("subscribe", str(topic)).option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value").writeStream.format("penstock").option("url", server.url)
    writer = writer.option("topic", str(copy)).option("checkpointLocation", str(tmp_path / "c"))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    assert read(spark, server, copy).count() == 300


class Unnumbered(BaseHTTPRequestHandler):
    """The admin REST of a cluster that does not number entries: all else is passed on."""

    admin_url = ""

    def do_GET(self) -> None:
        import httpx

        answer = httpx.get(self.admin_url + self.path, timeout=60)
        body = answer.content
        if self.path.endswith("/configuration/runtime"):
            body = json.dumps(answer.json() | {"brokerEntryMetadataInterceptors": ""}).encode()
        self.send_response(answer.status_code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_without_numbers_the_reason_is_one_sentence(
    spark: SparkSession,  # noqa: F811
    pulsar_cluster: PulsarCluster,
) -> None:
    handler = type("Handler", (Unnumbered,), {"admin_url": pulsar_cluster.admin_url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as admin:
        threading.Thread(target=admin.serve_forever, daemon=True).start()
        engine = ClusterSettings(
            url=pulsar_cluster.service_url, admin_url=f"http://127.0.0.1:{admin.server_address[1]}"
        )
        try:
            with running(engine=engine) as server:
                with pytest.raises(
                    Exception, match=r"brokerEntryMetadataInterceptors=.*AppendIndex"
                ) as caught:
                    read(spark, server, TopicName.parse("any")).collect()
                assert "PipelineError: topics cannot be read here" in str(caught.value)
        finally:
            admin.shutdown()
