"""Topics read as streams by a real Spark session."""

import json
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.pipeline.fake import TIME, FakeServer, batch

WAIT_S = 250

Row = tuple[str, int, int]


class Stream:
    """Queries over one server, and what they read: batch by batch, in memory of the tests."""

    def __init__(self, spark: SparkSession, server: FakeServer, folder: Path) -> None:
        self._spark = spark
        self._server = server
        self._folder = folder
        self._news = threading.Condition()
        self.batches: dict[int, list[Row]] = {}
        self.queries: list[StreamingQuery] = []
        self.fail_in: int | None = None

    def frame(self, **options: object) -> DataFrame:
        reader = self._spark.readStream.format("penstock").option("url", self._server.url)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        if self.fail_in == number:
            raise RuntimeError("told to fail")
        with self._news:
            self.batches[number] = sorted((r.topic.rsplit("/", 1)[1], r.partition, r.offset) for r in rows)
            self._news.notify_all()

    def start(self, *, checkpoint: str = "c", now: bool = False, **options: object) -> StreamingQuery:
        writer = self.frame(**options).writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._folder / checkpoint))
        query = (writer.trigger(availableNow=True) if now else writer).start()
        self.queries.append(query)
        return query

    def run(self, **options: object) -> StreamingQuery:
        """What is available now."""
        query = self.start(now=True, **options)
        assert query.awaitTermination(WAIT_S)
        return query

    def wait(self, done: Callable[[], bool]) -> None:
        with self._news:
            assert self._news.wait_for(done, WAIT_S), self.batches

    @property
    def rows(self) -> list[Row]:
        return sorted(row for rows in self.batches.values() for row in rows)

    def close(self) -> None:
        for query in self.queries:
            query.stop()


@pytest.fixture
def stream(spark: SparkSession, server: FakeServer, tmp_path: Path) -> Iterator[Stream]:
    made = Stream(spark, server, tmp_path)
    yield made
    made.close()


def fill(server: FakeServer, topic: str, count: int, size: int = 10, partition: int = 0) -> None:
    """`count` batches of `size` messages."""
    for n in range(count):
        server.append(
            topic, batch([{"payload": b"%d" % n}] * size, publish_time=TIME + n), size, partition, TIME + n
        )


def all_of(topic: str, *counts: int) -> list[Row]:
    return [(topic, p, o) for p, count in enumerate(counts) for o in range(count)]


def ends(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    assert progress is not None
    found: dict[str, Any] = json.loads(progress["sources"][0]["endOffset"])
    return found


def test_what_is_available_now_in_limited_batches(server: FakeServer, stream: Stream) -> None:
    server.create("t", 2)
    fill(server, "t", 30, partition=0)
    fill(server, "t", 3, partition=1)
    query = stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=100, subscription="s")
    assert stream.rows == all_of("t", 300, 30)
    assert [len(rows) for rows in stream.batches.values()] == [100, 100, 100, 30]
    assert all({p for _, p, _ in rows} == {0, 1} for rows in stream.batches.values()), "no partition starves"
    assert ends(query)["offsets"] == {"persistent://public/default/t": {"0": 300, "1": 30}}
    # The subscription has come to the very end, though Spark never commits the last batch to the source.
    assert server.cursors == {("s", "t", 0): 300, ("s", "t", 1): 30}
    # A second run goes on where the first one ended.
    fill(server, "t", 1, partition=1)
    stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=100, subscription="s")
    assert stream.rows == all_of("t", 300, 40)


def test_available_now_ends_though_producers_go_on(server: FakeServer, stream: Stream) -> None:
    server.create("t")
    fill(server, "t", 20)
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            fill(server, "t", 1)
            over.wait(0.005)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        query = stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=50)
    finally:
        over.set()
        producer.join()
    first = len(stream.rows)
    assert stream.rows == all_of("t", first)
    assert 200 <= first < server.latest("t", 0)
    assert ends(query)["offsets"] == {"persistent://public/default/t": {"0": first}}
    stream.run(subscribe="t")
    assert stream.rows == all_of("t", server.latest("t", 0))


def test_a_running_query_follows_topics_and_partitions_that_appear(
    server: FakeServer, stream: Stream
) -> None:
    server.create("flights-1", 1)
    fill(server, "flights-1", 2)
    stream.start(subscribePattern="flights-.*", subscription="s")
    stream.wait(lambda: 0 in stream.batches)  # begun, at the latest
    assert stream.rows == []
    fill(server, "flights-1", 1)
    stream.wait(lambda: len(stream.rows) == 10)
    server.grow("flights-1", 2)
    fill(server, "flights-1", 1, 5, partition=1)
    server.create("flights-2")
    fill(server, "flights-2", 1, 3)
    server.create("other")
    fill(server, "other", 1)
    wanted = [("flights-1", 0, o) for o in range(20, 30)] + [("flights-1", 1, o) for o in range(5)]
    wanted += all_of("flights-2", 3)
    stream.wait(lambda: len(stream.rows) >= len(wanted))
    assert stream.rows == wanted
    followed = {("s", "flights-1", 0): 30, ("s", "flights-1", 1): 5, ("s", "flights-2", 0): 3}
    stream.queries[0].processAllAvailable()
    assert server.cursors == followed


