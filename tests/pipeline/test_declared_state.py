"""Joins between topics, output modes, and processors with timers, in declared pipelines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import HOUR, WAIT_S, Bench

from penstock.pipeline.errors import PipelineError
from penstock.testing.server import running


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


ROWS = "from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f"

JOIN = f"""
name = "join"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "dead"
[sources.left_topic]
topics = ["left"]
[sources.right_topic]
topics = ["right"]
[[steps]]
name = "orders"
sql = '''
SELECT f.k, f.n, timestamp_seconds(f.s) AS ordered, key, value, properties, topic, partition, offset, schema_version
FROM (SELECT *, {ROWS} FROM left_topic)
'''
watermark = {{ column = "ordered", delay = "10 minutes", late = "dead_letter" }}
[[steps]]
name = "payments"
sql = "SELECT f.k AS pk, f.n AS paid, timestamp_seconds(f.s) AS payed FROM (SELECT {ROWS} FROM right_topic)"
watermark = {{ column = "payed", delay = "10 minutes" }}
[[steps]]
name = "both"
sql = '''
SELECT k, n, paid FROM orders LEFT JOIN payments
ON k = pk AND payed BETWEEN ordered AND ordered + INTERVAL 1 HOUR
'''
[sinks.out]
input = "both"
topic = "out"
key = "k"
"""


def row(k: str, n: int, hours: float) -> dict[str, object]:
    return {"k": k, "n": n, "s": int(hours * HOUR)}


def test_two_topics_are_joined_within_their_watermarks(bench: Bench) -> None:
    bench.create("left")
    bench.create("right")
    bench.publish("left", [row("a", 1, 100), row("b", 2, 100), row("c", 3, 100)])
    bench.publish("right", [row("a", 10, 100.5), row("c", 30, 102)])  # c pays too late
    bench.run_once(JOIN)
    assert [(m["key"], m["value"]["paid"]) for m in bench.messages("out")] == [("a", 10)]

    # Both watermarks must pass before an order is known to have no payment.
    bench.publish("left", [row("d", 4, 110)])
    bench.publish("right", [row("x", 0, 110)])
    bench.run_once(JOIN)
    bench.publish("left", [row("late", 5, 100), row("e", 6, 111)])
    last = bench.run_once(JOIN)
    found = {m["key"]: m["value"]["paid"] for m in bench.messages("out")}
    assert found == {"a": 10, "b": None, "c": None}
    assert (last["dead_letters"], last["late_unseen"]) == (1, 0)
    (dead,) = bench.messages("dead")
    assert dead["properties"]["x-dlq-topic"] == "persistent://public/default/left"


MODES = f"""
name = "{{mode}}"
spark."spark.sql.shuffle.partitions" = 1
output = "{{mode}}"
[sources.s]
topics = ["in"]
[[steps]]
name = "counted"
sql = "SELECT f.k, sum(f.n) AS n FROM (SELECT {ROWS} FROM s) GROUP BY f.k"
[sinks.out]
input = "counted"
topic = "{{mode}}-out"
key = "k"
"""


UPDATED = """
[sinks.table]
input = "counted"
path = "table"
keys = ["k"]
"""


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_output_modes(bench: Bench, mode: str) -> None:
    text = MODES.format(mode=mode) + (UPDATED if mode == "update" else "")
    bench.create("in")
    bench.publish("in", [row("a", 1, 0), row("b", 2, 0)])
    bench.run_once(text)
    bench.publish("in", [row("a", 5, 0)])
    bench.run_once(text)
    found = sorted((m["key"], m["value"]["n"]) for m in bench.messages(f"{mode}-out"))
    unchanged = [("b", 2)] if mode == "complete" else []  # said again
    assert found == sorted([("a", 1), ("b", 2), ("a", 6), *unchanged])
    if mode == "complete":
        return
    # A topic joins: its messages from the first on, and what was counted before is known.
    bench.create("more")
    bench.publish("more", [row("a", 10, 0)])
    bench.run_once(text.replace('["in"]', '["in", "more"]'))
    assert [(m["key"], m["value"]["n"]) for m in bench.messages("update-out")][-1] == ("a", 16)
    assert sorted(tuple(each.values()) for each in bench.table("table")) == [("a", 16), ("b", 2)]
    with pytest.raises(PipelineError, match=r"was made for s \(.*/more\), but"):
        bench.run_once(text)


TIMERS = f"""
name = "timers"
spark."spark.sql.shuffle.partitions" = 1
trigger = "500 milliseconds"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT f.k, f.n, timestamp_seconds(f.s) AS at FROM (SELECT {ROWS} FROM s)"
watermark = {{{{ column = "at", delay = "1 minute" }}}}
[[steps]]
name = "silent"
inputs = ["read"]
stateful = "watching:{{name}}"
keys = ["k"]
columns = "k STRING, n BIGINT"
time_mode = "{{mode}}"
[sinks.out]
input = "silent"
topic = "out"
key = "k"
"""

WATCHING = """
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


class Silence(StatefulProcessor):
    '''Says how much a key had when nothing came for an hour of event time.'''

    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", "n BIGINT")
        self.timer = handle.getValueState("timer", "at BIGINT")

    def until(self, rows, timers):
        return max(int(row.at.timestamp() * 1000) for row in rows) + 3600 * 1000

    def handleInputRows(self, key, rows, timerValues):
        rows = list(rows)
        total = self.total.get()[0] if self.total.exists() else 0
        self.total.update((total + sum(row.n for row in rows),))
        if self.timer.exists():
            self.handle.deleteTimer(self.timer.get()[0])
        at = self.until(rows, timerValues)
        self.handle.registerTimer(at)
        self.timer.update((at,))
        return iter(())

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        total = self.total.get()[0]
        self.total.clear()
        self.timer.clear()
        yield Row(k=key[0], n=total)

    def close(self):
        pass


class Soon(Silence):
    '''The same, half a second after what came last.'''

    def until(self, rows, timers):
        return timers.getCurrentProcessingTimeInMs() + 500
"""


def test_a_processor_hears_its_timers_of_event_time(bench: Bench) -> None:
    (bench.folder / "watching.py").write_text(WATCHING)
    text = TIMERS.format(name="Silence", mode="event_time")
    bench.create("in")
    bench.publish("in", [row("a", 1, 10), row("a", 2, 10.5), row("b", 5, 12)])
    bench.run_once(text)
    bench.publish("in", [row("b", 1, 12.2)])
    bench.run_once(text)
    assert [(m["key"], m["value"]["n"]) for m in bench.messages("out")] == [("a", 3)]
    bench.publish("in", [row("c", 1, 20)])
    bench.run_once(text)
    found = [(m["key"], m["value"]["n"]) for m in bench.messages("out")]
    assert found == [("a", 3), ("b", 6)]


def test_timers_of_processing_time_fire_without_input(bench: Bench) -> None:
    (bench.folder / "watching.py").write_text(WATCHING)
    text = TIMERS.format(name="Soon", mode="processing_time")
    text = "\n".join(line for line in text.splitlines() if not line.startswith("watermark"))
    bench.create("in")
    bench.create("out")
    bench.publish("in", [row("a", 1, 10), row("a", 2, 10)])
    pipeline = bench.pipeline(text).start()
    try:
        for _ in range(WAIT_S * 5):
            if bench.messages("out"):
                break
            pipeline.await_termination(0.2)
    finally:
        pipeline.stop(WAIT_S)
    assert [(m["key"], m["value"]["n"]) for m in bench.messages("out")] == [("a", 3)]
