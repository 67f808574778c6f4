"""Key/value schemas through the sink and back, and their broken rows, which keep the key that they came with."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.client.http import HttpClient
from penstock.codec import key_value_schema
from penstock.model.names import TopicName
from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType
from penstock.pipeline.http.schemas import register
from penstock.testing.server import Address, running

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"], "default": None},
    ],
}
VALUE = SchemaInfo(SchemaType.AVRO, json.dumps(ORDER).encode())
ROWS = 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


def make(
    server: Address, name: str, key: SchemaInfo, encoding: KeyValueEncoding, partitions: int = 0
) -> None:
    with HttpClient(server.url) as client:
        client.create_topic(TopicName.parse(name), partitions)
        register(client, name, key_value_schema(key, VALUE, encoding))


def read(spark: SparkSession, server: Address, topic: str, **options: str) -> DataFrame:
    return spark.read.format("penstock").options(url=server.url, subscribe=topic, **options).load()


def write(frame: DataFrame, server: Address, topic: str, **options: str) -> None:
    frame.write.format("penstock").options(url=server.url, topic=topic, **options).mode("append").save()


def plain(row: Any) -> Any:
    return row.asDict(recursive=True) if hasattr(row, "asDict") else row


@pytest.mark.parametrize("encoding", list(KeyValueEncoding))
@pytest.mark.parametrize(
    ("key", "made", "expected"),
    [
        (SchemaInfo(SchemaType.INT32), "CAST(id % 7 AS INT)", lambda n: n % 7),
        (SchemaInfo(SchemaType.STRING), "concat('k', id % 7)", lambda n: f"k{n % 7}"),
        (VALUE, "struct(id % 7 AS id, 'x' AS to)", lambda n: {"id": n % 7, "to": "x"}),
    ],
)
def test_pairs_through_the_sink_and_back(
    spark: SparkSession,
    server: Address,
    encoding: KeyValueEncoding,
    key: SchemaInfo,
    made: str,
    expected: Any,
) -> None:
    topic = f"pairs-{encoding}-{key.type.name}"
    make(server, topic, key, encoding, partitions=3)
    columns = f"struct({made} AS key, struct(id, concat('t', id) AS to) AS value) AS value"
    write(spark.range(ROWS).selectExpr(columns), server, topic)
    rows = read(spark, server, topic, **{"value.decode": "flat"}).orderBy("id").collect()
    assert [(plain(row.key), row.id, row.to) for row in rows] == [
        (expected(n), n, f"t{n}") for n in range(ROWS)
    ]
    if encoding is KeyValueEncoding.SEPARATED:
        places = {json.dumps(plain(row.key)): row.partition for row in rows}
        assert all(places[json.dumps(plain(row.key))] == row.partition for row in rows)
    found = read(spark, server, topic, **{"value.decode": "struct"}).orderBy("value.value.id").collect()
    assert [plain(row.value) for row in found] == [
        {"key": expected(n), "value": {"id": n, "to": f"t{n}"}} for n in range(ROWS)
    ]


def test_a_key_of_its_own_is_refused(spark: SparkSession, server: Address) -> None:
    make(server, "twice", SchemaInfo(SchemaType.INT32), KeyValueEncoding.SEPARATED)
    frame = spark.range(3).selectExpr(
        "'a' AS key", "struct(CAST(id AS INT) AS key, struct(id) AS value) AS value"
    )
    with pytest.raises(PySparkException, match=r"column key is not for .*twice: its schema takes keys"):
        write(frame, server, "twice")
    assert read(spark, server, "twice").count() == 0


@pytest.mark.parametrize("decode", ["flat", "struct"])
def test_a_broken_row_keeps_the_key_that_it_came_with(
    spark: SparkSession, server: Address, decode: str
) -> None:
    topic = f"broken-{decode}"
    make(server, topic, SchemaInfo(SchemaType.INT32), KeyValueEncoding.SEPARATED)
    fine = "struct(CAST(id AS INT) AS key, struct(id, 'a' AS to) AS value) AS value"
    write(spark.range(2).coalesce(1).selectExpr(fine), server, topic)
    broken = (
        "SELECT CAST(X'FF00FF' AS BINARY) AS key, CAST(X'01' AS BINARY) AS value, map('p', '1') AS properties"
    )
    write(spark.sql(broken), server, topic)
    options = {"value.decode": decode, "mode": "dead_letter", "include": "properties"}
    rows = read(spark, server, topic, **options)
    value = ["_key", "struct(id, to) AS value"] if decode == "flat" else ["key", "value"]
    kept = ["_raw", "_error", "topic", "partition", "offset", "properties", *value]
    write(rows.selectExpr(*kept), server, f"{topic}-fine", deadLetterTopic=f"{topic}-dead")
    assert read(spark, server, f"{topic}-fine").count() == 2
    letter = read(spark, server, f"{topic}-dead", include="properties").first()
    assert letter is not None
    assert (bytes(letter.key), bytes(letter.value)) == (b"\xff\x00\xff", b"\1")
    assert letter.properties["p"] == "1"
    assert letter.properties["x-dlq-offset"] == "2"
