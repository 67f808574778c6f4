"""Topics read as tables by a real Spark session."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.topics import TopicServer
from tests.support.entries import TIME, batch, lone
from tests.support.fault_proxy import FaultProxy

Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, server: TopicServer) -> Read:
    def read(**options: object) -> DataFrame:
        reader = spark.read.format("penstock").option("url", server.url)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return read


def fill(server: TopicServer, topic: str, count: int, size: int = 10, partition: int = 0) -> None:
    """`count` batches of `size` messages `partition:n`, each batch published a second after the one before."""
    entries = []
    for n in range(count):
        messages = [
            {"payload": b"%d:%d" % (partition, n * size + i), "partition_key": f"k{i}"} for i in range(size)
        ]
        entries.append(batch(messages, publish_time=TIME + n * 1000, sequence_id=n * size))
    server.append(topic, *entries, partition=partition)


def offsets(frame: DataFrame) -> list[tuple[str, int, int]]:
    rows = frame.select("topic", "partition", "offset").collect()
    return sorted((row.topic.rsplit("/", 1)[1], row.partition, row.offset) for row in rows)


def test_it_is_found_by_itself_and_reads_all_columns(server: TopicServer, read: Read) -> None:
    server.create("t")
    server.append("t", batch([{"payload": b"a", "partition_key": "k"}, {"payload": b"b"}]))
    server.append("t", lone(b"c", partition_key="x", codec=3))
    frame = read(subscribe="t")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    rows = sorted(frame.collect(), key=lambda row: row.offset)
    assert [(r.key, r.value, r.offset) for r in rows] == [(b"k", b"a", 0), (None, b"b", 1), (b"x", b"c", 2)]
    assert {r.topic for r in rows} == {"persistent://public/default/t"}
    assert {(r.partition, r.timestampType) for r in rows} == {(0, 0)}
    seconds = frame.selectExpr("unix_millis(timestamp) AS ms").first()
    assert seconds is not None
    assert seconds.ms == TIME


def test_included_columns(server: TopicServer, read: Read) -> None:
    server.create("t")
    message = {
        "payload": b"a",
        "properties": {"x": "1", "y": ""},
        "event_time": TIME - 1,
        "ordering_key": b"o",
    }
    server.append(
        "t", batch([message, {"payload": b"b"}], sequence_id=7, schema_version=(3).to_bytes(8, "big"))
    )
    server.append("t", lone(b"c", deliver_at_time=TIME + 5))
    names = (
        "properties,event_time,message_id,producer_name,sequence_id,schema_version,ordering_key,deliver_at"
    )
    frame = read(subscribe="t", include=names)
    assert frame.columns[7:] == names.split(",")
    first, second, third = sorted(frame.collect(), key=lambda row: row.offset)
    assert first.properties == {"x": "1", "y": ""}
    assert second.properties == {}
    assert first.event_time is not None
    assert second.event_time is None
    assert (first.sequence_id, second.sequence_id) == (7, 8)
    assert (first.schema_version, third.schema_version) == (3, None)
    assert (first.ordering_key, second.ordering_key) == (b"o", None)
    assert first.producer_name == "p"
    assert first.message_id != second.message_id
    assert third.deliver_at is not None
    assert first.deliver_at is None


def test_partitions_splits_and_counts(server: TopicServer, read: Read) -> None:
    server.create("t", 3)
    for partition in range(3):
        fill(server, "t", 20, 10, partition)
    frame = read(subscribe="t", maxRecordsPerPartition=33)
    assert frame.rdd.getNumPartitions() == 21
    assert offsets(frame) == [("t", p, o) for p in range(3) for o in range(200)]
    values = {(r.partition, r.offset): bytes(r.value) for r in frame.collect()}
    assert all(value == b"%d:%d" % at for at, value in values.items())
    assert read(subscribe="t", minPartitions=8).rdd.getNumPartitions() >= 8


def test_several_topics_patterns_and_assignments(server: TopicServer, read: Read) -> None:
    server.create("flights-1", 2)
    server.create("flights-2")
    server.create("other")
    fill(server, "flights-1", 1, 3, 0)
    fill(server, "flights-1", 1, 2, 1)
    fill(server, "flights-2", 1, 1)
    fill(server, "other", 1, 1)
    assert read(subscribe="flights-2, persistent://public/default/other").count() == 2
    assert read(subscribePattern="flights-.*").count() == 6
    assert read(subscribePattern="public/default/f.*2").count() == 1
    assert read(subscribePattern="none.*").count() == 0
    assert offsets(read(assign='{"flights-1": [1]}')) == [("flights-1", 1, 0), ("flights-1", 1, 1)]
    assert read(subscribe="flights-1-partition-0").count() == 3


def test_offsets_and_times(server: TopicServer, read: Read) -> None:
    server.create("t", 2)
    fill(server, "t", 5, 10, 0)
    fill(server, "t", 5, 10, 1)
    some = read(
        subscribe="t",
        startingOffsets=json.dumps({"t": {"0": 13, "1": -1}}),
        endingOffsets=json.dumps({"t": {"0": 27, "1": -1}}),
    )
    assert offsets(some) == [("t", 0, o) for o in range(13, 27)]
    timed = read(subscribe="t", startingTimestamp=TIME + 1000, endingTimestamp=TIME + 3000)
    assert offsets(timed) == [("t", p, o) for p in range(2) for o in range(10, 30)]
    assert read(subscribe="t", startingOffsets="latest").count() == 0


def test_an_empty_topic(server: TopicServer, read: Read) -> None:
    server.create("t")
    assert read(subscribe="t").collect() == []


def test_sql(spark: SparkSession, server: TopicServer) -> None:
    server.create("t")
    fill(server, "t", 3, 4)
    spark.sql(
        f"CREATE TABLE messages USING penstock OPTIONS (url '{server.url}', subscribe 't', include 'event_time')"
    )
    try:
        counted = spark.sql(
            "SELECT count(*) AS n, max(offset) AS last FROM messages WHERE offset >= 2"
        ).first()
        assert counted is not None
        assert (counted.n, counted.last) == (10, 11)
        text = spark.sql("SELECT CAST(value AS STRING) AS text FROM messages WHERE offset = 5").first()
        assert text is not None
        assert text.text == "0:5"
    finally:
        spark.sql("DROP TABLE messages")


def test_broken_connections_are_resumed(server: TopicServer, read: Read) -> None:
    server.create("t")
    fill(server, "t", 300, 10)
    with FaultProxy(server.port) as proxy:
        cuts = [proxy.cut_body("GET /topics/.*/messages", size) for size in (0, 5000, 10, 20_000)]
        assert offsets(read(url=proxy.url, subscribe="t")) == [("t", 0, o) for o in range(3000)]
        for cut in cuts:
            cut.wait()


def test_lost_data_is_said(server: TopicServer, read: Read) -> None:
    server.create("t")
    fill(server, "t", 10, 10)
    start = json.dumps({"t": {"0": 0}})
    server.trim("t", 40)
    with pytest.raises(PySparkException, match="offset 0 is asked for, but the log begins at 40"):
        read(subscribe="t", startingOffsets=start).count()
    assert read(subscribe="t", startingOffsets=start, failOnDataLoss="false").count() == 60
    assert read(subscribe="t").count() == 60


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "t", "subscribes": "u"}, "unknown option subscribes"),
        ({}, "subscribe, subscribePattern and assign is needed"),
        ({"subscribe": "t", "include": "headers"}, "option include: no column 'headers'"),
        ({"subscribe": "t", "startingOffsets": "first"}, "option startingOffsets"),
        ({"subscribe": "t", "minPartitions": "many"}, "option minPartitions: 'many'"),
        ({"subscribe": "none"}, "topic persistent://public/default/none does not exist"),
        ({"subscribe": "t", "startingOffsets": '{"u": {"0": 1}}'}, "is not part of the query"),
    ],
)
def test_bad_options(server: TopicServer, read: Read, options: dict[str, str], said: str) -> None:
    server.create("t")
    with pytest.raises(PySparkException, match=said):
        read(**options).count()


def test_a_server_that_is_not_there(spark: SparkSession) -> None:
    reader = spark.read.format("penstock").option("url", "http://127.0.0.1:9").option("subscribe", "t")
    with pytest.raises(PySparkException, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        reader.load().count()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, server: TopicServer) -> None:
    server.create("t")
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", "t").schema("a int")
    with pytest.raises(PySparkException, match="leave it out"):
        reader.load().count()


def test_times_are_utc(server: TopicServer, read: Read) -> None:
    server.create("t")
    server.append("t", lone(b"", publish_time=0))
    table = read(subscribe="t").toArrow()
    assert table["timestamp"].to_pylist() == [datetime(1970, 1, 1, tzinfo=UTC)]


def test_queries_of_one_frame_have_their_own_filters(server: TopicServer, read: Read) -> None:
    """Spark keeps what a source planned for the filters of the first one."""
    server.create("filtered")
    fill(server, "filtered", 2)
    frame = read(subscribe="filtered")
    few = [frame.where("offset < 3").count() for _ in range(2)]
    assert (few, frame.count(), frame.where("offset < 7").count()) == ([3, 3], 20, 7)


def test_filters_are_pushed_down(
    spark: SparkSession, server: TopicServer, read: Read, capsys: pytest.CaptureFixture[str]
) -> None:
    server.create("pushed", 3)
    for partition in range(3):
        fill(server, "pushed", 4, partition=partition)
    where = f"partition IN (0, 2) AND offset >= 5 AND offset < 25 AND timestamp >= timestamp_millis({TIME + 1000})"
    pushed = read(subscribe="pushed", pushFilters="true").where(where)
    plan = pushed._jdf.queryExecution().executedPlan().toString()
    pushed.explain("formatted")
    shown = capsys.readouterr().out
    # Spark does not apply again what the source applies.
    assert not re.search(r"\bFilter\b", plan)
    [line] = [line for line in shown.splitlines() if line.startswith("PushedFilters")]
    assert all(name in line for name in ("partition", "offset", "timestamp"))
    assert offsets(pushed) == [("pushed", number, at) for number in (0, 2) for at in range(10, 25)]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        unpushed = read(subscribe="pushed", pushFilters="true").where(where)
        assert re.search(r"\bFilter\b", unpushed._jdf.queryExecution().executedPlan().toString())
        assert offsets(unpushed) == offsets(pushed)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
