"""Spark before a real Kafka: topics as tables, as streams and as sinks that write exactly once.

Run as a program, this file is a server that is killed around the commit of a batch.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.conftest import CONNECTOR, spark  # noqa: F401 - the one session of a run
from tests.support.kafka_broker import KafkaCluster
from tests.support.pulsar_broker import free_ports

from penstock.broker.settings import ClusterSettings
from penstock.client.http import HttpClient
from penstock.codec import codec_for
from penstock.model.hashing import murmur2
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.redrive import Choice, Report, run_redrive
from penstock.pipeline.spec.parse import load_spec
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


def transact(
    cluster: KafkaCluster, topic: TopicName, first: int, count: int, *, commit: bool, partitions: int = 2
) -> None:
    """Write records in a transaction, as any producer of Kafka's does: its marker takes an offset of each partition."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": uuid4().hex, "linger.ms": 5}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(first, first + count):
        producer.produce(topic.local, str(number).encode(), partition=number % partitions)
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
    at = int(since.timestamp() * 1000)
    late = read(spark, server, topic, startingTimestamp=at).collect()
    # The marker of a transaction has the broker's time, which may be later than that of messages behind it.
    assert {(row.partition, row.offset) for row in late} >= {
        (row.partition, row.offset) for row in rows if row.timestamp >= since
    }
    early = read(spark, server, topic, endingTimestamp=at).collect()
    assert sorted(int(row.value) for row in early + late) == list(range(200))


def test_a_time_is_a_position_where_times_do_not_rise(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    kafka_cluster: KafkaCluster,
) -> None:
    topic = new_topic(client, 1)
    begun = time.time_ns() // 1_000_000 - 60_000
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap})

    def produce(*seconds: int) -> None:
        for after in seconds:
            producer.produce(topic.local, str(after).encode(), timestamp=begun + 1000 * after, partition=0)
        producer.flush(60)

    def found(**options: object) -> list[int]:
        return [int(row.value) for row in read(spark, server, topic, **options).collect()]

    produce(0, 3, 1, 5, 2)
    assert found(startingTimestamp=begun + 3000) == [3, 1, 5, 2]
    assert found(endingTimestamp=begun + 3000) == [0]
    assert found(startingTimestamp=begun + 4000) == [5, 2]
    transact(kafka_cluster, topic, 900, 2, commit=False, partitions=1)  # its marker is of now
    produce(6, 8)
    assert found(startingTimestamp=begun + 8000)[-1] == 8
    assert found(endingTimestamp=begun + 8000) + found(startingTimestamp=begun + 8000) == [
        0,
        3,
        1,
        5,
        2,
        6,
        8,
    ]


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
        assert query.awaitTermination(300)
        return [dict(each) for each in query.recentProgress if each["numInputRows"]]

    publish(client, topic, 0, 400)
    transact(kafka_cluster, topic, 900, 50, commit=False)
    assert len(follow(maxBytesPerTrigger=5000)) > 1
    publish(client, topic, 400, 100)
    assert len(follow(maxOffsetsPerTrigger=60)) >= 2
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.text) for row in rows) == list(range(500))


