"""Times and days are those of the file's zone, UTC by default, whatever the zone of the session that runs it."""

import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.declared import WAIT_S, Bench

from penstock.testing.server import running

ZONE = "spark.sql.session.timeZone"
FEBRUARY = datetime(2026, 2, 1, 2, tzinfo=UTC)  # the evening of January's last day in New York


@pytest.fixture
def elsewhere(spark: SparkSession) -> SparkSession:
    session = spark.newSession()
    session.conf.set(ZONE, "America/New_York")
    return session


def rows(spark: SparkSession, path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return [
        tuple(row)
        for row in spark.read.format("penstock_lake").load(str(path)).selectExpr(*columns).collect()
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (date(2026, 2, 1), date(2026, 2, 1))),
        ({"timeZone": "America/New_York"}, (date(2026, 1, 31), date(2026, 1, 1))),
        ({"timeZone": "-03:00"}, (date(2026, 1, 31), date(2026, 1, 1))),
        ({"keys": "n"}, (date(2026, 2, 1), date(2026, 2, 1))),
    ],
)
def test_days_and_months_of_a_table_are_those_of_its_zone(
    elsewhere: SparkSession,
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, str],
    expected: tuple[date, date],
) -> None:
    times = elsewhere.createDataFrame([(1, FEBRUARY)], "n INT, at TIMESTAMP").coalesce(1)
    by = {"day": "day(at)", "month": "month(at)"}
    found = []
    for unit, partitions in by.items():
        path = tmp_path / unit
        for _ in range(2):  # the second write takes the partitions from the table
            writer = times.write.format("penstock_lake").mode("append").options(**options)
            writer.options(**({"partitionBy": partitions} if not path.exists() else {})).save(str(path))
        assert {row[:2] for row in rows(spark, path, "n", "unix_seconds(at)")} == {(1, FEBRUARY.timestamp())}
        (part,) = {row[0] for row in rows(spark, path, f"at_{unit}")}
        found.append(part)
    assert tuple(found) == expected


def test_a_zone_that_is_none_is_refused(elsewhere: SparkSession, tmp_path: Path) -> None:
    frame = elsewhere.range(1).selectExpr("id", "current_timestamp() AS at")
    with pytest.raises(Exception, match="option timeZone: 'Mars/Olympus' is no time zone"):
        frame.write.format("penstock_lake").mode("append").option("timeZone", "Mars/Olympus").save(
            str(tmp_path / "t")
        )


TIMES = """
name = "{name}"
state = "state"
[server]
url = "{url}"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = '''
SELECT at, CAST(at AS STRING) AS text, hour(at) AS h
FROM (SELECT to_timestamp(CAST(value AS STRING)) AS at FROM s)
'''
[sinks.table]
input = "read"
path = "{name}"
partition_by = ["month(at)"]
[sinks.topic]
input = "read"
topic = "{name}"
[spark]
{setting}
"""

PROGRAM = f"""
import sys
from penstock.pipeline.run import pipeline
from penstock.pipeline.session import session
spark = session("elsewhere", "local[2]", **{{"{ZONE}": "America/New_York"}})
for file in sys.argv[1:]:
    pipeline(file, spark).start(once=True).await_termination()
print("afterwards", spark.conf.get("{ZONE}"))
"""


def test_a_file_means_the_same_in_every_session(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever hands in a session, and all that are made of it, may have any zone."""
    settings = {"plain": "", "tokyo": f'"{ZONE}" = "Asia/Tokyo"'}
    with running() as server:
        bench = Bench(tmp_path, server.url, spark)
        bench.create("in")
        bench.publish("in", ["2026-02-01 02:00:00"])
        files = [
            bench.file(TIMES.format(name=name, url=server.url, setting=setting), f"{name}.toml")
            for name, setting in settings.items()
        ]
        environment = {name: text for name, text in os.environ.items() if name != "PYSPARK_GATEWAY_PORT"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, files)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.stdout == "afterwards America/New_York\n", done.stderr[-4000:]
        messages = {name: bench.messages(name) for name in settings}
    instants = {"plain": FEBRUARY, "tokyo": datetime(2026, 1, 31, 17, tzinfo=UTC)}
    for name, instant in instants.items():
        (row,) = rows(spark, tmp_path / name, "unix_seconds(at)", "at_month", "text", "h")
        assert row == (instant.timestamp(), date(2026, 2, 1), "2026-02-01 02:00:00", 2)
        (message,) = messages[name]
        assert message["value"]["h"] == 2
        assert datetime.fromisoformat(str(message["value"]["at"])) == instant
