"""Topics read as streams by a real Spark session."""

import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from tests.pipeline.topics import TopicServer
from tests.support.entries import TIME, batch
from tests.support.fault_proxy import FaultProxy
from tests.support.ports import kept_port
from tests.support.tls import Pki

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.credentials import Issuer
from penstock.testing.server import launch, running

WAIT_S = 250

Row = tuple[str, int, int]


class Stream:
    """Queries over one server, and what they read: batch by batch, in memory of the tests."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark = spark
        self._url = url
        self._folder = folder
        self._news = threading.Condition()
        self.batches: dict[int, list[Row]] = {}
        self.queries: list[StreamingQuery] = []
        self.fail_in: int | None = None

    def frame(self, **options: object) -> DataFrame:
        reader = self._spark.readStream.format("penstock").option("url", self._url)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def _take(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("topic", "partition", "offset").collect()
        if self.fail_in == number:
            raise RuntimeError("made to fail")
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
def stream(spark: SparkSession, server: TopicServer, tmp_path: Path) -> Iterator[Stream]:
    made = Stream(spark, server.url, tmp_path)
    yield made
    made.close()


def fill(server: TopicServer, topic: str, count: int, size: int = 10, partition: int = 0) -> None:
    """`count` batches of `size` messages."""
    entries = [batch([{"payload": b"%d" % n}] * size, publish_time=TIME + n) for n in range(count)]
    server.append(topic, *entries, partition=partition)


def produce(access: Access, count: int) -> None:
    """The same over HTTP, to `t`, for a server that admits not everyone or is restarted."""
    with HttpClient(access) as client:
        for _ in range(count):
            client.produce(TopicName.parse("t"), [{"value": "x"}] * 10)


def all_of(topic: str, *counts: int) -> list[Row]:
    return [(topic, p, o) for p, count in enumerate(counts) for o in range(count)]


def ends(query: StreamingQuery) -> dict[str, Any]:
    progress = query.lastProgress
    assert progress is not None
    found: dict[str, Any] = json.loads(progress["sources"][0]["endOffset"])
    return found


def test_what_is_available_now_in_limited_batches(server: TopicServer, stream: Stream) -> None:
    server.create("t", 2)
    fill(server, "t", 30, partition=0)
    fill(server, "t", 3, partition=1)
    query = stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=100, subscription="s")
    assert stream.rows == all_of("t", 300, 30)
    assert [len(rows) for rows in stream.batches.values()] == [100, 100, 100, 30]
    assert all({p for _, p, _ in rows} == {0, 1} for rows in stream.batches.values()), "no partition starves"
    assert ends(query)["offsets"] == {"persistent://public/default/t": {"0": 300, "1": 30}}
    # The subscription has come to the very end, though Spark never commits the last batch to the source.
    assert server.cursor("s", "t") == [300, 30]
    # A second run goes on where the first one ended.
    fill(server, "t", 1, partition=1)
    stream.run(subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=100, subscription="s")
    assert stream.rows == all_of("t", 300, 40)


def test_available_now_ends_though_producers_go_on(server: TopicServer, stream: Stream) -> None:
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
    server: TopicServer, stream: Stream
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
    stream.queries[0].processAllAvailable()
    assert server.cursor("s", "flights-1") == [30, 5]
    assert server.cursor("s", "flights-2") == [3]


def test_a_batch_is_run_again_as_it_was(server: TopicServer, stream: Stream) -> None:
    server.create("t", 1)
    fill(server, "t", 10)
    stream.run(subscribe="t", startingOffsets="earliest")
    fill(server, "t", 10)
    stream.fail_in = 1
    with pytest.raises(StreamingQueryException, match="made to fail"):
        stream.run(subscribe="t", maxOffsetsPerTrigger=60)
    # Since then there are more messages, partitions and limits; the batch that failed is what it was.
    stream.fail_in = None
    server.grow("t", 3)
    fill(server, "t", 2, partition=2)
    fill(server, "t", 1)
    stream.run(subscribe="t", maxOffsetsPerTrigger=1000)
    assert stream.batches[1] == [("t", 0, o) for o in range(100, 160)]
    assert stream.rows == all_of("t", 210, 0, 20)


def test_the_first_batch_too(server: TopicServer, stream: Stream) -> None:
    """Spark asks again where a query begins that has not finished a batch: by now `latest` is later."""
    server.create("t")
    fill(server, "t", 1)
    stream.fail_in = 0
    query = stream.start(subscribe="t", subscription="s")
    with pytest.raises(StreamingQueryException, match="made to fail"):
        query.awaitTermination(WAIT_S)
    fill(server, "t", 5)
    stream.fail_in = None
    stream.run(subscribe="t", subscription="s")
    assert stream.rows == [("t", 0, o) for o in range(10, 60)]
    assert server.cursor("s", "t") == [60]


def test_bytes(server: TopicServer, stream: Stream) -> None:
    server.create("t", 2)
    fill(server, "t", 40, partition=0)
    fill(server, "t", 10, partition=1)
    entry = len(batch([{"payload": b"0"}] * 10, publish_time=TIME))
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


def test_retention_that_overtook_the_query(server: TopicServer, stream: Stream) -> None:
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


def test_a_topic_made_anew(server: TopicServer, stream: Stream) -> None:
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


def test_a_log_that_is_shorter_than_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    with kept_port() as port:
        _shorter_than_the_checkpoint(spark, tmp_path, port)


def _shorter_than_the_checkpoint(spark: SparkSession, tmp_path: Path, port: int) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with running(data, port=port) as server:
        produce(Access(url=server.url), 5)
    shutil.copytree(data, saved)
    with running(data, port=port) as server:
        produce(Access(url=server.url), 5)
        stream = Stream(spark, server.url, tmp_path)
        stream.run(subscribe="t", startingOffsets="earliest")
    shutil.rmtree(data)
    saved.rename(data)
    with running(data, port=port) as server:
        with pytest.raises(StreamingQueryException, match="had come to 100, but the log ends at 50"):
            stream.run(subscribe="t")
        stream.run(subscribe="t", failOnDataLoss="false")
        produce(Access(url=server.url), 1)
        stream.run(subscribe="t", failOnDataLoss="false")
    assert Counter(stream.rows) == Counter([*all_of("t", 100), *(("t", 0, o) for o in range(50, 60))])


def test_many_topics_in_one_query(server: TopicServer, spark: SparkSession, tmp_path: Path) -> None:
    for n in range(64):
        server.create(f"t{n:02}", n % 3)
        for partition in range(max(1, n % 3)):
            fill(server, f"t{n:02}", 1, 5, partition)
    with FaultProxy(server.port) as proxy:
        stream = Stream(spark, proxy.url, tmp_path)
        stream.run(subscribePattern=r"t\d+", startingOffsets="earliest", maxOffsetsPerTrigger=200)
        polls = proxy.requests.count("POST /topics/offsets")
    wanted = [row for n in range(64) for row in all_of(f"t{n:02}", *[5] * max(1, n % 3))]
    assert stream.rows == wanted
    assert 0 < polls <= 4, "one call asks for all topics"


def test_an_idle_query_hardly_asks(server: TopicServer, spark: SparkSession, tmp_path: Path) -> None:
    server.create("t")
    with FaultProxy(server.port) as proxy:
        stream = Stream(spark, proxy.url, tmp_path)
        query = stream.start(subscribe="t")
        stream.wait(lambda: 0 in stream.batches)
        before = len(proxy.requests)
        assert before > 0
        assert not query.awaitTermination(3)  # time itself is the subject
        assert len(proxy.requests) - before <= 8
        fill(server, "t", 1)
        stream.wait(lambda: stream.rows == all_of("t", 10))
        stream.close()


def test_beginnings(server: TopicServer, stream: Stream) -> None:
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
def test_bad_options(server: TopicServer, stream: Stream, options: dict[str, str], said: str) -> None:
    server.create("t")
    fill(server, "t", 1)
    with pytest.raises(PySparkException, match=said):  # as soon as it can be known: some when it is loaded
        stream.run(**{"subscribe": "t"} | options)


def test_options_of_streams_are_not_for_batches(spark: SparkSession, server: TopicServer) -> None:
    server.create("t")
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", "t")
    with pytest.raises(PySparkException, match="option subscription is for a stream only"):
        reader.option("subscription", "s").load().count()


def test_tokens_by_reference(spark: SparkSession, tmp_path: Path) -> None:
    issuer = Issuer()
    token = tmp_path / "token"
    token.write_text(issuer.token("admin") + "\n")
    with running(auth=issuer.settings(super_users=("admin",))) as server:
        produce(Access(url=server.url, token_file=str(token)), 2)
        stream = Stream(spark, server.url, tmp_path)
        with pytest.raises(PySparkException, match="credentials are needed"):
            stream.run(checkpoint="none", subscribe="t", startingOffsets="earliest")
        query = stream.run(subscribe="t", startingOffsets="earliest", subscription="s", tokenFile=token)
        assert stream.rows == all_of("t", 20)
    assert token.read_text().strip() not in str(query.lastProgress)


def test_tls_by_reference(spark: SparkSession, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    files = {"cert_file": pki.cert_file, "key_file": pki.key_file}
    flags = [part for name, file in files.items() for part in ("--set", f"tls.{name}={file}")]
    with launch(tmp_path / "data", *flags, "--set", "http.tls_listen=127.0.0.1:0") as server:
        produce(Access(url=server.https, ca_file=pki.ca_file), 2)
        stream = Stream(spark, server.https, tmp_path)
        options = {"subscription": "s", "tlsCaFile": pki.ca_file}
        stream.run(subscribe="t", startingOffsets="earliest", **options)
        assert stream.rows == all_of("t", 20)


def test_a_table_declared_in_sql(spark: SparkSession, server: TopicServer, tmp_path: Path) -> None:
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
