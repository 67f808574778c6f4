"""Checkpoints as a power cut or a copy leaves them, and the stream whose they are."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.client.http import HttpClient
from penstock.model.names import TopicName

WAIT_S = 500  # for a run on a busy machine


def publish(url: str, topic: str, first: int, until: int) -> None:
    """The numbers `first .. until-1`, a message each, in their order."""
    with HttpClient(url) as client:
        for start in range(first, until, 500):
            numbers = range(start, min(start + 500, until))
            client.produce(TopicName.parse(topic), [{"value": str(n)} for n in numbers])


def source(spark: SparkSession, url: str, topic: str, rows_max: int, **options: str) -> DataFrame:
    """What is new in a topic, `rows_max` in a batch."""
    reader = spark.readStream.format("penstock").options(
        url=url, subscribe=topic, maxOffsetsPerTrigger=rows_max
    )
    return reader.options(**({"startingOffsets": "earliest"} | options)).load().select("value")


def run(frame: DataFrame, format: str, checkpoint: Path, **options: Any) -> None:
    """Write what is there. Raises what the query fails with."""
    writer = frame.writeStream.format(format).options(**options).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)


def roll_back(checkpoint: Path, batches: int) -> list[int]:
    """Take the last batches out of a checkpoint; returns their numbers."""
    there = sorted(int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit())
    gone = there[-batches:]
    for log in ("offsets", "commits"):
        for number in gone:
            (checkpoint / log / str(number)).unlink(missing_ok=True)
            (checkpoint / log / f".{number}.crc").unlink(missing_ok=True)
    return gone


def lose_commit(checkpoint: Path) -> int:
    """Let the last batch be one that was written, and that Spark does not know to be over; returns its number."""
    number = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / str(number)).unlink()
    (checkpoint / "commits" / f".{number}.crc").unlink(missing_ok=True)
    return number