def test_rows_are_written_by_schema_and_at_least_once_where_asked(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
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
    assert "is written at least once" not in capfd.readouterr().err
    rows = read(spark, server, topic, value_decode="struct", include="schema_version").collect()
    assert sorted((row.value.id, row.value.item) for row in rows) == [(n, f"i{n}") for n in range(300)]
    assert {row.schema_version for row in rows} == {0}
    target.option("delivery", "at_least_once").mode("append").save()
    assert read(spark, server, topic).count() == 600


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_keys_have_the_partitions_that_native_producers_give_them(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    delivery: str,
) -> None:
    """Texts, and bytes that are none, which go out as base64 and are bytes again in Kafka."""
    topic = new_topic(client, 5)
    for key in ("concat('order-', id)", "unhex(concat('FF', hex(id)))"):
        rows = spark.range(0, 40, 1, 2).selectExpr(f"{key} AS key", "string(id) AS value")
        target = rows.write.format("penstock").option("url", server.url).option("topic", str(topic))
        target.option("delivery", delivery).mode("append").save()
    found = read(spark, server, topic).collect()
    assert len({bytes(row.key) for row in found}) == 80
    for row in found:
        assert row.partition == murmur2(bytes(row.key)) % 5


def test_a_stream_is_written_exactly_once(
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Each task fails once after it staged, and a batch is run again that was committed: no row is there twice."""
    source, target = new_topic(client, 1), new_topic(client, 2)
    publish(client, source, 0, 300)

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails after its last row")

    def copy() -> None:
        frame = spark.readStream.format("penstock").option("url", server.url)
        frame = frame.option("subscribe", str(source)).option("startingOffsets", "earliest").load()
        rows = frame.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        rows = rows.mapInArrow(fail_once, "key string, value string")
        writer = rows.writeStream.format("penstock").option("url", server.url).option("topic", str(target))
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)

    copy()
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()  # the driver was killed after the commit, and before it wrote that down
    copy()
    rows = read(spark, server, target).collect()
    assert sorted(int(row.value) for row in rows) == list(range(300))
    assert len({(row.partition, row.offset) for row in rows}) == 300


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_server_is_killed_around_a_commit(
    kafka_cluster: KafkaCluster,
    server: Address,
    client: HttpClient,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
    when: str,
) -> None:
    """Another one comes to its place, and answers the writer that asks again."""
    target = new_topic(client, 2)
    port = free_ports(1)[0]
    addresses = ["--http", f"127.0.0.1:{port}", "--pulsar", "127.0.0.1:0"]
    serve = ["serve", "--data", str(tmp_path), *addresses, "--engine", kafka_cluster.service_url]
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    processes: list[subprocess.Popen[bytes]] = []

    def start(*program: str) -> None:
        command = [sys.executable, *program, *serve]
        processes.append(
            subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE)
        )

    def follow() -> None:
        processes[0].wait()
        start("-m", "penstock")

    start(__file__, when, target.local)
    dying = processes[0]
    assert dying.stdout is not None
    assert dying.stdout.readline(), "it is ready"
    thread = threading.Thread(target=follow)
    thread.start()
    try:
        rows = spark.range(0, 200, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
        writer = rows.write.format("penstock").option("url", f"http://127.0.0.1:{port}")
        writer.option("topic", str(target)).mode("append").save()
    finally:
        died = dying.poll()
        dying.kill()
        thread.join()
        processes[1].terminate()
        for process in processes:
            process.communicate()
    assert died == -signal.SIGKILL
    found = read(spark, server, target).collect()
    assert sorted(int(row.value) for row in found) == list(range(200))


def serve_and_die(when: str, topic: str, arguments: list[str]) -> None:
    from penstock.cli import main
    from penstock.engines.kafka.driver.transactions import Transaction

    commit = Transaction.commit

    async def die(self: Transaction) -> None:
        ours = any(at[0] == topic for at in self.stored)
        if when == "after" or not ours:
            await commit(self)
        if ours:
            os.kill(os.getpid(), signal.SIGKILL)

    Transaction.commit = die  # type: ignore[method-assign]
    main(arguments)


if __name__ == "__main__":
    serve_and_die(sys.argv[1], sys.argv[2], sys.argv[3:])


FOREIGN = """
name = "{name}"
dead_letters = "{name}-dead"
[sources.orders]
format = "kafka"
options = {{ "kafka.bootstrap.servers" = "{bootstrap}", subscribe = "{name}", startingOffsets = "earliest" }}
decode = "flat"
reader_schema = '''avro:{schema}'''
on_bad_value = "dead_letter"
expect = [{{ name = "small", predicate = "id IS NULL OR id < 90", action = "dead_letter" }}]
[[steps]]
name = "texts"
sql = "SELECT key, concat(id, ' ', item) AS value FROM orders"
[sinks.topic]
input = "texts"
topic = "{name}-topic"
key = "key"
[sinks.kafka]
input = "texts"
format = "kafka"
options = {{ "kafka.bootstrap.servers" = "{bootstrap}", topic = "{name}-foreign" }}
"""


@pytest.mark.skipif(
    not CONNECTOR.exists(), reason="Spark's Kafka connector is not there: scripts/kafka.sh fetch"
)
def test_a_declared_pipeline_reads_and_writes_kafka_by_sparks_connector(
    server: Address,
    client: HttpClient,
    kafka_cluster: KafkaCluster,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    name = f"kf-foreign-{uuid4().hex[:12]}"
    for suffix in ("", "-topic", "-foreign", "-dead"):
        client.create_topic(TopicName.parse(name + suffix), 2)
    codec = codec_for(SchemaInfo(SchemaType.AVRO, SCHEMA["schema"].encode()))  # type: ignore[union-attr]
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap})

    def produce(numbers: range) -> None:
        for n in numbers:
            producer.produce(name, codec.encode({"id": n, "item": f"i{n}"}), str(n))
        assert producer.flush(60) == 0

    produce(range(100))
    producer.produce(name, b"\xff", "broken")
    assert producer.flush(60) == 0
    file = tmp_path / "p.toml"
    file.write_text(FOREIGN.format(name=name, bootstrap=kafka_cluster.bootstrap, schema=SCHEMA["schema"]))
    spec = load_spec(file, url=server.url, state=tmp_path / "state")
    for more in (range(0), range(20, 30)):  # the second run goes on at Kafka's offsets
        produce(more)
        assert Pipeline(spec, spark).start(once=True).await_termination(500)
    numbers = [*range(90), *range(20, 30)]
    for suffix in ("-topic", "-foreign"):
        reader = spark.read.format("penstock").option("url", server.url).option("subscribe", name + suffix)
        rows = reader.load().collect()
        assert sorted(bytes(row.value) for row in rows) == sorted(f"{n} i{n}".encode() for n in numbers)
        assert all(bytes(row.value).startswith(bytes(row.key) + b" ") for row in rows)
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", f"{name}-dead")
    letters = {bytes(row.key): row for row in reader.option("include", "properties").load().collect()}
    assert sorted(letters) == [*(str(n).encode() for n in range(90, 100)), b"broken"]
    assert bytes(letters[b"95"].value) == codec.encode({"id": 95, "item": "i95"})
    assert letters[b"broken"].properties["x-dlq-topic"] == name
    # Redriven they would go into a topic of the server that has the name of Kafka's.
    assert run_redrive(spec, spark, Choice()) == Report(0, 11)
