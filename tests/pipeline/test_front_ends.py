"""The formats behind Spark's other front ends: Spark Connect and `spark-pipelines`, each in a process of its own."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.ahead import Done, Work

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.session import find_java
from penstock.testing.server import Address, launch

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

CONNECT = """
import sys
from pyspark.sql import SparkSession

url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
options = {"url": url, "subscribe": "t", "include": "event_time"}
print(spark.read.format("penstock").options(**options).load().selectExpr("count(*)", "max(offset)").first())
spark.sql(f"CREATE TABLE messages USING penstock OPTIONS (url '{url}', subscribe 't')")
print(spark.sql("SELECT count(*) FROM messages WHERE offset >= 5").first())
stream = spark.readStream.format("penstock").options(startingOffsets="earliest", **options).load()
rows = stream.selectExpr("offset", "CAST(value AS STRING) AS text")


def streamed(rows, sink, **options):
    writer = rows.writeStream.format(sink).options(checkpointLocation=f"{folder}/{sink}", **options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)


streamed(rows, "penstock_lake", path=folder + "/out")
streamed(rows.selectExpr("text AS value"), "penstock", url=url, topic="streamed")
table = spark.read.format("penstock_lake").load(folder + "/out")
print(table.selectExpr("count(*)", "max(offset)").first())
written = table.selectExpr("text AS value").write.format("penstock").mode("append")
for again in range(2):  # a repeat of the batch changes nothing
    written.options(url=url, topic="written", writer="w", batch="0").save()
table.write.format("penstock_lake").mode("append").save(folder + "/out")
print(spark.read.format("penstock_lake").load(folder + "/out").selectExpr("count(*)").first())
for topic in ("streamed", "written"):
    print(spark.read.format("penstock").options(url=url, subscribe=topic).load().selectExpr("count(*)").first())
spark.stop()
"""

SPEC = """
name: flights
storage: file://{folder}/storage
database: default
configuration:
  spark.sql.shuffle.partitions: "1"
libraries:
  - glob:
      include: transformations/**
"""

DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import Expectation, dead_letters, decode_column, expect, passed

spark = SparkSession.active()
even = Expectation(name="even", predicate="offset % 2 = 0", action="dead_letter")
few = Expectation(name="few", predicate="offset < 10", action="drop")
schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


def read() -> DataFrame:
    reader = spark.readStream.format("penstock").option("url", "{url}").option("subscribe", "t")
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 12).load()


@dp.table
def messages() -> DataFrame:
    return read()


@dp.temporary_view
def judged() -> DataFrame:
    return expect(spark.readStream.table("messages"), even, few)


@dp.table
def kept() -> DataFrame:
    return passed(spark.readStream.table("judged")).select("offset")


# Spark analyses these frames, which it refuses within a flow's function.
typed = decode_column(read().selectExpr("X'0A' AS payload"), "payload", schema, flat=True)
rejected = dead_letters(expect(read(), even, few))


@dp.table
def decoded() -> DataFrame:
    return typed


dp.create_sink("dead", "penstock", {"url": "{url}", "topic": "out", "deadLetterTopic": "dead"})


@dp.append_flow(target="dead")
def letters() -> DataFrame:
    return rejected


@dp.materialized_view
def counted() -> DataFrame:
    return spark.read.table("messages").selectExpr("count(*) AS n", "max(offset) AS last")
"""


def run(work: Work, *command: str) -> Done:
    """A Spark of its own, as a user has it who did not start it by `session()`."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    environment |= {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return work.run(command, timeout_s=240, environment=environment)


@contextmanager
def filled(folder: Path) -> Iterator[Address]:
    """A server whose topic `t` has 30 messages in 3 entries."""
    with launch(folder / "data") as server:
        with HttpClient(server.url) as client:
            for n in range(3):
                client.produce(TopicName.parse("t"), [{"value": str(n)}] * 10)
        yield server


def use_connect(work: Work) -> Done:
    with filled(work.folder) as server:
        return run(work, sys.executable, "-c", CONNECT, server.url, str(work.folder))


def use_pipelines(work: Work) -> tuple[Done, Path, list[str]]:
    transformations = work.folder / "transformations"
    transformations.mkdir()
    (work.folder / "spark-pipeline.yml").write_text(SPEC.format(folder=work.folder))
    command = str(Path(sys.executable).with_name("spark-pipelines"))
    with filled(work.folder) as server:
        (transformations / "flights.py").write_text(DEFINITIONS.replace("{url}", server.url))
        done = run(work, command, "run", "--remote", "local[2]", "--conf", "spark.ui.enabled=false")
        with HttpClient(server.url) as client:
            dead = client.read(TopicName.parse("dead"), 0)["messages"] if done.returncode == 0 else []
    return done, work.folder / "spark-warehouse", [each["properties"]["x-dlq-offset"] for each in dead]


@pytest.mark.ahead(work=use_connect)
def test_spark_connect(done: Done) -> None:
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "Row(count(1)=30, max(offset)=29)",
        "Row(count(1)=25)",
        "Row(count(1)=30, max(offset)=29)",
        "Row(count(1)=60)",
        "Row(count(1)=30)",
        "Row(count(1)=30)",
    ]


@pytest.mark.ahead(work=use_pipelines)
def test_spark_pipelines(done: tuple[Done, Path, list[str]]) -> None:
    ended, warehouse, dead = done
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    found = list(warehouse.rglob("*.parquet"))
    assert {path.parent.name for path in found} >= {"messages", "counted"}
    kept = [pq.ParquetFile(path).read() for path in found if path.parent.name == "kept"]
    assert sorted(pa.concat_tables(kept)["offset"].to_pylist()) == [0, 2, 4, 6, 8]
    decoded = [pq.ParquetFile(path).read() for path in found if path.parent.name == "decoded"]
    assert pa.concat_tables(decoded)["n"].to_pylist() == [5] * 30
    assert sorted(map(int, dead)) == list(range(1, 30, 2))
