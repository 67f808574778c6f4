"""Topics archived into tables by declared pipelines, read with what the topic has behind them, and published again."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, Row, SparkSession
from tests.pipeline.declared import WAIT_S, Bench
from tests.pipeline.topics import TopicServer
from tests.support.entries import TIME, batch, lone
from tests.support.object_store import ObjectStore
from tests.support.waiting import until
from tests.unit.pipeline.lake.test_tables import add

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.delta import Table
from penstock.pipeline.lake.options import snapshot_of
from penstock.pipeline.lake.store import Location
from penstock.pipeline.lake.values import Position
from penstock.pipeline.rows.columns import INCLUDABLE
from penstock.pipeline.run import query
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.sinks import Upkeep
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running

TOPIC = "persistent://public/default/t"
DOCS = (Path(__file__).parents[2] / "docs" / "lake.md").read_text()
(ARCHIVE,) = re.findall(r"```toml\n(name = \"archive-flights\"\n.*?)```", DOCS, re.DOTALL)
ARCHIVE = ARCHIVE.replace("/tables/flights", "table").replace("flights", "t")


@pytest.fixture
def bench(spark: SparkSession, server: TopicServer, tmp_path: Path) -> Bench:
    return Bench(tmp_path, server.url, spark)


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


def live(bench: Bench, topic: str = "t", **options: object) -> DataFrame:
    include = ",".join(INCLUDABLE)
    given = {"url": bench.url, "subscribe": topic, "include": include} | options
    return bench.spark.read.format("penstock").options(**given).load()  # type: ignore[arg-type]


def table(bench: Bench, name: str = "table") -> DataFrame:
    return bench.spark.read.format("penstock_lake").load(str(bench.folder / name))


def rows(frame: DataFrame) -> list[Row]:
    return sorted(frame.collect(), key=lambda row: (row.topic, row.partition, row.offset))


def recipe(name: str) -> Callable[..., Any]:
    """A function of docs/lake.md."""
    (code,) = re.findall(
        rf"```python\n((?:import json\n\n)?from [^`]*?\ndef {name}\(.*?)\n\n\n\w", DOCS, re.DOTALL
    )
    names: dict[str, Callable[..., Any]] = {}
    exec(code, names)
    return names[name]


def test_the_archive_is_the_topic(bench: Bench, server: TopicServer) -> None:
    server.create("t", 2)
    fill(server, 7, 0)
    fill(server, 4, 1)
    server.append("t", lone(b"alone", properties={"a": "b"}), partition=1)
    assert bench.run_once(ARCHIVE)["rows_total"] == 111
    original = live(bench)
    assert rows(table(bench).select(original.columns)) == rows(original)
    assert [row.timestamp_day.isoformat() for row in table(bench).limit(1).collect()] == ["2023-11-14"]
    now = snapshot_of(Location.of(bench.folder / "table"))
    assert [now.position(TOPIC, n) for n in range(3)] == [
        Position(0, 70, server.ledger("t", 0)),
        Position(0, 41, server.ledger("t", 1)),
        None,
    ]
    assert server.cursor("archive-t", "t") == [70, 41]
    assert len({file.path for file in now.files()}) <= 2, "alternating schema versions make no small files"
    fill(server, 2, 1)
    bench.run_once(ARCHIVE)
    assert rows(table(bench).select(original.columns)) == rows(live(bench))
    assert DeltaTable(str(bench.folder / "table")).to_pyarrow_table().num_rows == 131


def test_another_checkpoint_goes_on_where_the_table_ends(bench: Bench, server: TopicServer) -> None:
    server.create("t", 2)
    fill(server, 3, 0)
    bench.run_once(ARCHIVE)
    fill(server, 2, 0)
    fill(server, 1, 1)
    lost = Pipeline(load_spec(bench.file(ARCHIVE), url=bench.url, state=bench.folder / "lost"), bench.spark)
    with pytest.raises(PipelineError, match="the archive ends at 30 already, and the batch begins at 0"):
        lost.start(once=True).await_termination(WAIT_S)
    assert table(bench).count() == 30
    command = [sys.executable, "-m", "penstock", "pipeline", "new", "archive", "t", "--table", "table"]
    subprocess.run([*command, "--url", bench.url], cwd=bench.folder, check=True, timeout=120)
    written = (bench.folder / "table.toml").read_text()
    begun = tomllib.loads(written)["sources"]["messages"].pop("start")
    assert begun == {TOPIC: {"0": 30}}
    spec = load_spec(bench.folder / "table.toml", state=bench.folder / "new")
    assert spec.sources["messages"].include == load_spec(bench.file(ARCHIVE)).sources["messages"].include
    assert Pipeline(spec, bench.spark).start(once=True).await_termination(WAIT_S)
    got = [(row.partition, row.offset) for row in rows(table(bench))]
    assert got == [*((0, n) for n in range(50)), *((1, n) for n in range(10))]


def test_one_read_spans_archive_and_topic(bench: Bench, server: TopicServer) -> None:
    server.create("t", 2)
    fill(server, 6, 0)
    fill(server, 3, 1)
    bench.run_once(ARCHIVE)
    fill(server, 5, 0)
    original = rows(live(bench, include="properties,event_time"))
    server.trim("t", 50, 0)
    server.trim("t", 30, 1)
    both = recipe("archived_and_live")
    path = str(bench.folder / "table")
    assert rows(both(bench.spark, path, TOPIC, url=bench.url)) == original
    server.trim("t", 80, 0)
    with pytest.raises(Exception, match="offset 60 is asked for, but the log begins at 80"):
        both(bench.spark, path, TOPIC, url=bench.url).collect()


def test_what_is_replayed_is_what_was_archived(bench: Bench, server: TopicServer) -> None:
    server.create("t", 2)
    server.create("again", 3)
    fill(server, 6, 0)
    fill(server, 3, 1)
    server.append("t", lone(b"alone"), partition=1)
    bench.run_once(ARCHIVE)
    replay = recipe("replay")
    path = str(bench.folder / "table")
    part = f"`offset` >= 20 AND timestamp < timestamp_millis({TIME + 5000})"
    for _ in range(2):
        replay(bench.spark, path, part, "again", "fix-42", url=bench.url)
    originals = {f"{row.topic}:{row.partition}:{row.offset}": row for row in rows(table(bench).where(part))}
    assert len(originals) == 41
    again = rows(live(bench, "again"))
    assert len(again) == 41
    last: dict[str, int] = {}
    for row in again:
        original = originals.pop(row.properties["x-replay-of"])
        same = ("key", "value", "event_time", "ordering_key")
        assert [row[name] for name in same] == [original[name] for name in same]
        kept = {name: text for name, text in row.properties.items() if name != "x-replay-of"}
        assert kept == (original.properties or {})
        order = f"{original.partition}:{original.key}:{row.partition}"
        assert last.get(order, -1) < original.offset, "messages of a key keep their order"
        last[order] = original.offset
    assert not originals


def test_a_running_pipeline_has_its_tables_maintained(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a process beside it; every batch is there, whatever commits first."""
    monkeypatch.setattr(query, "Upkeep", lambda spec: Upkeep(spec, every_s=0.0))
    location = Location.of(tmp_path / "table")
    for n in range(40):
        add(Table(location), [n])
    with running() as address:
        bench = Bench(tmp_path, address.url, spark)
        bench.create("in")
        running_pipeline = bench.pipeline("""
name = "p"
trigger = "200 milliseconds"
[sources.s]
topics = ["in"]
[[steps]]
name = "v"
sql = "SELECT CAST(CAST(value AS STRING) AS BIGINT) AS n, 'x' AS text FROM s"
[sinks.table]
input = "v"
path = "table"
""").start()
        try:
            sent = 100
            while any(one["operation"] == "OPTIMIZE" for one in DeltaTable(location.url).history()) is False:
                bench.publish("in", [str(sent)])
                until(lambda sent=sent: sent in {row["n"] for row in bench.table("table")}, WAIT_S)  # type: ignore[misc]
                sent += 1
                assert sent < 200, "no compaction was committed"
        finally:
            running_pipeline.stop()
        assert sorted(row["n"] for row in bench.table("table")) == [*range(40), *range(100, sent)]
        assert len(snapshot_of(location).files()) < 40


