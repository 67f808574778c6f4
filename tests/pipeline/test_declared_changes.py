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
from penstock.pipeline.run.causes import NEW_CHECKPOINT
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.run.query import query_id
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
        query = query_id(Folder(pipeline.spec.home).checkpoint)
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
    assert query_id(Folder(pipeline.spec.home).checkpoint) == query
    assert sum(event["state"] == "restarting" for event in ear.events) == 1
    rows = Counter((row["id"], row["to"], row["offset"]) for row in bench.table("table"))
    assert rows == Counter([(1, None, 0), (2, "here", 1), (3, "?", 2)])


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


class Soon(Backoff):
    """Counts the pauses, and waits hardly at all."""

    pauses = 0

    def next_s(self, ran_s: float) -> float:
        self.pauses += 1
        return min(super().next_s(ran_s), 0.5)


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
