"""What changes under a running pipeline: a topic's schema, and whether the server is there."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import WAIT_S, Bench
from tests.pipeline.test_declared_typed import V0, V1, avro, declare, order, put

from penstock.client.http import HttpClient
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.schemas import register
from penstock.pipeline.run.failures import NEW_CHECKPOINT
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.supervise import Backoff
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import Launched, running


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


class Ear:
    """Hears a pipeline's events, and waits for some."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __call__(self, event: dict[str, Any]) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def until(self, wanted: Callable[[dict[str, Any]], bool], after: int = 0) -> dict[str, Any]:
        def found() -> list[dict[str, Any]]:
            return [event for event in self.events[after:] if wanted(event)]

        with self._news:
            over = ("failed", "stopped")
            self._news.wait_for(
                lambda: found() or (self.events[-1:] and self.events[-1]["state"] in over), WAIT_S
            )
            assert found(), self.events[-3:]
            return found()[0]

    def rows(self, total: int) -> None:
        """Until so many messages were taken in all."""
        self.until(lambda event: event.get("rows_total", 0) >= total)


def start(bench: Bench, text: str, ear: Ear, backoff: Backoff | None = None) -> Pipeline:
    spec = load_spec(bench.file(text), url=bench.url, state=bench.folder / "state")
    return Pipeline(spec, bench.spark, ear, backoff).start()


class Soon(Backoff):
    """Counts the pauses, and waits hardly at all."""

    pauses = 0

    def next_s(self, ran_s: float) -> float:
        self.pauses += 1
        return min(super().next_s(ran_s), 0.5)


GROWING = """
name = "growing"
trigger = "100 milliseconds"
[sources.orders]
topics = ["orders"]
decode = "flat"
on_new_schema = "{on_new}"
[[steps]]
name = "read"
sql = "{sql}"
[sinks.table]
input = "read"
path = "table"
"""


def test_a_new_column_joins_a_running_pipeline(bench: Bench) -> None:
    declare(bench, "orders", avro(V0))
    put(bench, "orders", order(1, 1), version=0)
    ear = Ear()
    text = GROWING.format(on_new="restart", sql="SELECT * EXCEPT (timestamp, timestampType) FROM orders")
    pipeline = start(bench, text, ear)
    try:
        ear.rows(1)
        query = Folder(pipeline.spec.home).query()
        with HttpClient(bench.url) as client:
            assert register(client, "orders", avro(V1)) == 1
        put(bench, "orders", order(2, 1, to="here"), version=1)
        put(bench, "orders", order(3, 1), version=0)
        again = ear.until(lambda event: event["state"] == "restarting")
        assert again["error_class"] == "new_schema"
        assert "orders has schema version 1, the query was planned with 0" in again["error"]
        ear.rows(3)
    finally:
        pipeline.stop(WAIT_S)
    assert Folder(pipeline.spec.home).query() == query
    assert sum(event["state"] == "restarting" for event in ear.events) == 1
    rows = Counter((row["id"], row["to"], row["offset"]) for row in bench.table("table"))
    assert rows == Counter([(1, None, 0), (2, "here", 1), (3, "?", 2)])


def nested(kind: str, *more: dict[str, Any]) -> dict[str, Any]:
    """A record with a number, and records with one in an array and a map."""
    part = {"type": "record", "name": "Part", "fields": [{"name": "x", "type": kind}, *more]}
    return {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": kind},
            {"name": "parts", "type": {"type": "array", "items": part}},
            {"name": "named", "type": {"type": "map", "values": "Part"}},
        ],
    }


def test_nested_fields_and_wider_numbers_join_a_running_pipeline(bench: Bench) -> None:
    def value(n: int, **more: object) -> dict[str, Any]:
        part = {"x": n, **more}
        return {"value": {"id": n, "parts": [part], "named": {"k": part}}}

    declare(bench, "orders", avro(nested("int")))
    put(bench, "orders", value(1), version=0)
    ear = Ear()
    text = GROWING.format(on_new="restart", sql="SELECT id, parts, named FROM orders")
    pipeline = start(bench, text, ear)
    try:
        ear.rows(1)
        later = avro(nested("long", {"name": "y", "type": "string", "default": "?"}))
        with HttpClient(bench.url) as client:
            assert register(client, "orders", later) == 1
        put(bench, "orders", value(2, y="new"), version=1)
        put(bench, "orders", value(3), version=0)
        ear.rows(3)
    finally:
        pipeline.stop(WAIT_S)
    assert [event["state"] for event in ear.events].count("failed") == 0
    rows = {row["id"]: (row["parts"], row["named"]) for row in bench.table("table")}
    expected = {1: {"x": 1, "y": None}, 2: {"x": 2, "y": "new"}, 3: {"x": 3, "y": "?"}}
    assert rows == {n: ([part], {"k": part}) for n, part in expected.items()}
    table = bench.spark.read.format("penstock_lake").load(str(bench.folder / "table"))
    assert dict(table.dtypes)["id"] == "int", "the table's own type stays"


