"""Declared pipelines on a real session: every input is in exactly one place, also after a restart."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import HOUR, WAIT_S, Bench

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run import events
from penstock.pipeline.run.folder import Folder, Lock
from penstock.pipeline.run.redrive import Choice, run_redrive
from penstock.pipeline.run.reset import forget, reset
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


DELAYS = """
name = "delays"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "dead"
trigger = "100 milliseconds"

[sources.flights]
topics = ["flights"]

[[steps]]
name = "parsed"
sql = '''
SELECT f.*, timestamp_seconds(f.s) AS at, key, value, properties, topic, partition, offset
FROM (SELECT *, from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f FROM flights)
'''
watermark = { column = "at", delay = "10 minutes", late = "dead_letter" }
expect = [
  { name = "readable", predicate = "k IS NOT NULL", action = "dead_letter" },
  { name = "positive", predicate = "n >= 0", action = "drop" },
  { name = "small", predicate = "n < 100", action = "warn" },
]

[[steps]]
name = "hourly"
sql = "SELECT window.start AS at, k, count(*) AS c, sum(n) AS n FROM parsed GROUP BY window(at, '1 hour'), k"

[sinks.results]
input = "hourly"
topic = "results"
key = "k"

[sinks.table]
input = "hourly"
path = "table"

[sinks.parsed]
input = "parsed"
path = "parsed"

[sinks.flights]
input = "flights"
path = "flights"
"""


def flight(k: str, n: int, hours: float) -> dict[str, Any]:
    return {"k": k, "n": n, "s": int(hours * HOUR)}


def input_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What Spark says that it read, batch by batch, from now on."""
    found: list[int] = []
    event_of = events.batch_event

    def heard(progress: dict[str, Any]) -> dict[str, Any]:
        found.append(progress["numInputRows"])
        return event_of(progress)

    monkeypatch.setattr(events, "batch_event", heard)
    return found


