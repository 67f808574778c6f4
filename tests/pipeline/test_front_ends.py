"""The source behind Spark's other front ends: Spark Connect and `spark-pipelines`, each in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.topics import TopicServer
from tests.support.entries import batch

from penstock.pipeline.java import find_java

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
writer = stream.selectExpr("offset", "CAST(value AS STRING) AS text").writeStream.format("parquet")
query = writer.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start(folder + "/out")
assert query.awaitTermination(120)
print(spark.read.parquet(folder + "/out").selectExpr("count(*)", "max(offset)").first())
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

spark = SparkSession.active()


@dp.table
def messages() -> DataFrame:
    reader = spark.readStream.format("penstock").option("url", "{url}").option("subscribe", "t")
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 12).load()


@dp.materialized_view
def counted() -> DataFrame:
    return spark.read.table("messages").selectExpr("count(*) AS n", "max(offset) AS last")
"""


@pytest.fixture
def filled(server: TopicServer) -> TopicServer:
    server.create("t")
    for n in range(3):
        server.append("t", batch([{"payload": b"%d" % n}] * 10))
    return server


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """A Spark of its own, as a user has it who did not start it by `session()`."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    environment |= {"JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )


def test_spark_connect(filled: TopicServer, tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, "-c", CONNECT, filled.url, str(tmp_path))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "Row(count(1)=30, max(offset)=29)",
        "Row(count(1)=25)",
        "Row(count(1)=30, max(offset)=29)",
    ]


def test_spark_pipelines(filled: TopicServer, tmp_path: Path) -> None:
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "flights.py").write_text(DEFINITIONS.replace("{url}", filled.url))
    command = str(Path(sys.executable).with_name("spark-pipelines"))
    done = run(tmp_path, command, "run", "--remote", "local[2]", "--conf", "spark.ui.enabled=false")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    found = list((tmp_path / "spark-warehouse").rglob("*.parquet"))
    assert {path.parent.name for path in found} >= {"messages", "counted"}