def test_a_batch_is_run_again_as_it_was(server: FakeServer, stream: Stream) -> None:
    server.create("t", 1)
    fill(server, "t", 10)
    stream.run(subscribe="t", startingOffsets="earliest")
    fill(server, "t", 10)
    stream.fail_in = 1
    with pytest.raises(StreamingQueryException, match="told to fail"):
        stream.run(subscribe="t", maxOffsetsPerTrigger=60)
    # Since then there are more messages, partitions and limits; the batch that failed is what it was.
    stream.fail_in = None
    server.grow("t", 3)
    fill(server, "t", 2, partition=2)
    fill(server, "t", 1)
    stream.run(subscribe="t", maxOffsetsPerTrigger=1000)
    assert stream.batches[1] == [("t", 0, o) for o in range(100, 160)]
    assert stream.rows == all_of("t", 210, 0, 20)


def test_the_first_batch_too(server: FakeServer, stream: Stream) -> None:
    """Spark asks again where a query begins that has not finished a batch: by now `latest` is later."""
    server.create("t")
    fill(server, "t", 1)
    stream.fail_in = 0
    query = stream.start(subscribe="t", subscription="s")
    with pytest.raises(StreamingQueryException, match="told to fail"):
        query.awaitTermination(WAIT_S)
    fill(server, "t", 5)
    stream.fail_in = None
    stream.run(subscribe="t", subscription="s")
    assert stream.rows == [("t", 0, o) for o in range(10, 60)]
    assert server.cursors == {("s", "t", 0): 60}


def test_bytes(server: FakeServer, stream: Stream) -> None:
    server.create("t", 2)
    fill(server, "t", 40, partition=0)
    fill(server, "t", 10, partition=1)
    entry = len(server.logs["t"][0][0][3])
    stream.run(subscribe="t", startingOffsets="earliest", maxBytesPerTrigger=entry * 20)
    assert stream.rows == all_of("t", 400, 100)
    sizes = [len(rows) for rows in stream.batches.values()]
    assert max(sizes) <= 200
    assert len(sizes) == 3
    # Both limits: the stricter counts.
    stream.batches.clear()
    options = {"maxBytesPerTrigger": entry * 20, "maxOffsetsPerTrigger": 250}
    stream.run(checkpoint="d", subscribe="t", startingOffsets="earliest", **options)
    assert max(len(rows) for rows in stream.batches.values()) <= 200
    assert stream.rows == all_of("t", 400, 100)


def test_retention_that_overtook_the_query(server: FakeServer, stream: Stream) -> None:
    server.create("t")
    fill(server, "t", 10)
    stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=50)
    fill(server, "t", 10)
    server.trim("t", 150)
    with pytest.raises(StreamingQueryException, match=r"partition 0: offsets 100 to 149 are gone"):
        stream.run(subscribe="t")
    assert stream.rows == all_of("t", 100), "nothing was skipped"
    stream.run(subscribe="t", failOnDataLoss="false", maxOffsetsPerTrigger=20)
    assert stream.rows == [("t", 0, o) for o in (*range(100), *range(150, 200))]
    assert [len(rows) for rows in list(stream.batches.values())[-3:]] == [20, 20, 10]


def test_a_topic_made_anew(server: FakeServer, stream: Stream) -> None:
    server.create("t")
    fill(server, "t", 10)
    stream.run(subscribe="t", startingOffsets="earliest")
    server.delete("t")
    with pytest.raises(StreamingQueryException, match="the topic was deleted"):
        stream.run(subscribe="t")
    server.create("t")
    fill(server, "t", 12)
    with pytest.raises(StreamingQueryException, match="the topic was deleted and made anew"):
        stream.run(subscribe="t")
    before = dict(stream.batches)
    stream.run(subscribe="t", failOnDataLoss="false")
    assert [rows for n, rows in stream.batches.items() if n not in before] == [all_of("t", 120)]


def test_a_log_that_is_shorter_than_the_checkpoint(server: FakeServer, stream: Stream) -> None:
    server.create("t")
    fill(server, "t", 10)
    stream.run(subscribe="t", startingOffsets="earliest")
    del server.logs["t"][0][5:]  # as after a backup was put back
    with pytest.raises(StreamingQueryException, match="had come to 100, but the log ends at 50"):
        stream.run(subscribe="t")
    stream.run(subscribe="t", failOnDataLoss="false")
    fill(server, "t", 1)
    stream.run(subscribe="t", failOnDataLoss="false")
    assert Counter(stream.rows) == Counter([*all_of("t", 100), *(("t", 0, o) for o in range(50, 60))])


