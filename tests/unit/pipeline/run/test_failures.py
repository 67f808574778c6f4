"""A failed batch is told with its pipeline, step and sink, and with what of it is written."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import PipelineError, SinkFailed
from penstock.pipeline.run.failures import (
    AGAIN,
    Cause,
    ErrorClass,
    at_checkpoint,
    cause_of,
    of_batch,
    placed,
    told,
)
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec


@pytest.fixture
def spec() -> Spec:
    content = {
        "name": "sales",
        "dead_letters": "dead",
        "sources": {"s": {"topics": ["in"], "expect": [{"name": "e", "predicate": "CAST(key AS INT) > 0"}]}},
        "steps": [
            {"name": "one", "sql": "SELECT CAST(value AS INT) AS n, value\nFROM s"},
            {"name": "two", "python": "mine.steps:f", "inputs": ["one"]},
        ],
        "sinks": {
            "results": {"input": "two", "topic": "out"},
            "history": {"input": "two", "path": "h"},
        },
    }
    return parse_spec(content, "p.toml", Path("/home/me"))


def test_what_of_a_batch_is_written(spec: Spec) -> None:
    def write() -> None:
        with of_batch(spec, 7) as sinks:
            with sinks.writing("results"):
                pass
            with sinks.writing("history"):
                raise PermissionError(13, "Permission denied", "/home/me/h/part-1")

    with pytest.raises(SinkFailed) as caught:
        write()
    cause = told(spec, cause_of(caught.value))
    assert cause.kind is ErrorClass.ACCESS
    assert cause.sentence == (
        "pipeline sales: [sinks.history] (table /home/me/h): /home/me/h/part-1: Permission denied;"
        f" results has batch 7, history has not: {AGAIN}"
    )


@pytest.mark.parametrize(
    ("first", "state"),
    [
        ("results", "results has batch 7, history may have it"),
        ("history", "of batch 7, history may have it"),
    ],
)
def test_a_commit_without_an_answer_may_have_been_made(spec: Spec, first: str, state: str) -> None:
    away = PenstockError(ErrorKind.UNAVAILABLE, "it is away")

    def write() -> None:
        with of_batch(spec, 7) as sinks:
            if first == "results":
                with sinks.writing("results"):
                    pass
            with sinks.writing("history"):
                raise away

    with pytest.raises(SinkFailed) as caught:
        write()
    cause = cause_of(caught.value)
    assert cause.kind is ErrorClass.BROKER
    assert cause.sentence == f"[sinks.history] (table /home/me/h): it is away; {state}: {AGAIN}"


def test_before_anything_is_written(spec: Spec) -> None:
    with pytest.raises(SinkFailed) as caught, of_batch(spec, 0):
        raise PipelineError("wrong")
    assert cause_of(caught.value) == (
        ErrorClass.PLAN,
        "wrong; no sink has batch 0: the next run repeats it",
        "",
    )


def test_a_batch_that_may_be_a_repeat_may_be_in_a_sink(spec: Spec) -> None:
    with pytest.raises(SinkFailed) as caught, of_batch(spec, 3, may_repeat=True):
        raise PipelineError("wrong")
    assert cause_of(caught.value).sentence == (
        "wrong; this run wrote batch 3 to no sink; an earlier one, that ended within the batch, may have: "
        + AGAIN
    )


def test_the_class_survives_as_text(spec: Spec) -> None:
    with pytest.raises(SinkFailed) as caught, of_batch(spec, 0) as sinks, sinks.writing("dead-letters"):
        raise ValueError("two\nlines")
    trace = f"""Traceback (most recent call last):
  File "/x/penstock/pipeline/run/failures.py", line 1, in of_batch
penstock.pipeline.errors.SinkFailed: {caught.value}
"""
    cause = cause_of(PySparkException(trace))
    assert cause.kind is ErrorClass.UNKNOWN
    assert cause.sentence.startswith("dead_letters (topic dead): ValueError: two lines; no sink has batch 0")


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("CAST(value AS INT)", "[[steps]] one: "),
        ("CAST(key AS INT)", "[sources.s]: "),
        ("/home/me/mine/steps.py", "[[steps]] two: "),
        ("/home/me/steps.py", ""),
        ("", ""),
    ],
)
def test_the_step_is_known_by_its_code(spec: Spec, code: str, place: str) -> None:
    assert placed(spec, Cause(ErrorClass.USER_CODE, "wrong", code)).sentence == f"{place}wrong"


class Interrupted(Exception):
    """As Py4J raises what Java threw."""

    java_exception = SimpleNamespace(getMessage=lambda: "it broke")


@pytest.mark.parametrize(
    "kind",
    ["lang.InterruptedException", "io.InterruptedIOException", "nio.channels.ClosedByInterruptException"],
)
def test_a_batch_that_is_stopped_is_no_failure_of_a_sink(spec: Spec, kind: str) -> None:
    stopped = Interrupted(f"An error occurred while calling o1.collect.\n: java.{kind}\n\tat a")
    with pytest.raises(Interrupted) as raised, of_batch(spec, 1) as sinks, sinks.writing("results"):
        raise stopped
    assert raised.value is stopped  # Spark knows a stop by the text
    other = Interrupted(
        "An error occurred while calling o1.collect.\n: java.io.IOException: InterruptedException"
    )
    with pytest.raises(SinkFailed), of_batch(spec, 1):
        raise other


def test_a_source_that_cannot_be_read_is_named(spec: Spec) -> None:
    away = "reading persistent://public/default/in, partition 0, from offset 20: http://h:1 cannot be reached: refused"
    assert placed(spec, Cause(ErrorClass.BROKER, away)).sentence == f"[sources.s]: {away}"
    other = away.replace("/in,", "/other,")
    assert placed(spec, Cause(ErrorClass.BROKER, other)).sentence == other


@pytest.mark.parametrize(
    ("written", "has"), [(-1, "no sink has a batch"), (4, "every sink has the batches up to 4")]
)
def test_a_full_disk_under_the_checkpoint_says_what_is_written(spec: Spec, written: int, has: str) -> None:
    full = Cause(ErrorClass.UNKNOWN, "java.io.IOException: No space left on device")
    assert told(spec, at_checkpoint(full, "/s/sales", written)).sentence == (
        f"pipeline sales: the checkpoint in /s/sales cannot be used: No space left on device; {has}: the next run goes"
        " on there"
    )
    mine = Cause(ErrorClass.UNKNOWN, "ValueError: java.io.IOException: no")
    assert at_checkpoint(mine, "/s/sales", written) == mine
