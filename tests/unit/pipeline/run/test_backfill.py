"""What a backfill replaces: the sinks, the time of their rows, and the range as a column has it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import DateType, LongType, StructField, StructType, TimestampNTZType, TimestampType

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.backfill import Backfill, bounds, plan_backfill
from penstock.pipeline.spec.parse import parse_spec
from penstock.pipeline.spec.spec import Spec

FILE = """
name = "hours"
[sources.s]
topics = ["t"]
[[steps]]
name = "read"
sql = "SELECT * FROM s"
watermark = { column = "timestamp", delay = "2 hours" }
[sinks.days]
input = "read"
path = "days"
partition_by = ["k", "day(at)"]
[sinks.plain]
input = "read"
path = "plain"
[sinks.topic]
input = "read"
topic = "u"
event_time = "timestamp"
"""

ROWS = StructType(
    [
        StructField("at", TimestampType()),
        StructField("local", TimestampNTZType()),
        StructField("day", DateType()),
        StructField("event_time", LongType()),
        StructField("n", LongType()),
    ]
)


def spec_of(text: str = FILE, zone: str = "UTC") -> Spec:
    return parse_spec(
        tomllib.loads(f'{text}\n[spark]\n"spark.sql.session.timeZone" = "{zone}"'), "p.toml", Path("/p")
    )


def test_the_time_of_each_sink_is_known_or_named() -> None:
    spec, plan = plan_backfill(
        spec_of(), "2026-01-31T00:00:00Z", "2026-02-01", columns={"plain": "at"}, append_topics=True
    )
    assert [*spec.sinks] == ["days", "plain", "topic"]
    assert plan.columns == {"days": "at", "plain": "at", "topic": "event_time"}
    assert (plan.start, plan.end, plan.margin) == (1769817600000, 1769904000000, 26 * 3_600_000)
    spec, plan = plan_backfill(spec_of(), 1, 2, sinks=["days"], columns={"days": "other"}, margin="1 minute")
    assert [*spec.sinks] == ["days"]
    assert (plan.columns, plan.margin) == ({"days": "other"}, 60_000)


@pytest.mark.parametrize(
    ("arguments", "change", "sentence"),
    [
        (
            {},
            ("", ""),
            "[sinks.plain]: which rows are of the range is not known: name the column of their time with --column",
        ),
        ({"columns": {"plain": "at"}}, ("", ""), "[sinks.topic]: a topic keeps its messages"),
        ({"sinks": ["hours"]}, ("", ""), "there is no sink 'hours'; there are days, plain, topic"),
        ({"columns": {"hours": "at"}}, ("", ""), "there is no sink 'hours'; there are days, plain, topic"),
        (
            {"sinks": ["days"]},
            ("[sinks.plain]", 'keys = ["k"]\n[sinks.plain]'),
            "[sinks.days]: keys: a row of the range may replace one outside of it, as at is not among the keys",
        ),
        (
            {"sinks": ["days"]},
            ('"day(at)"', '"day(at)", "month(on)"'),
            "[sinks.days]: which rows are of the range is not known",
        ),
        (
            {"columns": {"plain": "at"}, "append_topics": True},
            ("[sinks.plain]", 'keys = ["k", "at"]\n[sinks.plain]'),
            "tables with keys (days) are computed from all messages until now, and the others are not",
        ),
        (
            {"sinks": ["topic"], "append_topics": True},
            ('event_time = "timestamp"', ""),
            "[sinks.topic]: which rows are of the range is not known: event_time is missing",
        ),
        (
            {"sinks": ["days"], "margin": "long"},
            ("", ""),
            "the range: 'long' is no duration like '10 minutes'",
        ),
        (
            {"sinks": ["days"], "end": "soon"},
            ("", ""),
            "the range: 'soon' is no time like 2026-01-31T08:00:00Z",
        ),
        (
            {"sinks": ["days"], "end": "2026-01-31"},
            ("", ""),
            "the range ends at 2026-01-31T00:00:00Z, and begins at 2026-01-31T00:00:00Z, which is not before",
        ),
    ],
)
def test_what_cannot_be_known_is_refused(
    arguments: dict[str, Any], change: tuple[str, str], sentence: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        plan_backfill(
            spec_of(FILE.replace(*change)), **{"start": "2026-01-31", "end": "2026-02-01"} | arguments
        )
    assert sentence in refused.value.message


@pytest.mark.parametrize(
    ("zone", "column", "low", "high"),
    [
        ("Europe/Berlin", "at", "2026-01-30T23:00:00Z", "2026-01-31T23:00:00Z"),
        ("Europe/Berlin", "local", "2026-01-31T00:00:00", "2026-02-01T00:00:00"),
        ("Europe/Berlin", "day", "2026-01-31", "2026-02-01"),
        ("+01:00", "day", "2026-01-31", "2026-02-01"),
        ("UTC", "event_time", "1769814000000", "1769900400000"),
    ],
)
def test_the_range_as_a_column_has_it(zone: str, column: str, low: str, high: str) -> None:
    plan = Backfill(start=1769814000000, end=1769900400000, margin=0, columns={})
    assert bounds(spec_of(zone=zone), ROWS, plan, column) == (low, high)


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ("day", "column day is a date: a range of it begins and ends at midnight in UTC"),
        ("n", "column n is bigint, not a time"),
        ("other", "there is no column 'other'; there are at, local, day, event_time, n"),
    ],
)
def test_columns_that_have_no_range(column: str, sentence: str) -> None:
    plan = Backfill(start=1769814000000, end=1769900400000, margin=0, columns={})
    with pytest.raises(PipelineError) as refused:
        bounds(spec_of(), ROWS, plan, column)
    assert refused.value.message == sentence
