"""Topics archived into tables, read over both, and published again."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from tests.pipeline.topics import TopicServer
from tests.support.entries import TIME, batch, lone

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import DataLoss, PipelineError
from penstock.pipeline.http.schemas import register
from penstock.pipeline.lake import archive as archiving
from penstock.pipeline.lake.archive import ArchiveSpec, run_archive
from penstock.pipeline.lake.archive_plan import Progress
from penstock.pipeline.lake.options import snapshot_of
from penstock.pipeline.lake.replay import ORIGIN, ReplaySpec, run_replay
from penstock.pipeline.lake.replay_plan import FOLDER, ranges
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Position
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.testing.server import running

TOPIC = "persistent://public/default/t"

Archive = Callable[..., ArchiveSpec]


@pytest.fixture
def spec(server: TopicServer, tmp_path: Path) -> Archive:
    def spec(**options: object) -> ArchiveSpec:
        given = {
            "topics": ("t",),
            "table": str(tmp_path / "table"),
            "server": Access(url=server.url),
        } | options
        return ArchiveSpec(**given)  # type: ignore[arg-type]

    return spec


def fill(server: TopicServer, count: int, partition: int = 0, size: int = 10) -> None:
    """`count` batches of `size` messages, each published a second after the one before; the odd ones are of
    another schema version."""
    latest = server.latest("t", partition)
    entries = []
    for n in range(count):
        first = latest + n * size
        messages = [
            {
                "payload": b"%d:%d" % (partition, first + i),
                "partition_key": f"k{i}",
                "properties": {"n": str(first + i)},
                "event_time": TIME + first + i,
            }
            for i in range(size)
        ]
        time = TIME + first // size * 1000
        version = bytes([0] * 7 + [n % 2])
        entries.append(batch(messages, publish_time=time, sequence_id=first, schema_version=version))
    server.append("t", *entries, partition=partition)


def live(spark: SparkSession, server: TopicServer, **options: object) -> DataFrame:
    include = ",".join(INCLUDABLE)
    given = {"url": server.url, "subscribe": "t", "include": include} | options
    return spark.read.format("penstock").options(**given).load()  # type: ignore[arg-type]


def table(spark: SparkSession, spec: ArchiveSpec, **options: object) -> DataFrame:
    return spark.read.format("penstock_lake").options(**options).load(spec.table)  # type: ignore[arg-type]


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def test_the_archive_is_the_topic(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t", 2)
    fill(server, 7, 0)
    fill(server, 4, 1)
    server.append("t", lone(b"alone", properties={"a": "b"}), partition=1)
    reports: list[Progress] = []
    given = spec(rows_max=50)
    report = run_archive(spark, given, progress=reports.append)
    assert (report.rows, report.batches) == (111, 3)
    assert [each.rows_total for each in reports] == [50, 100, 111]
    original = live(spark, server)
    assert rows(table(spark, given).select(original.columns)) == rows(original)
    assert [row.timestamp_day.isoformat() for row in table(spark, given).limit(1).collect()] == ["2023-11-14"]
    now = snapshot_of(Location.of(given.table))
    assert [now.position(TOPIC, n) for n in range(3)] == [
        Position(0, 70, server.ledger("t", 0)),
        Position(0, 41, server.ledger("t", 1)),
        None,
    ]
    assert server.cursor("archive-table", "t") == [70, 41]
    assert run_archive(spark, given).rows == 0, "what it has is not read again"
    assert DeltaTable(given.table).to_pyarrow_table().num_rows == 111


def test_it_goes_on_and_takes_new_topics(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t")
    server.create("t2")
    fill(server, 2)
    given = spec(topics=(), pattern="t.?")
    assert run_archive(spark, given).rows == 20
    fill(server, 3)
    server.append("t2", batch([{"payload": b"x"}]))
    assert run_archive(spark, given).rows == 31
    got = [(row.topic[-2:], row.offset) for row in rows(table(spark, given))]
    assert got == [*(("/t", n) for n in range(50)), ("t2", 0)]


def test_a_crash_between_the_commit_and_the_mark(
    spark: SparkSession, server: TopicServer, spec: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.create("t")
    fill(server, 4)

    def crash(*args: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(archiving, "_mark", crash)
        with pytest.raises(RuntimeError, match="killed"):
            run_archive(spark, spec(rows_max=20))
    assert server.cursor("archive-table", "t") == [0], "held until it is archived"
    assert run_archive(spark, spec()).rows == 20
    assert [row.offset for row in rows(table(spark, spec()))] == list(range(40))
    assert server.cursor("archive-table", "t") == [40]


def test_two_archivers_at_once(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t")
    fill(server, 2)
    run_archive(spark, spec())
    fill(server, 2)
    now = snapshot_of(Location.of(spec().table))
    with HttpClient(server.url) as client:
        logs = archiving._look(client, archiving._checked(spec()), None, 0).logs
    steps = archiving.plan(spec(), now, logs or [], None)
    archiving.append(spark, spec(), steps)
    with pytest.raises(PySparkException, match="the archive ends at 40 already"):
        archiving.append(spark, spec(), steps)
    assert [row.offset for row in rows(table(spark, spec()))] == list(range(40))


def test_interleaved_schema_versions_make_no_small_files(
    spark: SparkSession, server: TopicServer, spec: Archive
) -> None:
    server.create("t")
    fill(server, 300, size=1)
    run_archive(spark, spec())
    files = snapshot_of(Location.of(spec().table)).files()
    assert [file.rows for file in files] == [300]
    versions = [row.schema_version for row in rows(table(spark, spec()))]
    assert versions == [n % 2 for n in range(300)]


def test_one_read_spans_archive_and_log(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t", 2)
    fill(server, 6, 0)
    fill(server, 3, 1)
    given = spec()
    run_archive(spark, given)
    fill(server, 5, 0)
    original = rows(live(spark, server))
    server.trim("t", 50, 0)
    server.trim("t", 30, 1)
    assert rows(live(spark, server, archive=given.table, maxRecordsPerPartition=17)) == original
    part = live(
        spark,
        server,
        archive=given.table,
        startingOffsets='{"t": {"0": 13, "1": 29}}',
        endingOffsets='{"t": {"0": 77}}',
    )
    got = [(row.partition, row.offset) for row in rows(part)]
    assert got == [*((0, n) for n in range(13, 77)), (1, 29)]
    few = live(spark, server, archive=given.table, include="properties")
    assert [row.properties["n"] for row in rows(few)[:3]] == ["0", "1", "2"]


def test_a_gap_between_archive_and_log_is_said(
    spark: SparkSession, server: TopicServer, spec: Archive
) -> None:
    server.create("t")
    fill(server, 2)
    run_archive(spark, spec())
    fill(server, 3)
    server.trim("t", 40)
    spanning = live(spark, server, archive=spec().table)
    with pytest.raises(PySparkException, match=r"offsets 20 to 39 are\s+neither in the archive"):
        spanning.collect()
    lossy = live(spark, server, archive=spec().table, failOnDataLoss="false")
    assert [row.offset for row in rows(lossy)] == [*range(20), *range(40, 50)]
    with pytest.raises(DataLoss, match="the archive ends at 20, and the log begins at 40"):
        run_archive(spark, spec())
    below = live(spark, server, archive=spec().table, endingOffsets='{"t": {"0": 20}}')
    assert [row.offset for row in rows(below)] == list(range(20)), "the gap is not part of the query"


def test_a_topic_made_anew_is_another(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t")
    fill(server, 2)
    run_archive(spark, spec())
    server.delete("t")
    server.create("t")
    fill(server, 3)
    with pytest.raises(PipelineError, match="deleted and made anew"):
        run_archive(spark, spec())
    with pytest.raises(PySparkException, match="archives an earlier topic"):
        live(spark, server, archive=spec().table).collect()


def test_a_continuous_archive_until_it_is_stopped(
    spark: SparkSession, server: TopicServer, spec: Archive
) -> None:
    server.create("t")
    fill(server, 1)
    reports: list[Progress] = []

    def progress(step: Progress) -> None:
        reports.append(step)
        if len(reports) < 3:
            fill(server, len(reports))

    report = run_archive(
        spark, spec(once=False, every_ms=0), progress=progress, stopped=lambda: len(reports) == 3
    )
    assert [step.rows for step in reports] == [10, 10, 20]
    assert report.rows == 40


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topics": ()}, "either topics or a pattern"),
        ({"topics": ("nope",)}, "topic persistent://public/default/nope does not exist"),
        ({"start": "middle"}, "earliest or latest"),
        ({"start": "latest"}, "has to go on"),
        ({"kind": "orc"}, "option table"),
        ({"kind": "parquet"}, "option table: tables are Delta only"),
        ({"table": ""}, "option path is missing"),
        ({"server": Access(url="http://127.0.0.1:1", token="x")}, "a token for Spark"),
    ],
)
def test_what_cannot_be_archived(
    spark: SparkSession, server: TopicServer, spec: Archive, options: dict[str, object], words: str
) -> None:
    server.create("t")
    with pytest.raises(PipelineError, match=words):
        run_archive(spark, spec(**options))
    assert not Path(spec().table).exists()
    assert server.cursor("archive-table", "t") == []


def test_what_is_replayed_is_what_was_archived(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path / "data") as address, HttpClient(address.url) as client:
        topic = TopicName.parse("t")
        client.create_topic(topic, 2)
        client.create_topic(TopicName.parse("again"), 2)
        for n in range(0, 300, 100):
            messages = [
                {"key": f"k{i % 7}", "value": str(i), "properties": {"n": str(i)}, "eventTime": TIME + i}
                for i in range(n, n + 100)
            ]
            client.produce(topic, messages)
        server = Access(url=address.url)
        given = ArchiveSpec(server=server, topics=("t",), table=str(tmp_path / "table"))
        assert run_archive(spark, given).rows == 300
        wanted = ReplaySpec(server=server, table=given.table, topic="again", id="r1", rows_max=120)
        reports: list[Progress] = []
        broken_off = run_replay(spark, wanted, progress=reports.append, stopped=lambda: len(reports) == 2)
        assert broken_off.rows == 240
        assert run_replay(spark, wanted, progress=reports.append).rows == 300
        assert [each.batch for each in reports] == [0, 1, 1, 2], (
            "it goes on, and compares the last batch once more"
        )
        run_replay(spark, wanted)
        names = ("key", "value", "event_time")

        def read(name: str) -> list[Row]:
            options = {"url": address.url, "subscribe": name, "include": "properties,event_time"}
            return rows(spark.read.format("penstock").options(**options).load())

        original, again = read("t"), read("again")
        assert len(again) == 300, "a repeat publishes nothing"
        by_origin = {row.properties[ORIGIN]: row for row in again}
        for row in original:
            copy = by_origin.pop(f"{row.topic}:{row.partition}:{row.offset}")
            assert [copy[name] for name in names] == [row[name] for name in names]
            assert {k: v for k, v in copy.properties.items() if k != ORIGIN} == row.properties
        assert not by_origin
        with pytest.raises(PipelineError, match="another replay needs another id"):
            run_replay(spark, ReplaySpec(server=server, table=given.table, topic="t", id="r1"))
        part = ReplaySpec(
            server=server,
            table=given.table,
            topic="part",
            id="r2",
            from_offsets={0: 5, 1: 7},
            to_offsets={0: 9},
        )
        client.create_topic(TopicName.parse("part"))
        run_replay(spark, part)
        origins = {
            row.properties[ORIGIN].rsplit(":", 2)[1:][0] + ":" + row.properties[ORIGIN].rsplit(":", 1)[1]
            for row in read("part")
        }
        ends = {n: sum(row.partition == n for row in original) for n in (0, 1)}
        assert origins == {*(f"0:{n}" for n in range(5, 9)), *(f"1:{n}" for n in range(7, ends[1]))}
        shutil.rmtree(tmp_path / "table" / FOLDER)
        run_replay(spark, part)
        assert len(read("part")) == 2 * len(origins), "a plan that is lost is no reason to publish nothing"


def test_a_replay_by_times(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t")
    fill(server, 5)
    run_archive(spark, spec())
    now = snapshot_of(Location.of(spec().table))

    def asked(**options: object) -> list[tuple[int, int]]:
        given = {"server": spec().server, "table": spec().table, "topic": "x", "id": "r"} | options
        pieces = ranges(ReplaySpec(**given), Location.of(spec().table), now)  # type: ignore[arg-type]
        return [(piece.start, piece.end) for piece in pieces]

    assert asked() == [(0, 50)]
    assert asked(from_time=TIME + 1001, to_time=TIME + 4000) == [(20, 40)]
    assert asked(from_time=TIME + 9000) == []
    assert asked(source="t", from_offsets={0: 3}) == [(3, 50)]
    for options, words in (
        ({"from_offsets": {0: 60}}, "60 to 50 is asked for"),
        ({"from_offsets": {3: 0}}, "nothing of .*partition 3"),
        ({"source": "other"}, "nothing of persistent://public/default/other"),
        ({"from_time": 1, "from_offsets": {0: 1}}, "by times or by offsets"),
    ):
        with pytest.raises(PipelineError, match=words):
            asked(**options)


def test_times_reach_into_the_archive(spark: SparkSession, server: TopicServer, spec: Archive) -> None:
    server.create("t")
    fill(server, 5)
    run_archive(spark, spec())
    server.trim("t", 40)
    frame = live(spark, server, archive=spec().table, startingTimestamp=TIME + 1500)
    assert [row.offset for row in rows(frame)] == list(range(20, 50))
    assert rows(frame)[0].timestamp == datetime.fromtimestamp(TIME / 1000 + 2, UTC).replace(tzinfo=None)
    assert json.loads(bytes(rows(frame)[0].value)[2:]) == 20


V0 = {"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}
V1 = {
    "type": "record",
    "name": "O",
    "fields": [{"name": "id", "type": "long"}, {"name": "to", "type": "string", "default": "-"}],
}


def test_typed_values(spark: SparkSession, tmp_path: Path) -> None:
    """Bytes from the archive are decoded like those of the log; decoded ones make columns, which grow."""
    with running(tmp_path / "data") as address, HttpClient(address.url) as client:
        topic = TopicName.parse("orders")
        client.create_topic(topic)
        register(client, "orders", SchemaInfo(SchemaType.AVRO, json.dumps(V0).encode()))
        server = Access(url=address.url)
        raw = ArchiveSpec(server=server, topics=("orders",), table=str(tmp_path / "raw"))
        flat = ArchiveSpec(server=server, topics=("orders",), table=str(tmp_path / "flat"), decode="flat")
        client.produce(topic, [{"value": {"id": n}} for n in range(20)], schema_version=0)
        run_archive(spark, raw)
        run_archive(spark, flat)
        register(client, "orders", SchemaInfo(SchemaType.AVRO, json.dumps(V1).encode()))
        for n in range(20, 40, 2):
            client.produce(topic, [{"value": {"id": n}}], schema_version=0)
            client.produce(topic, [{"value": {"id": n + 1, "to": "x"}}], schema_version=1)

        def read(**options: str) -> list[Row]:
            given = {"url": address.url, "subscribe": "orders", "value.decode": "struct"} | options
            return rows(spark.read.format("penstock").options(**given).load())

        original = read()
        assert [row.value.id for row in original] == list(range(40))
        assert read(archive=raw.table) == original
        with pytest.raises(PySparkException, match="has no column value"):
            read(archive=flat.table)
        assert run_archive(spark, flat).rows == 20
        got = rows(table(spark, flat))
        assert [(row.id, row.to) for row in got] == [
            *((n, None) for n in range(20)),
            *((n, "x" if n % 2 else "-") for n in range(20, 40)),
        ]
        assert [row.schema_version for row in got] == [0] * 20 + [n % 2 for n in range(20)]
        with pytest.raises(PipelineError, match="no column value"):
            run_replay(spark, ReplaySpec(server=server, table=flat.table, topic="x", id="r"))

        # Each is published again under its own schema, which the other topic is given first.
        assert run_archive(spark, raw).rows == 20
        client.create_topic(TopicName.parse("copy"))
        register(client, "copy", SchemaInfo(SchemaType.AVRO, json.dumps(V1).encode()))
        register(client, "copy", SchemaInfo(SchemaType.AVRO, json.dumps(V0).encode()))
        assert run_replay(spark, ReplaySpec(server=server, table=raw.table, topic="copy", id="c")).rows == 40
        again = read(subscribe="copy", readerSchema="version:0", include="schema_version")
        assert [(row.value.id, row.value.to) for row in again] == [
            (row.value.id, row.value.to) for row in original
        ]
        assert [row.schema_version for row in again] == [1] * 20 + [1 - n % 2 for n in range(20)]
