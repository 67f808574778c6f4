"""Rows written by Spark are in their topics exactly once, whatever fails on the way."""

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.pipeline.sink.writer import Identity, TopicStreamWriter, Written
from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture
def stages(server: Address) -> Iterator[Stages]:
    with Stages(Access(url=server.url)) as client:
        yield client


def write(frame: DataFrame, server: Address, **options: object) -> None:
    writer = frame.write.format("penstock").option("url", server.url).mode("append")
    for name, value in options.items():
        writer = writer.option(name.replace("_", "."), str(value))
    writer.save()


def read(spark: SparkSession, server: Address, topics: str, include: str = "") -> DataFrame:
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", topics)
    return reader.option("include", include).load()


def values(spark: SparkSession, server: Address, topic: str) -> list[str]:
    return sorted(bytes(row.value).decode() for row in read(spark, server, topic).collect())


def create(server: Address, topic: str, partitions: int = 0) -> None:
    with HttpClient(server.url) as client:
        client.create_topic(TopicName.parse(topic), partitions)


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows as they are, but the first attempt at partition 0 fails after some."""
    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        for start in range(0, batch.num_rows, 1000):
            yield batch.slice(start, 1000)
            if context.partitionId() == 0 and context.attemptNumber() == 0 and start >= 4000:
                raise RuntimeError("this attempt is meant to fail")


def rows_that_fail(spark: SparkSession, rows: int = 20_000) -> DataFrame:
    texts = spark.range(0, rows, 1, 2).selectExpr("rpad(id, 200, '.') AS value", "id % 7 AS n")
    return texts.selectExpr("value", "cast(n AS string) AS key").mapInArrow(
        failing, "value string, key string"
    )


def test_every_column_arrives(spark: SparkSession, server: Address) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000)  # noqa: DTZ001 - Spark gives times of the session's zone, UTC, so
    rows = [
        (b"one", "k", {"a": "1", "b": "ü"}, at, b"\x00o"),
        (None, None, None, None, None),
        (b"", "", {}, at, b""),
    ]
    ddl = "value binary, key string, properties map<string,string>, event_time timestamp, ordering_key binary"
    write(spark.createDataFrame(rows, ddl).coalesce(1), server, topic="columns")
    got = read(spark, server, "columns", "properties,event_time,ordering_key").orderBy("offset").collect()
    first, null, empty = got
    assert (first.value, first.key, first.properties) == (b"one", b"k", {"a": "1", "b": "ü"})
    assert (first.event_time, first.ordering_key) == (at, b"\x00o")
    assert (null.value, null.key, null.event_time, null.ordering_key) == (None, None, None, None)
    assert not null.properties
    assert (empty.value, empty.key) == (b"", b"")


def test_a_key_goes_where_other_producers_put_it(spark: SparkSession, server: Address) -> None:
    keys = [f"key-{n}-é" if n % 3 else f"key-{n}" for n in range(100)]
    create(server, "by-rest", 5)
    create(server, "by-spark", 5)
    with HttpClient(server.url) as client:
        client.produce(TopicName.parse("by-rest"), [{"key": key, "value": key} for key in keys])
    write(spark.createDataFrame([(k, k) for k in keys], "value string, key string"), server, topic="by-spark")

    def places(topic: str) -> dict[bytes, int]:
        return {bytes(row.key): row.partition for row in read(spark, server, topic).collect()}

    assert places("by-spark") == places("by-rest")
    assert len(set(places("by-spark").values())) == 5


def test_a_partition_of_its_own(spark: SparkSession, server: Address) -> None:
    create(server, "numbered", 3)
    write(spark.range(30).selectExpr("string(id) value", "int(id % 3) partition"), server, topic="numbered")
    assert all(int(r.value) % 3 == r.partition for r in read(spark, server, "numbered").collect())
    with pytest.raises(Exception, match=r"column partition: .*numbered has no partition 3; it has 3"):
        write(spark.range(1).selectExpr("string(id) value", "3 partition"), server, topic="numbered")
    assert len(values(spark, server, "numbered")) == 30


def test_many_rows_of_many_sizes_compressed(spark: SparkSession, server: Address) -> None:
    create(server, "sizes", 2)
    frame = spark.range(0, 5000, 1, 3).selectExpr("repeat(string(id), int(id % 400)) value", "string(id) key")
    write(frame, server, topic="sizes", compression="zstd")
    got = {int(r.key): bytes(r.value).decode() for r in read(spark, server, "sizes").collect()}
    assert got == {n: str(n) * (n % 400) for n in range(5000)}


def test_delayed_rows_are_delivered_later(spark: SparkSession, server: Address) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    rows = [(f"{n}", None if n % 3 else later) for n in range(9)]
    write(
        spark.createDataFrame(rows, "value string, deliver_at timestamp").coalesce(1), server, topic="later"
    )
    got = read(spark, server, "later", "deliver_at").orderBy("offset").collect()
    assert [bytes(r.value).decode() for r in got] == [f"{n}" for n in range(9)]
    assert [r.deliver_at is not None for r in got] == [n % 3 == 0 for n in range(9)]
    before = time.time()
    write(spark.range(1).selectExpr("string(id) value", "60000 deliver_after_ms"), server, topic="after")
    (row,) = read(spark, server, "after", "deliver_at").collect()
    assert 55 < row.deliver_at.replace(tzinfo=UTC).timestamp() - before < 120


def test_a_task_that_fails_in_the_middle_leaves_nothing_behind(
    spark: SparkSession, server: Address, stages: Stages
) -> None:
    write(rows_that_fail(spark), server, topic="retried", writer="retries", batch=0)
    got = values(spark, server, "retried")
    assert got == sorted(str(n).ljust(200, ".") for n in range(20_000))
    status = stages.status("retries")
    assert status["targets"][0]["batch"] == 0
    assert status["staged"] == []


def test_several_topics_in_one_commit_or_in_none(
    spark: SparkSession, server: Address, stages: Stages
) -> None:
    frame = spark.range(0, 3000, 1, 2).selectExpr("string(id) value", "concat('fan-', id % 3) topic")
    write(frame, server, writer="fan", batch=0)
    assert [len(values(spark, server, f"fan-{n}")) for n in range(3)] == [1000] * 3
    (target,) = stages.status("fan")["targets"]
    assert (target["batch"], target["messages"]) == (0, 3000)
    with HttpClient(server.url) as client:
        client.call("POST", "/admin/v2/persistent/public/default/fan-2/terminate")
    with pytest.raises(Exception, match="fan-2 is terminated"):
        write(frame, server, writer="fan", batch=1)
    assert [len(values(spark, server, f"fan-{n}")) for n in range(3)] == [1000] * 3


def test_a_batch_that_is_named_is_written_once(spark: SparkSession, server: Address) -> None:
    def named(batch: int, rows: int) -> None:
        frame = spark.range(rows).selectExpr(f"concat('{batch}-', id) value")
        write(frame, server, topic="named", writer="job", batch=batch)

    for batch, rows in ((0, 10), (0, 10), (1, 5), (1, 5)):
        named(batch, rows)
    with pytest.raises(Exception, match="batch 0 is below it"):
        named(0, 10)
    assert Counter(v[0] for v in values(spark, server, "named")) == {"0": 10, "1": 5}
    write(spark.range(3).selectExpr("string(id) value"), server, topic="unnamed")
    write(spark.range(3).selectExpr("string(id) value"), server, topic="unnamed")
    assert len(values(spark, server, "unnamed")) == 6, "writes without a name are writes of their own"


def test_what_cannot_be_written_is_told_in_a_sentence(spark: SparkSession, server: Address) -> None:
    frame = spark.range(3).selectExpr("string(id) value")
    for options, message in (
        ({"topic": "x", "colour": "red"}, "unknown option colour"),
        ({}, "option topic or a column topic is needed"),
        ({"topic": "x", "delivery": "never"}, "option delivery: 'never'"),
        ({"topic": "pubic/defalt/x"}, "there is no namespace pubic/defalt"),
        ({"topic": "x-partition-7"}, "topic .*x-partition-7 does not exist"),
    ):
        with pytest.raises(Exception, match=message):
            write(frame, server, **options)
    with pytest.raises(Exception, match="cannot be reached"):
        write(frame, Address("http://127.0.0.1:9"), topic="x")
    with pytest.raises(Exception, match="a topic is not overwritten"):
        frame.write.format("penstock").option("url", server.url).option("topic", "x").mode("overwrite").save()
    with pytest.raises(Exception, match="column colour is none that a topic takes"):
        write(frame.withColumn("colour", lit("red")), server, topic="x")


# -- streams


def lines(folder: Path, file: str, *texts: str) -> None:
    """A file for the stream to find, there at once."""
    folder.mkdir(exist_ok=True)
    (folder.parent / file).write_text("\n".join(texts) + "\n")
    (folder.parent / file).rename(folder / file)


def stream(spark: SparkSession, server: Address, folder: Path, checkpoint: Path, **options: str) -> None:
    """Write what is new in the folder, one file a batch."""
    frame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    writer = frame.writeStream.format("penstock").option("url", server.url)
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, server: Address, stages: Stages, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for number in range(3):
        lines(tmp_path / "in", f"{number}.txt", *(f"{number}-{n}" for n in range(50)))
    stream(spark, server, tmp_path, checkpoint, topic="streamed")
    lines(tmp_path / "in", "3.txt", *(f"3-{n}" for n in range(50)))
    stream(spark, server, tmp_path, checkpoint, topic="streamed")
    expected = sorted(f"{file}-{n}" for file in range(4) for n in range(50))
    assert values(spark, server, "streamed") == expected

    # The driver died after its commit to the topic, before Spark took note of it: Spark runs the batch again.
    for crash in (3, 2):
        for name in (f"{crash}", f".{crash}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
    shutil.copytree(checkpoint, tmp_path / "copied")
    stream(spark, server, tmp_path, tmp_path / "copied", topic="streamed")
    assert values(spark, server, "streamed") == expected
    query = (checkpoint / "metadata").read_text().split('"id":"')[1].split('"')[0]
    status = stages.status(query)
    assert (status["targets"][0]["batch"], status["staged"]) == (3, [])


def test_a_batch_whose_commit_came_through_is_not_undone(server: Address, stages: Stages) -> None:
    from pyspark.sql.types import StructType

    from penstock.wire.batch import pack_plain
    from penstock.wire.bulk import batch_entry, pack_sections

    topic = TopicName.parse("aborted")
    stages.open_topics([topic])
    entry = batch_entry(pack_plain([b"a", b"b"]), 2, producer="p", sequence_id=0, publish_time=1)
    body = b"".join(pack_sections([(str(topic), [entry])]))
    writer = TopicStreamWriter({"url": server.url, "topic": "aborted"}, StructType().add("value", "string"))

    def written(stage: str) -> Written:
        stages.stage("query", 8, stage, 0, body)
        return Written(Identity("query", 8, 0), StageCount(stage, 1, 2, len(entry)), {str(topic): 2})

    lost = written("lost")
    writer.abort([lost, None], 8)
    assert stages.status("query")["staged"] == []
    with pytest.raises(PenstockError) as caught:
        writer.commit([lost], 8)
    assert caught.value.kind is ErrorKind.STAGE_NOT_FOUND
    won = written("won")
    writer.commit([won, None], 8)
    writer.abort([won, None], 8)
    writer.commit([won], 8)
    with HttpClient(server.url) as client:
        assert client.offsets(topic, 0).latest == 2


def test_batches_without_rows_commit_nothing(spark: SparkSession, server: Address, tmp_path: Path) -> None:
    lines(tmp_path / "in", "0.txt", "")
    frame = spark.readStream.text(str(tmp_path / "in")).where("value <> ''")
    writer = frame.writeStream.format("penstock").option("url", server.url).option("topic", "nothing")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert values(spark, server, "nothing") == []


# -- other deliveries


def test_sequence_numbers_tell_repeats_of_an_ordered_plan(spark: SparkSession, server: Address) -> None:
    create(server, "ordered", 2)
    options = {"topic": "ordered", "delivery": "sequence", "ordered": "true", "writer": "seq", "batch": 0}
    write(rows_that_fail(spark, 40_000), server, **options)
    write(rows_that_fail(spark, 40_000), server, **options)
    got = read(spark, server, "ordered").collect()
    assert sorted(bytes(r.value).decode() for r in got) == sorted(
        str(n).ljust(200, ".") for n in range(40_000)
    )


def test_at_least_once_stores_repeats(spark: SparkSession, server: Address) -> None:
    frame = spark.range(100).selectExpr("string(id) value")
    for _ in range(2):
        write(frame, server, topic="repeated", delivery="at_least_once", writer="again", batch=0)
    assert Counter(values(spark, server, "repeated")) == {str(n): 2 for n in range(100)}


# -- dead letters


def test_rejected_rows_go_to_the_dead_letters_in_the_same_commit(
    spark: SparkSession, server: Address, stages: Stages
) -> None:
    rows = [
        (f"{n}", f"k{n}", {"p": "1"}, "persistent://public/default/src", 2, 100 + n, 4, b"raw%d" % n, error)
        for n, error in enumerate([None, "broken", None, "no such field"])
    ]
    ddl = (
        "value string, key string, properties map<string,string>, topic string, partition int, offset bigint,"
        " schema_version bigint, _raw binary, _error string"
    )
    write(
        spark.createDataFrame(rows, ddl),
        server,
        topic="good",
        deadLetterTopic="bad",
        writer="letters",
        batch=7,
    )
    assert values(spark, server, "good") == ["0", "2"]
    bad = read(spark, server, "bad", "properties").collect()
    assert sorted((bytes(r.value), bytes(r.key)) for r in bad) == [(b"raw1", b"k1"), (b"raw3", b"k3")]
    properties = next(r.properties for r in bad if r.value == b"raw3")
    assert properties == {
        "p": "1",
        "x-dlq-topic": "persistent://public/default/src",
        "x-dlq-partition": "2",
        "x-dlq-offset": "103",
        "x-dlq-schema-version": "4",
        "x-dlq-error": "no such field",
        "x-dlq-query": "letters",
        "x-dlq-batch": "7",
    }
    assert stages.status("letters")["targets"][0]["messages"] == 4


# -- values with a schema


def test_columns_are_encoded_by_the_topics_schema(spark: SparkSession, server: Address) -> None:
    frame = spark.range(100).selectExpr("named_struct('n', id, 'text', string(id)) value", "string(id) key")
    write(frame, server, topic="typed")
    with HttpClient(server.url) as client:
        found = client.read(TopicName.parse("typed"), max_messages=1000)["messages"]
    assert sorted(m["value"]["n"] for m in found) == list(range(100))
    assert {m["schema_version"] for m in found} == {0}
    write(frame, server, topic="typed")
    with HttpClient(server.url) as client:
        assert client.offsets(TopicName.parse("typed"), 0).latest == 200


def test_text_takes_the_schema_of_a_topic_of_text(spark: SparkSession, server: Address) -> None:
    with HttpClient(server.url) as client:
        client.produce(TopicName.parse("texts"), [{"value": "by REST"}], schema_type="string")
    write(spark.createDataFrame([("by Spark",)], "value string"), server, topic="texts")
    with HttpClient(server.url) as client:
        found = client.read(TopicName.parse("texts"))["messages"]
    assert [(m["value"], m["schema_version"]) for m in found] == [("by REST", 0), ("by Spark", 0)]
