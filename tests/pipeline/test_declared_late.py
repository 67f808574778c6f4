"""Late rows are found by Spark's own plan: it counts, whatever the spelling, what it counts without us."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from tests.pipeline.declared import Bench

from penstock.pipeline.run.lateness import Window, bound_us, deciding_windows, marked
from penstock.testing.server import running

MINUTE = 60_000_000
HOUR = 60 * MINUTE


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path_factory.mktemp("late"), server.url, spark)


COUNTED = '''
name = "{name}"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "{name}-dead"
[sources.s]
topics = ["{name}"]
[[steps]]
name = "read"
sql = "SELECT timestamp_seconds(CAST(CAST(value AS STRING) AS BIGINT)) AS at, value FROM s"
watermark = {{ column = "at", delay = "0 seconds", late = "dead_letter" }}
[[steps]]
name = "counted"
sql = """SELECT window.start AS at, count(*) AS c FROM read GROUP BY {window}"""
[sinks.out]
input = "counted"
topic = "{name}-out"
value = ["c"]
'''


@pytest.mark.parametrize(
    "window",
    [
        "window(at, '1 minute')",
        'window(at, "1 minute")',
        "window(at, 60000000)",
        "window(at, '0 hours 1 minute')",
    ],
)
def test_four_spellings_count_alike(bench: Bench, window: str, request: pytest.FixtureRequest) -> None:
    name = f"spelled-{request.node.callspec.indices['window']}"
    text = COUNTED.format(name=name, window=window)
    bench.create(name)
    bench.publish(name, ["6000", "6030"])  # the watermark: half a minute into the window
    bench.run_once(text)
    bench.publish(name, ["6010", "5990"])  # older than the watermark: one of an open window, one of a closed
    bench.publish(name, ["6100"])
    last = bench.run_once(text)
    assert [message["value"]["c"] for message in bench.messages(f"{name}-out")] == [3]
    assert [message["value"] for message in bench.messages(f"{name}-dead")] == ["5990"]
    assert last["late_unseen"] == 0


MADE = "SELECT window(at, '1 hour') AS w, at, k FROM read"


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT count(*) FROM read GROUP BY window(at, '1 hour'), k", {Window(HOUR, HOUR)}),
        ("SELECT count(*) FROM read GROUP BY k, WINDOW (at, 3600000000)", {Window(HOUR, HOUR)}),
        (
            "SELECT count(*) FROM read GROUP BY window(at, '2 hours', '30 minutes', '5 minutes')",
            {Window(2 * HOUR, HOUR // 2, 5 * MINUTE)},
        ),
        (
            "SELECT count(*) FROM read GROUP BY window(at, '10 hours', '4 hours')",
            {Window(10 * HOUR, 4 * HOUR)},
        ),
        ("SELECT count(*) FROM read GROUP BY window(at, '1500 microseconds')", {Window(1500, 1500)}),
        (f"SELECT w.start, count(*) FROM ({MADE}) GROUP BY w", {Window(HOUR, HOUR)}),
        (f"WITH made AS ({MADE}) SELECT count(*) FROM made GROUP BY w", {Window(HOUR, HOUR)}),
        (f"SELECT DISTINCT w, k FROM ({MADE})", {Window(HOUR, HOUR)}),
        (
            "SELECT count(*) FROM (SELECT window(at, '1 hour') AS w FROM read UNION ALL"
            " SELECT window(at, '2 hours') FROM read) GROUP BY w",
            {Window(HOUR, HOUR), Window(2 * HOUR, 2 * HOUR)},
        ),
        (
            "WITH made AS (SELECT at AS t, k FROM read) SELECT count(*) FROM made AS one JOIN made AS other"
            " ON one.k = other.k AND one.t = other.t",
            {None},
        ),
        (
            f"WITH made AS ({MADE}) SELECT 1 FROM (SELECT w, k FROM made) AS one JOIN (SELECT w, k FROM made) AS other"
            " ON one.k = other.k AND one.w = other.w",
            {Window(HOUR, HOUR)},
        ),
        # Behind the first operator the watermark is another.
        (
            "SELECT count(*) FROM (SELECT window, count(*) AS c FROM read GROUP BY window(at, '1 hour'))"
            " GROUP BY window(window, '1 day')",
            {Window(HOUR, HOUR)},
        ),
        ("SELECT count(*) FROM read GROUP BY session_window(at, '5 minutes')", {None}),
        ("SELECT count(*) FROM read GROUP BY at", {None}),
        ("SELECT DISTINCT at, k FROM read", {None}),
        ("SELECT read.k FROM read JOIN prices ON read.k = prices.k -- window(at, '9 days')", set()),
        ("SELECT k, 'GROUP BY window(at, ''1 hour'')' FROM read", set()),
        ("SELECT k, count(*) FROM read GROUP BY k", set()),
    ],
)
def test_the_plan_says_what_decides(spark: SparkSession, sql: str, expected: set[Window | None]) -> None:
    assert decisive(spark, lambda read: read.sparkSession.sql(sql)) == expected


TIMES = [-(10**13), -61_000_001, -1, 0, 1, 59_999_999, 60_000_000, 3_599_999_999, 1_769_846_400_123_456]


@pytest.mark.parametrize(
    "given", ["'1 minute'", "'1 hour', '7 minutes'", "'10 hours', '4 hours', '-90 minutes'"]
)
def test_the_bound_is_the_end_of_the_last_window_that_spark_puts_a_time_in(
    spark: SparkSession, given: str
) -> None:
    rows = spark.createDataFrame([(each,) for each in TIMES], "us BIGINT")
    rows = rows.selectExpr("us", "timestamp_micros(us) AS at")
    ends = (
        rows.selectExpr("us", f"unix_micros(window(at, {given}).end) AS end").groupBy("us").agg(f.max("end"))
    )
    windows = decisive(spark, lambda read: read.groupBy(f.expr(f"window(at, {given})")).count())
    assert rows.select("us", bound_us(f.col("at"), windows)).sort("us").collect() == ends.sort("us").collect()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (lambda read: read.groupBy(f.window("at", "1 hour"), "k").count(), {Window(HOUR, HOUR)}),
        (
            lambda read: read.groupBy(f.window(read.at, "1 hour", "20 minutes")).count(),
            {Window(HOUR, HOUR // 3)},
        ),
        (lambda read: read.withColumnRenamed("at", "t").dropDuplicatesWithinWatermark(["k"]), {None}),
        (lambda read: read.select(f.window("at", "1 hour"), "k").dropDuplicates(), {Window(HOUR, HOUR)}),
        (lambda read: read.select("k", f.lit(1)), set()),
    ],
)
def test_frames_of_python_are_plans_too(
    spark: SparkSession, step: Callable[[DataFrame], DataFrame], expected: set[Window | None]
) -> None:
    assert decisive(spark, step) == expected


def decisive(spark: SparkSession, step: Callable[[DataFrame], DataFrame]) -> Any:
    """What decides which rows of `read` are late."""
    mine = spark.newSession()
    rows = mine.readStream.format("rate").load().selectExpr("timestamp AS at", "value AS k")
    marked(rows, "at", 7).createOrReplaceTempView("read")
    mine.range(3).withColumnRenamed("id", "k").createOrReplaceTempView("prices")
    found = deciding_windows(step(mine.table("read")))
    assert found.keys() <= {7}
    return found.get(7, set())