def test_an_idle_archive_asks_its_store_nothing(
    spark: SparkSession, server: TopicServer, store: ObjectStore, tmp_path: Path
) -> None:
    server.create("t")
    fill(server, 2)
    bench = Bench(tmp_path, server.url, spark)
    url = store.folder()
    options = "".join(f'{name} = "{text}"\n' for name, text in store.options.items())
    text = ARCHIVE.replace('path = "table"', f'path = "{url}"')
    text = f'trigger = "100 milliseconds"\n{text}\n[storage]\n{options}'
    archive = bench.pipeline(text).start()
    try:
        until(lambda: server.cursor("archive-t", "t") == [20], WAIT_S)
        until(lambda: archive.progress["state"] == "idle", WAIT_S)
        before = store.served()
        fill(server, 0)
        # Nothing tells of what does not happen: some thirty triggers pass without a batch.
        archive.await_termination(3.0)
        assert store.served() == before
        fill(server, 1)
        until(lambda: server.cursor("archive-t", "t") == [30], WAIT_S)
        commit = [line for line in store.served()[len(before) :] if url.removeprefix("s3:/") in line]
        assert 0 < len(commit) < 20, commit
    finally:
        archive.stop()


CHANGES = """
name = "accounts"
[sources.s]
topics = ["in"]
[[steps]]
name = "v"
sql = '''
SELECT o.id, o.n, o.op FROM (SELECT from_json(CAST(value AS STRING), 'id STRING, n INT, op STRING') AS o FROM s)
'''
[sinks.table]
input = "v"
path = "accounts"
keys = ["id"]
delete_when = "{when}"
"""


def test_a_tombstone_deletes_the_row_with_its_key(spark: SparkSession, tmp_path: Path) -> None:
    with running() as address:
        bench = Bench(tmp_path, address.url, spark)
        bench.create("in")
        with pytest.raises(PipelineError, match=r"\[sinks.table\] delete_when: .*`gone`"):
            bench.run_once(CHANGES.format(when="gone = 1"))
        text = CHANGES.format(when="op = 'd'")
        bench.publish("in", [{"id": "a", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 3, "op": "d"}], "id")
        bench.run_once(text)
        found = [(row["id"], row["n"]) for row in bench.table("accounts")]
        assert sorted(found) == [("a", 1), ("b", 2)]
        bench.publish("in", [{"id": "a", "op": "d"}, {"id": "b", "n": 5}, {"id": "d", "n": 4}], "id")
        bench.run_once(text)
        assert sorted((row["id"], row["n"]) for row in bench.table("accounts")) == [("b", 5), ("d", 4)]
        assert list(bench.table("accounts")[0]) == ["id", "n", "op"]
