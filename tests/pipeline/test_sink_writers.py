"""A pipeline's file that is edited while a batch is written in part: no sink gets rows twice."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.checkpoints import lose_commit
from tests.pipeline.declared import WAIT_S, Bench

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running

HEAD = """
name = "edited"
dead_letters = "dead"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = '''
SELECT nullif(CAST(value AS STRING), 'none') AS n, key, value, properties, topic, partition, offset FROM s
'''
"""
A = '[sinks.a]\ninput = "read"\ntopic = "out"\nvalue = "value"\n'
B = '[sinks.b]\ninput = "read"\npath = "b"\nkeys = ["n"]\n'
# The commit of `b` fails: a row has no key.
KEYLESS = HEAD.replace("'none'", "'17'")
RULE = 'expect = [{ name = "no 17", predicate = "n <> \'17\'", action = "drop" }]\n'
LETTERS = RULE.replace("drop", "dead_letter")


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        made = Bench(tmp_path, server.url, spark)
        made.create("in")
        made.publish("in", [str(n) for n in range(51)])
        yield made


def numbers(bench: Bench, topic: str = "out") -> list[int]:
    return sorted(int(message["value"]) for message in bench.messages(topic))


def checkpoint(bench: Bench) -> Path:
    return Folder(bench.folder / "state" / "edited").checkpoint


def half_written(bench: Bench) -> None:
    with pytest.raises(PipelineError, match=r"\[sinks.b\].* column n is null .*a has batch 0, b has not"):
        bench.run_once(KEYLESS + A + B)
    assert numbers(bench) == list(range(51))


def test_a_sink_that_is_removed_while_a_batch_is_half_written(bench: Bench) -> None:
    half_written(bench)
    with pytest.raises(PipelineError) as refused:
        bench.run_once(HEAD + A)
    said = refused.value.message
    assert (
        "batch 0 is in [sinks.a] (topic persistent://public/default/out), and not in [sinks.b] (table b)"
        in said
    )
    assert "there is no [sinks.b]" in said
    assert "--once" in said
    assert "--change-sinks" in said
    assert refused.value.error_class == "plan"  # type: ignore[attr-defined]

    # The way out: mended, the batch comes to its end, and the sink may go.
    bench.run_once(HEAD + A + B)
    bench.publish("in", ["51"])
    bench.run_once(HEAD + A)
    assert numbers(bench) == list(range(52))
    assert len(bench.table("b")) == 51


def test_a_sink_that_cannot_be_written_any_more_is_left_behind(bench: Bench) -> None:
    half_written(bench)
    bench.publish("in", ["51"])
    pipeline = bench.pipeline(HEAD + A).start(once=True, change_sinks=True)
    assert pipeline.await_termination(WAIT_S)
    assert numbers(bench) == list(range(52))
    bench.publish("in", ["52"])
    bench.run_once(HEAD + A)
    assert numbers(bench) == list(range(53))


@pytest.mark.parametrize("rule", ["", RULE])
def test_a_sink_with_another_name_keeps_its_writer(bench: Bench, rule: str) -> None:
    bench.run_once(HEAD + rule + A)
    there = numbers(bench)
    lose_commit(checkpoint(bench))
    bench.publish("in", ["51"])
    bench.run_once(HEAD + rule + A.replace("sinks.a", "sinks.c"))
    assert numbers(bench) == [*there, 51]


def test_a_rule_that_drops_rows_does_not_change_the_writer(bench: Bench) -> None:
    bench.run_once(HEAD + A)
    lose_commit(checkpoint(bench))
    bench.publish("in", ["51"])
    bench.run_once(HEAD + RULE.replace("17", "none") + A)
    assert numbers(bench) == list(range(52))
    lose_commit(checkpoint(bench))
    with pytest.raises(PipelineError, match=r"batch 1 .*'Batches that come again'"):
        bench.run_once(HEAD + RULE.replace("17", "51") + A)
    assert numbers(bench) == list(range(52))


def test_dead_letters_that_begin_within_a_batch_are_refused(bench: Bench) -> None:
    bench.run_once(HEAD + A)
    lose_commit(checkpoint(bench))
    with pytest.raises(PipelineError, match=r"\[sinks.a\] now takes the dead letters"):
        bench.run_once(HEAD + LETTERS + A)
    bench.run_once(HEAD + A)
    bench.publish("in", ["51"])
    bench.run_once(HEAD + LETTERS.replace("17", "51") + A)
    assert numbers(bench) == list(range(51))
    assert numbers(bench, "dead") == [51]


def test_the_sink_of_dead_letters_stays_the_same_where_sinks_change_places(bench: Bench) -> None:
    other = A.replace("sinks.a", "sinks.z").replace('"out"', '"other"')
    bench.run_once(HEAD + LETTERS + A + other)
    lose_commit(checkpoint(bench))
    bench.publish("in", ["51"])
    bench.run_once(HEAD + LETTERS + other + A)
    for topic in ("out", "other"):
        assert numbers(bench, topic) == [n for n in range(52) if n != 17]
    assert numbers(bench, "dead") == [17]


def test_a_batch_that_no_sink_has_holds_nothing_up(bench: Bench) -> None:
    with pytest.raises(PipelineError, match="no sink has batch 0"):
        bench.run_once(HEAD + RULE.replace("drop", "fail") + A)
    bench.run_once(HEAD + A.replace('"out"', '"other"'))
    assert numbers(bench, "other") == list(range(51))


def test_check_says_that_the_sinks_changed(bench: Bench) -> None:
    from penstock.pipeline.run.query import check

    half_written(bench)
    file = bench.file(HEAD + A, "edited.toml")
    with pytest.raises(PipelineError, match=r"there is no \[sinks.b\]"):
        check(load_spec(file, url=bench.url, state=bench.folder / "state"), bench.spark)
