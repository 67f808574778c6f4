"""Declared pipelines whose batches come again, or begin at 0 again: after a rolled-back checkpoint and a refresh."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.checkpoints import roll_back
from tests.pipeline.declared import Bench
from tests.pipeline.test_declared import DELAYS, flight

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.redrive import Choice, run_redrive
from penstock.pipeline.run.reset import forget, reset
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import running


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


_TOP = """
name = "again"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "dead"
[sources.s]
topics = ["in"]
max_rows_per_batch = 10
[[steps]]
name = "read"
sql = "SELECT CAST(value AS STRING) AS n, key, value, properties, topic, partition, offset FROM s"
expect = [{ name = "no fives", predicate = "n NOT LIKE '%5'", action = "dead_letter" }]
"""
TOPIC = """
[sinks.out]
input = "read"
topic = "out"
value = "value"
"""
TABLE = """
[sinks.table]
input = "read"
path = "table"
"""


def spec_of(bench: Bench) -> Spec:
    return load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")


def publish(bench: Bench, first: int, until: int) -> None:
    bench.publish("in", [str(n) for n in range(first, until)])


def numbers(bench: Bench, topic: str) -> list[int]:
    return sorted(int(message["value"]) for message in bench.messages(topic))


def rows(bench: Bench) -> list[int]:
    return sorted(int(row["n"]) for row in bench.table("table"))


def tick() -> int:
    """A time, ms since the epoch, that has come, and after which nothing was published before."""
    begin = int(time.time() * 1000) + 1
    while time.time() * 1000 < begin:
        pass
    return begin


def good(first: int, until: int) -> list[int]:
    return [n for n in range(first, until) if n % 10 != 5]


@pytest.mark.parametrize("sinks", [TOPIC, TABLE, TOPIC + TABLE])
def test_a_refreshed_pipeline_is_a_new_writer_for_every_sink(bench: Bench, sinks: str) -> None:
    bench.create("in")
    publish(bench, 0, 30)
    bench.run_once(_TOP + sinks)
    forget(spec_of(bench))
    publish(bench, 30, 40)
    bench.run_once(_TOP + sinks)
    publish(bench, 40, 50)
    bench.run_once(_TOP + sinks)
    if TOPIC in sinks:
        assert numbers(bench, "out") == sorted(good(0, 30) + good(0, 50)), "topics keep what they had"
    if TABLE in sinks:
        assert rows(bench) == good(0, 50)
    assert numbers(bench, "dead") == [5, 5, 15, 15, 25, 25, 35, 45]


def test_a_rolled_back_checkpoint_ends_the_run_and_a_reset_goes_on(bench: Bench) -> None:
    bench.create("in")
    publish(bench, 0, 30)
    bench.run_once(_TOP + TOPIC + TABLE)
    assert roll_back(spec_of(bench).home / "checkpoint", 2) == [1, 2]
    begin = tick()
    publish(bench, 30, 50)
    with pytest.raises(
        PipelineError, match=r"batch 2 .*'Batches that come again' in docs/spark.md"
    ) as failed:
        bench.run_once(_TOP.replace("= 10", "= 15") + TOPIC + TABLE)
    assert failed.value.error_class == "plan"  # type: ignore[attr-defined]
    assert (numbers(bench, "out"), rows(bench)) == (good(0, 30), good(0, 30))
    reset(spec_of(bench), begin)
    bench.run_once(_TOP + TOPIC + TABLE)
    assert (numbers(bench, "out"), rows(bench)) == (good(0, 50), good(0, 50))


def test_watermarks_of_a_forgotten_checkpoint_are_forgotten_too(bench: Bench) -> None:
    bench.create("flights")
    for hours in (200, 200.1):
        bench.publish("flights", [flight("AA", 1, hours)])
        bench.run_once(DELAYS)
    reset(spec_of(bench), tick())
    for hours in (100, 100.1, 100.2, 103):
        bench.publish("flights", [flight("UA", 1, hours)])
        assert bench.run_once(DELAYS)["rejected"] == 0, "late for the old watermark only"
    assert ("UA", 3) in [(row["k"], row["c"]) for row in bench.table("table")]


def test_dead_letters_are_redriven_after_the_state_was_lost(bench: Bench) -> None:
    bench.create("in")
    publish(bench, 0, 20)
    bench.run_once(_TOP + TOPIC)
    spec = spec_of(bench)
    for redriven in (2, 0):
        assert run_redrive(spec, bench.spark, Choice()).redriven == redriven
    (spec.home / "redriven.json").unlink()
    assert run_redrive(spec, bench.spark, Choice()).redriven == 2
    assert numbers(bench, "in").count(5) == 3, "nothing that is said to be redriven is missing"