def counts_by_rule(event: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    """The action of each rule, and how many rows passed and failed it."""
    return {rule["rule"]: (rule["action"], rule["passed"], rule["failed"]) for rule in event["rules"]}


def commits(folder: Path) -> list[set[str]]:
    """What each commit of a table does."""
    logs = sorted((folder / "_delta_log").glob("*.json"))
    return [{key for line in log.read_text().splitlines() for key in json.loads(line)} for log in logs]


def test_every_row_is_counted_or_a_dead_letter(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read = input_rows(monkeypatch)
    bench.create("flights", 2)
    bench.publish(
        "flights",
        [
            flight("AA", 1, 100),
            flight("UA", 2, 100.5),
            flight("AA", -5, 100),
            flight("AA", 300, 100.1),
            "nonsense",
        ],
    )
    first = bench.run_once(DELAYS)
    assert (first["rows_total"], first["rejected"], first["dead_letters"]) == (5, 2, 1)
    assert counts_by_rule(first) == {
        "readable": ("dead_letter", 4, 1),
        "positive": ("drop", 3, 1),
        "small": ("warn", 2, 1),
        "at": ("dead_letter", 3, 0),
    }

    # 100.9 is older than the watermark, but its window is still open; 99 and 98 are late.
    bench.publish("flights", [flight("AA", 1, 100.95), flight("UA", 1, 103)])
    second = bench.run_once(DELAYS)
    assert second["rejected"] == 0
    bench.publish("flights", [flight("AA", 1, 99), flight("UA", 7, 98.5), flight("AA", 4, 104.5)])
    third = bench.run_once(DELAYS)
    assert third["dead_letters"] == 2
    assert counts_by_rule(third)["at"] == ("dead_letter", 1, 2)
    assert [event["late_unseen"] for event in (first, second, third)] == [0, 0, 0], (
        "Spark dropped nothing itself"
    )
    assert third["state"] == "stopped"

    rows = Counter((row["k"], row["at"].hour, row["c"], row["n"]) for row in bench.table("table"))
    assert rows == Counter({("AA", 4, 3, 302): 1, ("UA", 4, 1, 2): 1, ("UA", 7, 1, 1): 1})
    published = [m["value"] for m in bench.messages("results")]
    assert Counter((v["k"], v["c"], v["n"]) for v in published) == Counter(
        {(k, c, n): 1 for k, _, c, n in rows}
    )

    # Five branches read the source, three of them behind the same checks: Spark reads it once.
    assert sum(read) == 10
    assert len(read) > 3, "batches that only close windows are among them"
    assert len(bench.table("flights")) == 10
    assert len(bench.table("parsed")) == 6
    for table in ("table", "parsed", "flights"):
        created, *others = commits(bench.folder / table)
        assert "add" not in created
        assert all("add" in commit for commit in others), "a batch without rows is no commit"

    dead = bench.messages("dead")
    reasons = {m["value"]: m["properties"]["x-dlq-error"] for m in dead}
    assert reasons["nonsense"] == "parsed: expectation readable: k IS NOT NULL"
    assert reasons[json.dumps(flight("AA", 1, 99))].startswith("parsed: later than the watermark of at")
    assert len(dead) == 3
    for letter in dead:
        assert letter["properties"]["from"] == "test"
        assert letter["properties"]["x-dlq-topic"] == "persistent://public/default/flights"
        assert letter["properties"]["x-dlq-offset"].isdigit()
        assert letter["properties"]["x-dlq-batch"].isdigit()

    # Dead letters go back once, by choice; what was not chosen stays.
    spec = load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")
    late = Choice(error="later than the watermark")
    assert run_redrive(spec, bench.spark, late).redriven == 2
    assert run_redrive(spec, bench.spark, late).redriven == 0
    assert run_redrive(spec, bench.spark, Choice()).redriven == 1
    values = Counter(m["value"] for m in bench.messages("flights"))
    assert values["nonsense"] == 2
    assert values[json.dumps(flight("UA", 7, 98.5))] == 2
    again = [m for m in bench.messages("flights") if m["value"] == "nonsense"]
    assert all(m["properties"] == {"from": "test"} and m["key"] == "?" for m in again)

    # Anew: the table is emptied in one commit, and has everything once again.
    forget(spec)
    assert bench.table("table") == bench.table("parsed") == []
    assert not (spec.home / "checkpoint").exists()


PLAIN = """
name = "plain"
spark."spark.sql.shuffle.partitions" = 1
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT f.* FROM (SELECT from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f FROM s)"
expect = [{ name = "positive", predicate = "n > 0", action = "fail" }]
[[steps]]
name = "named"
inputs = ["read"]
python = "mine:shout"
[sinks.out]
input = "named"
topic = "out"
key = "k"
value = ["k", "n"]
"""

MINE = """
from pyspark.sql import functions as f

def louder(text):
    return text + "!"

def shout(frame):
    return frame.withColumn("k", f.udf(louder)("k"))
"""


def test_one_sink_is_sparks_own_and_a_broken_rule_writes_nothing(bench: Bench) -> None:
    (bench.folder / "mine.py").write_text(MINE)
    bench.create("in")
    bench.publish("in", [flight("a", 1, 0), flight("b", 2, 0)])
    bench.run_once(PLAIN)
    assert [(m["key"], m["value"]) for m in bench.messages("out")] == [
        ("a!", {"k": "a!", "n": 1}),
        ("b!", {"k": "b!", "n": 2}),
    ]
    bench.publish("in", [flight("c", 3, 0), flight("d", -1, 0)])
    with pytest.raises(PipelineError) as failed:
        bench.run_once(PLAIN)
    assert failed.value.message == (
        "pipeline plain: expectation 'positive' of read does not hold: n > 0; no sink has batch 1: the next run repeats it"
    )
    status = Folder(bench.folder / "state" / "plain").status()
    assert status is not None
    assert (status["state"], status["error_class"]) == ("failed", "expectation")
    assert len(bench.messages("out")) == 2

    # Another time to begin with, and a rule that holds.
    spec = load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")
    reset(spec, 4_000_000_000_000)
    assert bench.run_once(PLAIN)["rows_total"] == 0


STATEFUL = """
name = "counter"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "dead"
trigger = "100 milliseconds"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT f.* FROM (SELECT from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f FROM s)"
[[steps]]
name = "counted"
inputs = ["read"]
stateful = "counts:Counting"
keys = ["k"]
columns = "k STRING, total BIGINT"
[sinks.out]
input = "counted"
topic = "out"
"""

COUNTS = """
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

class Counting(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "n BIGINT")

    def handleInputRows(self, key, rows, timers):
        total = (self.total.get()[0] if self.total.exists() else 0) + sum(row.n for row in rows)
        self.total.update((total,))
        yield Row(k=key[0], total=total)

    def close(self):
        pass
"""


def test_state_is_kept_between_runs_and_a_run_stops_between_batches(bench: Bench) -> None:
    (bench.folder / "counts.py").write_text(COUNTS)
    bench.create("in")
    bench.publish("in", [flight("a", 1, 0), flight("b", 2, 0), flight("a", 3, 0)])
    bench.run_once(STATEFUL)
    pipeline = bench.pipeline(STATEFUL).start()
    assert not pipeline.await_termination(0.1)
    with pytest.raises(PipelineError, match="is in use by process"), Lock(Folder(pipeline.spec.home)):
        pass
    bench.publish("in", [flight("a", 5, 0)])
    for _ in range(WAIT_S):
        if pipeline.progress.get("written"):
            break
        pipeline.await_termination(1)
    pipeline.stop(WAIT_S)
    assert pipeline.progress["state"] == "stopped"
    totals = [(m["value"]["k"], m["value"]["total"]) for m in bench.messages("out")]
    assert sorted(totals) == [("a", 4), ("a", 9), ("b", 2)]
    told = [json.loads(m["value"]) for m in bench.messages("persistent://penstock/system/pipelines")]
    assert {"starting", "running", "stopped"} <= {event["state"] for event in told}
    assert all(event["pipeline"] == "counter" and event["ui"] is None for event in told)


def test_the_notebook_of_the_docs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    declared, *_ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (cell,) = (
        found for found in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "sales.toml" in found
    )
    bench.create("orders")
    bench.publish("orders", [{"product": "tea", "price": 3.5, "at": "2026-01-31T08:00:10Z"}])
    (bench.folder / "sales.toml").write_text(declared.replace("http://127.0.0.1:8080", bench.url))
    # Relative paths are the file's in it, and the program's elsewhere.
    monkeypatch.chdir(bench.folder)
    exec(cell.replace('load("history")', f'load("{bench.folder}/history")'), {"spark": bench.spark})
    said = capsys.readouterr().out.splitlines()
    assert said[0] in ("starting", "running", "idle")
    assert said[1] in ("0", "1")  # how much the first run took before it was stopped
    assert "|" in said[3]
    assert sum("|    tea|" in line for line in said) == 1  # the preview's
