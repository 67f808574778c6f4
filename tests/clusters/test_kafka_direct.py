"""Spark reads the brokers of a real Kafka itself (`fetch=direct`): the same rows as through the server, in every column."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from tests.clusters.test_kafka_spark import publish, transact
from tests.pipeline.conftest import spark  # noqa: F401 - the one session of a run
from tests.support.kafka_broker import KafkaCluster
from tests.support.registry_clients import Foreign, avro, encoded, framed
from tests.support.waiting import until

from penstock.broker.settings import ClusterSettings
from penstock.client.http import HttpClient
from penstock.engines.kafka.driver.ranges import LogEnds, RangeReader
from penstock.engines.kafka.driver.reader import OutOfRange
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Encryption, EncryptionKey, OutMessage
from penstock.model.names import TopicName
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.testing.server import Address, running
from penstock.wire.metadata import message_metadata

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ALL = ",".join(INCLUDABLE)


@pytest.fixture(scope="module")
def server(kafka_cluster: KafkaCluster, registry_url: str) -> Iterator[Address]:
    """With a schema registry."""
    settings = ClusterSettings(
        url=kafka_cluster.service_url,
        schema_registry=registry_url,
        documents_topic=f"__{uuid4().hex[:10]}",
    )
    with running(engine=settings) as address:
        yield address


@pytest.fixture(scope="module")
def plain_server(kafka_cluster: KafkaCluster) -> Iterator[Address]:
    """Without one: schemas are documents."""
    with running(engine=ClusterSettings(url=kafka_cluster.service_url)) as address:
        yield address


def options_of(server: Address, cluster: KafkaCluster, topic: TopicName, *, direct: bool) -> dict[str, str]:
    given = {"url": server.url, "subscribe": str(topic)}
    return given | {"fetch": "direct", "kafka.bootstrap.servers": cluster.bootstrap} if direct else given


def rows_of(
    spark: SparkSession,  # noqa: F811
    server: Address,
    cluster: KafkaCluster,
    topic: TopicName,
    *,
    direct: bool,
    **options: str,
) -> list[Any]:
    reader = spark.read.format("penstock").options(**options_of(server, cluster, topic, direct=direct))
    return ordered(reader.options(**{name.replace("_", "."): text for name, text in options.items()}).load())


def ordered(frame: DataFrame) -> list[Any]:
    """All rows, as values that can be compared, by partition and offset."""
    found = [row.asDict(recursive=True) for row in frame.collect()]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def new_topic(client: HttpClient, partitions: int = 2) -> TopicName:
    name = TopicName.parse(f"kf-direct-{uuid4().hex[:12]}")
    client.create_topic(name, partitions)
    return name


def everything(client: HttpClient, cluster: KafkaCluster, topic: TopicName) -> None:
    """What producers of the server and others leave in a topic, in and between transactions."""
    publish(client, topic, 0, 100)
    client.produce(
        topic,
        [
            {"value": "a", "key": "k", "properties": {"p": "1", "penstock-x": "2", "q": ""}},
            {"value": "b", "eventTime": 1_700_000_000_123, "properties": {"p": "ü"}},
            {"value": "c", "key": "x", "deliverAfterMs": 1},
            {"value": None, "key": "gone"},
        ],
    )
    transact(cluster, topic, 200, 40, commit=True)
    transact(cluster, topic, 900, 30, commit=False)
    sealed = OutMessage(
        payload=b"secret",
        encryption=Encryption(keys=(EncryptionKey("k", b"key"),), param=b"iv"),
    )
    entry = message_metadata(sealed, "producer", 7, 1_700_000_000_000, None)
    records: Sequence[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (None, None, []),
        (b"", b"", []),
        (b"\xff\xfe", b"not text", []),
        (b"k", b"v", [("h", None), ("h", b"\xff"), ("i", b"1")]),
        (b"k", b"v", [("penstock-version", b"99"), ("penstock-producer", b"p")]),
        (b"k", b"v", [("penstock-producer", b"p"), ("penstock-sequence-id", b"12")]),
        (b"k", b"v", [("penstock-ordering-key", b"o"), ("penstock-key", b"text")]),
        (b"a", b"secret", [("penstock-entry", entry)]),
        (b"a", b"no entry", [("penstock-entry", b"\xff")]),
        (None, b"\0\0\0\0\x63looks framed", []),
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for at, (key, value, headers) in enumerate(records):
        producer.produce(topic.local, value, key, at % 2, headers=headers, timestamp=1_700_000_000_000 + at)
    assert producer.flush(60) == 0
    publish(client, topic, 300, 50)
    transact(cluster, topic, 950, 10, commit=False)  # the log ends with records and markers of nobody's


def test_every_column_is_as_through_the_server(
    plain_server: Address,
    server: Address,
    kafka_cluster: KafkaCluster,
    spark: SparkSession,  # noqa: F811
    tmp_path: Path,
) -> None:
    for at in (plain_server, server):
        with HttpClient(at.url) as client:
            topic = new_topic(client)
            everything(client, kafka_cluster, topic)
        there = (spark, at, kafka_cluster, topic)
        expected = rows_of(*there, direct=False, include=ALL)
        assert len(expected) == 100 + 4 + 40 + 10 + 50
        assert expected[-1]["offset"] > len(expected) // 2, "there are gaps"
        assert rows_of(*there, direct=True, include=ALL) == expected
        assert rows_of(*there, direct=True, include=ALL, minPartitions="7") == expected
        middle = {str(topic): {"0": expected[40]["offset"], "1": 3}}
        end = {str(topic): {"0": expected[60]["offset"], "1": -1}}
        bounds = {"startingOffsets": json.dumps(middle), "endingOffsets": json.dumps(end)}
        assert rows_of(*there, direct=True, **bounds) == rows_of(*there, direct=False, **bounds)
        # a stream, in batches that end between offsets of records
        options = options_of(at, kafka_cluster, topic, direct=True) | {"include": ALL}
        options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
        stream = spark.readStream.format("penstock").options(**options).load()
        name = f"direct_{topic.local.replace('-', '_')}"
        query = (
            stream.writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)
        assert query.exception() is None
        assert ordered(spark.table(name)) == expected


def test_typed_values_of_several_versions(
    plain_server: Address,
    server: Address,
    kafka_cluster: KafkaCluster,
    registry_url: str,
    spark: SparkSession,  # noqa: F811
) -> None:
    """Schemas in documents, which records name in a header; and ids of a registry, in front of values and keys."""
    with HttpClient(plain_server.url) as client:
        topic = new_topic(client)
        fields = [{"name": "id", "type": "int"}, {"name": "item", "type": "string"}]
        for first, more in ((0, []), (50, [{"name": "note", "type": "string", "default": "-"}])):
            record = {"type": "record", "name": "Order", "fields": fields + more}
            values = [
                {"key": f"k{n}", "value": {"id": n, "item": "x"} | ({"note": "y"} if more else {})}
                for n in range(first, first + 50)
            ]
            client.produce(topic, values, value_schema={"type": "AVRO", "schema": json.dumps(record)})
    transact(kafka_cluster, topic, 500, 50, commit=True)
    there = (spark, plain_server, kafka_cluster, topic)
    typed = {"value_decode": "flat", "mode": "permissive", "include": "schema_version"}
    expected = rows_of(*there, direct=False, **typed)
    assert [sum(row["_error"] is None for row in expected), len(expected)] == [100, 150]
    assert rows_of(*there, direct=True, **typed) == expected

    foreign = Foreign(kafka_cluster, registry_url)
    with HttpClient(server.url) as client:
        topic = new_topic(client, 1)
        ids = [
            foreign.register(f"{topic.local}-value", avro(*names).data.decode())
            for names in ("a", "ab", "abc")
        ]
        other = foreign.register(f"{topic.local}-other", avro(*"ad").data.decode())
        key = foreign.register(f"{topic.local}-key", avro("a").data.decode())
        foreign.produce(
            topic.local,
            *(framed(ids[n % 3], encoded(avro(*"abc"[: n % 3 + 1]), a=str(n))) for n in range(30)),
            framed(other, encoded(avro(*"ad"), a="x")),
            framed(2**31 - 2, b"of no schema"),
            None,
        )
        framed_key = framed(key, encoded(avro("a"), a="key"))
        foreign.produce(topic.local, framed(ids[0], encoded(avro("a"), a="y")), None, key=framed_key)
    there = (spark, server, kafka_cluster, topic)
    raw = rows_of(*there, direct=False, include=ALL)
    versions = {row["schema_version"] for row in raw}
    assert len(versions) == 7  # three, one by its id, two of pairs, and none
    assert rows_of(*there, direct=True, include=ALL) == raw
    typed = {"value_decode": "struct", "readerSchema": "ddl:a string, b string", "mode": "permissive"}
    expected = rows_of(*there, direct=False, **typed)
    assert sum(row["value"] is not None for row in expected) >= 30
    assert rows_of(*there, direct=True, **typed) == expected


def test_compaction_is_no_loss_and_deletion_is(
    plain_server: Address,
    kafka_cluster: KafkaCluster,
    spark: SparkSession,  # noqa: F811
) -> None:
    topic = TopicName.parse(f"kf-direct-{uuid4().hex[:12]}")
    admin = AdminClient({"bootstrap.servers": kafka_cluster.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
    }
    for done in admin.create_topics([NewTopic(topic.local, 1, 1, config=config)]).values():
        done.result(60)
    producer = Producer({"bootstrap.servers": kafka_cluster.bootstrap})
    for number in range(3000):
        producer.produce(topic.local, b"%d" % number + b"x" * 1500, b"k%d" % (number % 10), 0)
        producer.poll(0)
    assert producer.flush(60) == 0
    there = (spark, plain_server, kafka_cluster, topic)
    place = topic.local, 0
    reader = RangeReader({"bootstrap.servers": kafka_cluster.bootstrap})

    def compacted() -> bool:
        return sum(len(chunk) for chunk in reader.read(place, 0, 3000)) < 2000

    until(compacted, 120)
    expected = rows_of(*there, direct=False, include=ALL)
    assert rows_of(*there, direct=True, include=ALL) == expected
    assert 10 <= len(expected) < 2000

    with HttpClient(plain_server.url) as client:
        name = new_topic(client, 1)
        publish(client, name, 0, 200)
    kafka_cluster.delete_records(name.local, 0, 120)
    place = name.local, 0
    with pytest.raises(OutOfRange):
        list(reader.read(place, 100, 200))
    assert reader.begin(place) == 120
    assert [one.offset() for chunk in reader.read(place, 120, 130) for one in chunk] == [*range(120, 130)]
    begun = time.monotonic()
    with pytest.raises(LogEnds):
        list(reader.read(place, 190, 201))
    assert time.monotonic() - begun < 60
    reader.close()


def test_mistakes_are_named(
    plain_server: Address,
    kafka_cluster: KafkaCluster,
    spark: SparkSession,  # noqa: F811
) -> None:
    with HttpClient(plain_server.url) as client:
        topic = new_topic(client, 1)
        publish(client, topic, 0, 50)
    there = (spark, plain_server, kafka_cluster, topic)
    with pytest.raises(Exception, match="No such configuration property"):
        rows_of(*there, direct=True, **{"kafka_no_such": "1"})
    with pytest.raises(Exception, match="environment variable PENSTOCK_NOT_SET is not set"):
        rows_of(*there, direct=True, **{"kafka_client_id": "env:PENSTOCK_NOT_SET"})
    with running() as embedded:
        with HttpClient(embedded.url) as client:
            client.create_topic(topic, 0)
            publish(client, topic, 0, 50)
        with pytest.raises(Exception, match="for a server before a Kafka cluster, and this one is not"):
            rows_of(spark, embedded, kafka_cluster, topic, direct=True)


def test_an_address_without_brokers_is_refused(kafka_cluster: KafkaCluster) -> None:
    reader = RangeReader({"bootstrap.servers": kafka_cluster.bootstrap})
    with pytest.raises(PenstockError) as caught:
        reader.topic_id(f"no-{uuid4().hex}")
    assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
    reader.close()
