"""Declared pipelines whose batches come again, or begin at 0 again: after a rolled-back checkpoint and a refresh."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.checkpoints import roll_back
from tests.pipeline.declared import House
from tests.pipeline.test_declared import DELAYS, flight

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import forget, reset
from penstock.pipeline.run.redrive import Choice, run_redrive
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import running


@pytest.fixture
def house(tmp_path: Path, spark: SparkSession) -> Iterator[House]:
    with running() as server:
        yield House(tmp_path, server.url, spark)


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


def spec_of(house: House) -> Spec:
    return load_spec(house.folder / "p.toml", url=house.url, state=house.folder / "state")


def publish(house: House, first: int, until: int) -> None:
    house.publish("in", [str(n) for n in range(first, until)])


def numbers(house: House, topic: str) -> list[int]:
    return sorted(int(message["value"]) for message in house.messages(topic))


def rows(house: House) -> list[int]:
    return sorted(int(row["n"]) for row in house.table("table"))


def tick() -> int:
    """A time, ms since the epoch, that has come, and after which nothing was published before."""
    begin = int(time.time() * 1000) + 1
    while time.time() * 1000 < begin:
        pass
    return begin


def good(first: int, until: int) -> list[int]:
    return [n for n in range(first, until) if n % 10 != 5]


@pytest.mark.parametrize("sinks", [TOPIC, TABLE, TOPIC + TABLE])
def test_a_refreshed_pipeline_is_a_new_writer_for_every_sink(house: House, sinks: str) -> None:
    house.create("in")
    publish(house, 0, 30)
    house.run_once(_TOP + sinks)
    forget(spec_of(house))
    publish(house, 30, 40)
    house.run_once(_TOP + sinks)
    publish(house, 40, 50)
    house.run_once(_TOP + sinks)
    if TOPIC in sinks:
        assert numbers(house, "out") == sorted(good(0, 30) + good(0, 50)), "topics keep what they had"
    if TABLE in sinks:
        assert rows(house) == good(0, 50)
    assert numbers(house, "dead") == [5, 5, 15, 15, 25, 25, 35, 45]


def test_a_rolled_back_checkpoint_ends_the_run_and_a_reset_goes_on(house: House) -> None:
    house.create("in")
    publish(house, 0, 30)
    house.run_once(_TOP + TOPIC + TABLE)
    assert roll_back(spec_of(house).home / "checkpoint", 2) == [1, 2]
    begin = tick()
    publish(house, 30, 50)
    with pytest.raises(
        PipelineError, match=r"batch 2 .*'Batches that come again' in docs/spark.md"
    ) as failed:
        house.run_once(_TOP.replace("= 10", "= 15") + TOPIC + TABLE)
    assert failed.value.error_class == "plan"  # type: ignore[attr-defined]
    assert (numbers(house, "out"), rows(house)) == (good(0, 30), good(0, 30))
    reset(spec_of(house), begin)
    house.run_once(_TOP + TOPIC + TABLE)
    assert (numbers(house, "out"), rows(house)) == (good(0, 50), good(0, 50))


def test_watermarks_of_a_forgotten_checkpoint_are_forgotten_too(house: House) -> None:
    house.create("flights")
    for hours in (200, 200.1):
        house.publish("flights", [flight("AA", 1, hours)])
        house.run_once(DELAYS)
    reset(spec_of(house), tick())
    for hours in (100, 100.1, 100.2, 103):
        house.publish("flights", [flight("UA", 1, hours)])
        assert house.run_once(DELAYS)["rejected"] == 0, "late for the old watermark only"
    assert ("UA", 3) in [(row["k"], row["c"]) for row in house.table("table")]


def test_dead_letters_are_redriven_after_the_state_was_lost(house: House) -> None:
    house.create("in")
    publish(house, 0, 20)
    house.run_once(_TOP + TOPIC)
    spec = spec_of(house)
    for redriven in (2, 0):
        assert run_redrive(spec, house.spark, Choice()).redriven == redriven
    (spec.home / "redriven.json").unlink()
    assert run_redrive(spec, house.spark, Choice()).redriven == 2
    assert numbers(house, "in").count(5) == 3, "nothing that is said to be redriven is missing"