def test_state_of_another_shape_needs_a_new_checkpoint(bench: Bench) -> None:
    declare(bench, "orders", avro(V0))
    put(bench, "orders", order(1, 1), version=0)
    ear = Ear()
    text = GROWING.format(
        on_new="restart",
        sql="SELECT DISTINCT * EXCEPT (key, topic, partition, offset, timestampType) FROM orders",
    ).replace('decode = "flat"', 'decode = "flat"\nwatermark = { column = "timestamp", delay = "1 hour" }')
    pipeline = start(bench, f'spark."spark.sql.shuffle.partitions" = 1\n{text}', ear)
    try:
        ear.rows(1)
        with HttpClient(bench.url) as client:
            register(client, "orders", avro(V1))
        put(bench, "orders", order(2, 1, to="here"), version=1)
        with pytest.raises(PipelineError) as refused:
            pipeline.await_termination(WAIT_S)
    finally:
        if pipeline.active:
            pipeline.stop(WAIT_S)
    assert refused.value.message == f"pipeline growing: {NEW_CHECKPOINT}"
    assert pipeline.progress["error_class"] == "plan"
    assert pipeline.progress["state"] == "failed"


def test_a_new_schema_can_be_an_error(bench: Bench) -> None:
    declare(bench, "orders", avro(V0))
    put(bench, "orders", order(1, 1), version=0)
    ear = Ear()
    pipeline = start(bench, GROWING.format(on_new="fail", sql="SELECT id FROM orders"), ear)
    try:
        ear.rows(1)
        with HttpClient(bench.url) as client:
            register(client, "orders", avro(V1))
        with pytest.raises(PipelineError, match=r"orders has schema version 1, .*onNewSchema=fail"):
            assert pipeline.await_termination(WAIT_S)
    finally:
        if pipeline.active:
            pipeline.stop(WAIT_S)
    assert pipeline.progress["error_class"] == "schema"
    assert [event["state"] for event in ear.events].count("restarting") == 0
    assert [row["id"] for row in bench.table("table")] == [1]


def test_what_never_gets_on_ends_as_failed(bench: Bench) -> None:
    """A query that asks for a new plan each time: 83 plans a minute before there was an end to it."""
    (bench.folder / "never.py").write_text(
        "def ready(frame):\n"
        "    def refuse(batches):\n"
        "        from penstock.pipeline.errors import SchemaChanged\n"
        "        raise SchemaChanged('there is another version')\n"
        "        yield\n"
        "    return frame.mapInArrow(refuse, frame.schema)\n"
    )
    bench.create("in")
    bench.publish("in", ["a"])
    ear, backoff = Ear(), Soon()
    text = GROWING.format(on_new="restart", sql="").replace(
        'sql = ""', 'python = "never:ready"\ninputs = ["orders"]'
    )
    pipeline = start(
        bench,
        text.replace('"orders"]\n', '"in"]\n', 1).replace('decode = "flat"\non_new_schema = "restart"\n', ""),
        ear,
        backoff,
    )
    with pytest.raises(
        PipelineError, match=r"another version.*; it failed 10 times, and no batch was over in between"
    ):
        assert pipeline.await_termination(WAIT_S)
    assert [event["state"] for event in ear.events].count("restarting") == 9
    assert (ear.events[-1]["state"], ear.events[-1]["error_class"]) == ("failed", "new_schema")
    assert backoff.pauses == 8, "none before the first plan"
    assert not pipeline.active


AWAY = """
name = "away"
trigger = "100 milliseconds"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT key, CAST(value AS STRING) AS value FROM s"
[sinks.topic]
input = "read"
topic = "out"
[sinks.table]
input = "read"
path = "table"
"""


# A running query itself is patient for a minute and a half. Shorter absences are those of test_kills_server.
@pytest.mark.skipif("PENSTOCK_SOAK" not in os.environ, reason="takes two minutes: make soak")
def test_a_server_that_is_away_is_waited_for(tmp_path: Path, spark: SparkSession) -> None:
    ear, backoff = Ear(), Soon()
    server = Launched.start(tmp_path / "data")
    port = server.port
    bench = Bench(tmp_path, server.url, spark)
    pipeline = None
    try:
        bench.create("in", 2)
        bench.publish("in", [f"a{n}" for n in range(50)])
        pipeline = start(bench, AWAY, ear, backoff)
        ear.rows(50)
        bench.publish("in", [f"b{n}" for n in range(50)])
        ear.rows(100)
        server.kill()
        server._errors.unlink()
        # Longer than the source itself is patient: the query fails, and so do attempts to plan it again.
        first = ear.until(lambda event: event["state"] == "restarting")
        assert first["error_class"] == "broker"
        status = Folder(pipeline.spec.home).status()
        assert status is not None
        assert status["state"] == "restarting"
        assert "cannot be reached" in str(status["error"])
        ear.until(lambda event: event["state"] == "restarting", after=len(ear.events))
        assert pipeline.active

        server = Launched.start(tmp_path / "data", port=port)
        bench.publish("in", [f"c{n}" for n in range(50)])
        ear.rows(150)
        assert backoff.pauses >= 2
        pipeline.stop(WAIT_S)
        assert pipeline.progress["error"] is None
        wanted = Counter(f"{letter}{n}" for letter in "abc" for n in range(50))
        assert Counter(m["value"] for m in bench.messages("out")) == wanted
        assert Counter(row["value"] for row in bench.table("table")) == wanted
    finally:
        if pipeline is not None and pipeline.active:
            pipeline.stop(WAIT_S)
        server.terminate()
        server._errors.unlink(missing_ok=True)