def test_many_topics_in_one_query(server: FakeServer, stream: Stream) -> None:
    for n in range(64):
        server.create(f"t{n:02}", n % 3)
        for partition in range(max(1, n % 3)):
            fill(server, f"t{n:02}", 1, 5, partition)
    stream.run(subscribePattern=r"t\d+", startingOffsets="earliest", maxOffsetsPerTrigger=200)
    wanted = [row for n in range(64) for row in all_of(f"t{n:02}", *[5] * max(1, n % 3))]
    assert stream.rows == wanted
    polls = [path for path in server.requests if path == "/topics/offsets"]
    assert len(polls) <= 4, "one call asks for all topics"


def test_an_idle_query_hardly_asks(server: FakeServer, stream: Stream) -> None:
    server.create("t")
    stream.start(subscribe="t")
    stream.wait(lambda: 0 in stream.batches)
    before = len(server.requests)
    assert not stream.queries[0].awaitTermination(3)
    assert len(server.requests) - before <= 8
    fill(server, "t", 1)
    stream.wait(lambda: stream.rows == all_of("t", 10))


def test_beginnings(server: FakeServer, stream: Stream) -> None:
    server.create("t", 2)
    fill(server, "t", 5, partition=0)
    fill(server, "t", 5, partition=1)
    stream.run(checkpoint="time", subscribe="t", startingTimestamp=TIME + 3)
    assert stream.rows == [("t", p, o) for p in range(2) for o in range(30, 50)]
    stream.batches.clear()
    start = json.dumps({"t": {"0": 45, "1": -1}})
    stream.run(checkpoint="json", assign='{"t": [0, 1]}', startingOffsets=start)
    assert stream.rows == [("t", 0, o) for o in range(45, 50)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets is for a batch only"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' is no whole number from 1 on"),
        ({"pollInterval": "soon"}, "option pollInterval: 'soon'"),
        ({"subscription": "a\nb"}, "option subscription: invalid subscription name"),
        ({"subscribe": "none"}, "topic persistent://public/default/none does not exist"),
        ({"startingOffsets": '{"t": {"0": 11}}'}, "option startingOffsets: .*ends at 10, before 11"),
        ({"startingOffsets": '{"u": {"0": 1}}'}, "is not part of the query"),
    ],
)
def test_bad_options(server: FakeServer, stream: Stream, options: dict[str, str], said: str) -> None:
    server.create("t")
    fill(server, "t", 1)
    with pytest.raises(PySparkException, match=said):  # as soon as it can be known: some when it is loaded
        stream.run(**{"subscribe": "t"} | options)


def test_options_of_streams_are_not_for_batches(spark: SparkSession, server: FakeServer) -> None:
    server.create("t")
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", "t")
    with pytest.raises(PySparkException, match="option subscription is for a stream only"):
        reader.option("subscription", "s").load().count()


def test_tokens_by_reference(server: FakeServer, stream: Stream, tmp_path: Path) -> None:
    server.create("t")
    fill(server, "t", 2)
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    query = stream.run(subscribe="t", startingOffsets="earliest", subscription="s", tokenFile=token)
    assert stream.rows == all_of("t", 20)
    assert {headers.get("Authorization") for headers in server.headers} == {"Bearer secret-token"}
    assert {"/topics/offsets", "/topics/cursors"} < set(server.requests)
    assert "secret-token" not in str(query.lastProgress)


def test_tls_by_reference(spark: SparkSession, tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    server = FakeServer(context)
    try:
        server.create("t")
        fill(server, "t", 2)
        stream = Stream(spark, server, tmp_path)
        stream.run(subscribe="t", startingOffsets="earliest", subscription="s", tlsCaFile=trusted)
        assert stream.rows == all_of("t", 20)
    finally:
        server.close()


def test_a_table_declared_in_sql(spark: SparkSession, server: FakeServer, tmp_path: Path) -> None:
    server.create("t")
    fill(server, "t", 3)
    options = f"url '{server.url}', subscribe 't', startingOffsets 'earliest', maxOffsetsPerTrigger '20'"
    spark.sql(f"CREATE TABLE streamed USING penstock OPTIONS ({options})")
    try:
        frame = spark.readStream.table("streamed").select("offset")
        writer = frame.writeStream.format("memory").queryName("sink")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
        assert [row.offset for row in spark.table("sink").orderBy("offset").collect()] == list(range(30))
        assert len(query.recentProgress) == 2
    finally:
        spark.sql("DROP TABLE streamed")
