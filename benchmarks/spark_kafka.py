"""Spark over Penstock, beside Spark's own Kafka connector over Kafka: batches, streams, copies from topic to topic.

    python -m benchmarks.spark_kafka [--rows 1000000] [--rounds 5] [--only WORD,WORD] [--sides WORD,WORD] [--connector 4.2.0] [--folder DIR]

Four sides: Penstock's embedded engine; one Penstock process before the Kafka, which is read through that process; the same with
`fetch=direct`, where tasks read the brokers; and Spark's connector over that same Kafka, to which the others are compared. They
are measured in turns in one session of Spark, so that a ratio is that of neighbours in time; lines show medians and, of ratios,
the least and the most. Kafka is that of the tests (`scripts/kafka.sh fetch`), one node whose data lies beside Penstock's; the
connector comes from Maven Central. All have the same rows, of 125 bytes, in 4 partitions, and write into topics of 4 partitions.
Penstock's copies are exactly once, also before Kafka; Kafka's connector knows at least once. What is decoded are Avro records of
a number and a text, by `from_avro` on the connector's side.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.avro.functions import from_avro, to_avro
from tests.support import kafka_broker

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.session import session

from . import servers

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
AVRO: Final = "org.apache.spark:spark-avro_2.13"
NEWEST: Final = "4.2.0"  # that Maven Central has; it works with Spark 4.3
SCHEMA: Final = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}],
}
PARTITIONS: Final = 4
VALUE_BYTES: Final = 125
MICRO_BATCH: Final = 25_000
TIMEOUT_S: Final = 60.0


class Side(NamedTuple):
    """One of them: its data source in Spark, how that reaches it, and how its topics are made."""

    name: str
    format: str
    server: dict[str, str]
    make: Callable[[str], None]
    filled: str  # the topic that is read; sides that share one cluster share it, too
    read_only: Mapping[str, str] | None = None  # options of reading; such a side is not written to

    def options(self, **more: str) -> dict[str, str]:
        return self.server | more

    def reading(self, **more: str) -> dict[str, str]:
        return self.server | dict(self.read_only or {}) | more


class Case(NamedTuple):
    """What is measured: `work` returns seconds."""

    name: str
    unit: str  # rows/s or ms
    work: Callable[[Side], float]
    writes: bool = False  # then sides that only read are left out


def rows_of(spark: SparkSession, rows: int) -> DataFrame:
    """The rows that are written: a value of 125 bytes, no key."""
    return spark.range(0, rows, 1, PARTITIONS).selectExpr(
        f"CAST(rpad(concat_ws('-', id, sha2(string(id), 256)), {VALUE_BYTES}, 'x') AS BINARY) AS value"
    )


class Bench:
    """The cases over one session; topics that are written to are new for each run."""

    def __init__(self, spark: SparkSession, rows: int, folder: Path) -> None:
        self._spark = spark
        self._rows = rows
        self._folder = folder
        self._numbers = iter(range(10_000))
        self._source = rows_of(spark, rows).persist()
        self._source.count()

    def cases(self) -> list[Case]:
        return [
            Case("batch write", "rows/s", self.write, writes=True),
            Case("scan", "rows/s", self.scan),
            Case("count(*)", "rows/s", self.count),
            Case("stream to noop, available now", "rows/s", self.stream),
            Case("topic to topic, available now", "rows/s", self.copy, writes=True),
            Case(f"batch of {MICRO_BATCH:,} to noop", "ms", self.micro),
            Case(f"batch of {MICRO_BATCH:,} to a topic", "ms", self.micro_copy, writes=True),
            Case("scan, decoded", "rows/s", self.scan_decoded),
            Case("stream, decoded, to noop", "rows/s", self.stream_decoded),
        ]

    def fill(self, side: Side, by: Side) -> None:
        """The topics that are read; `by` writes them."""
        for topic in (side.filled, _typed(side)):
            side.make(topic)
        self._save(by, side.filled)
        with HttpClient(side.server["url"]) as client:
            body = {"type": "AVRO", "schema": json.dumps(SCHEMA), "properties": {}}
            client.call("POST", f"/admin/v2/schemas/public/default/{_typed(side)}/schema", body=body)
        rows = self._source.selectExpr("struct(crc32(value) AS id, string(value) AS text) AS value")
        if by.format == "kafka":
            rows = rows.select(to_avro("value", json.dumps(SCHEMA)).alias("value"))
        rows.write.format(by.format).options(**by.options(topic=_typed(side))).mode("append").save()

    def write(self, side: Side) -> float:
        topic = self._topic(side)
        return timed(lambda: self._save(side, topic))

    def scan(self, side: Side) -> float:
        return timed(lambda: self._filled(side).write.format("noop").mode("overwrite").save())

    def scan_decoded(self, side: Side) -> float:
        return timed(
            lambda: self._decoded(side, self._spark.read).write.format("noop").mode("overwrite").save()
        )

    def stream_decoded(self, side: Side) -> float:
        def work() -> None:
            self._run(self._decoded(side, self._spark.readStream, startingOffsets="earliest"), "noop", {})

        return timed(work)

    def _decoded(self, side: Side, reader: Any, **options: str) -> DataFrame:
        frame = reader.format(side.format).options(**side.reading(subscribe=_typed(side), **options))
        if side.format == "penstock":
            return frame.option("value.decode", "flat").load()
        return frame.load().select(from_avro("value", json.dumps(SCHEMA)).alias("row")).select("row.*")

    def count(self, side: Side) -> float:
        def work() -> None:
            assert self._filled(side).count() == self._rows

        return timed(work)

    def stream(self, side: Side) -> float:
        return timed(lambda: self._available(side, "noop", {}))

    def copy(self, side: Side) -> float:
        topic = self._topic(side)
        taken = timed(lambda: self._available(side, side.format, side.options(topic=topic)))
        read = self._spark.read.format(side.format).options(**side.options(subscribe=topic))
        assert read.load().count() == self._rows
        return taken

    def micro(self, side: Side) -> float:
        return self._micro(side, "noop", {})

    def micro_copy(self, side: Side) -> float:
        return self._micro(side, side.format, side.options(topic=self._topic(side)))

    def _micro(self, side: Side, sink: str, options: dict[str, str]) -> float:
        progress = self._available(side, sink, options, maxOffsetsPerTrigger=str(MICRO_BATCH))
        ms = [each["durationMs"]["triggerExecution"] for each in progress if each["numInputRows"]]
        return statistics.median(ms[1:]) / 1000

    def _topic(self, side: Side) -> str:
        topic = f"t{next(self._numbers)}"
        side.make(topic)
        return topic

    def _save(self, side: Side, topic: str) -> None:
        writer = self._source.write.format(side.format).options(**side.options(topic=topic))
        writer.mode("append").save()

    def _filled(self, side: Side) -> DataFrame:
        return self._spark.read.format(side.format).options(**side.reading(subscribe=side.filled)).load()

    def _available(
        self, side: Side, sink: str, options: dict[str, str], **reading: str
    ) -> Sequence[dict[str, Any]]:
        """Stream what there is, and end; returns the progress of each batch."""
        source = side.reading(subscribe=side.filled, startingOffsets="earliest", **reading)
        frame = self._spark.readStream.format(side.format).options(**source).load()
        if sink != "noop":
            frame = frame.select("key", "value")
        return self._run(frame, sink, options)

    def _run(self, frame: DataFrame, sink: str, options: dict[str, str]) -> Sequence[dict[str, Any]]:
        with tempfile.TemporaryDirectory(dir=self._folder) as checkpoint:
            writer = frame.writeStream.format(sink).options(**options)
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            query = writer.start()
            query.awaitTermination()
            progress = [dict(each) for each in query.recentProgress]
        assert sum(each["numInputRows"] for each in progress) == self._rows
        return progress


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def compare(case: Case, sides: Sequence[Side], rounds: int, rows: int) -> None:
    """Run all sides in turns, and print a line for each; the first round warms up. The last is what the others are compared
    with."""
    taken: dict[str, list[float]] = {side.name: [] for side in sides}
    for number in range(rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            seconds = case.work(side)
            if number:
                taken[side.name].append(seconds)
    theirs = taken[sides[-1].name]
    for name, ours in taken.items():
        median = statistics.median(ours)
        shown = f"{median * 1000:10,.0f} ms" if case.unit == "ms" else f"{rows / median:10,.0f}/s"
        ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
        print(
            f"{case.name:34} {name:24} {shown}   speed ratio {statistics.median(ratios):5.2f}"
            f" ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="words of the cases' names, separated by commas")
    parser.add_argument(
        "--sides",
        default="",
        help="words of the sides' names, separated by commas; the last is always compared",
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--connector", default=NEWEST, help=f"its version (default: {NEWEST})")
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=given.folder))
    packages = f"{CONNECTOR}:{given.connector},{AVRO}:{given.connector}"
    conf = {"spark.driver.memory": "2g", "spark.jars.packages": packages}
    spark = session("benchmark", given.master, **conf)
    try:
        with (
            kafka_broker.standalone(_made(folder / "kafka")) as cluster,
            servers.penstock(folder=_made(folder / "penstock")) as server,
            servers.penstock("--engine", cluster.service_url, folder=folder) as gateway,
        ):
            before = _penstock("Penstock before Kafka", gateway.port)
            brokers = {"fetch": "direct", "kafka.bootstrap.servers": cluster.bootstrap}
            direct = before._replace(name="the same, fetch=direct", read_only=brokers)
            sides = [
                _penstock("Penstock, embedded", server.port),
                before,
                direct,
                _kafka(cluster.bootstrap),
            ]
            words = given.sides.split(",")
            sides = [one for one in sides[:-1] if any(word in one.name for word in words)] + sides[-1:]
            bench = Bench(spark, given.rows, folder)
            if sides[0].name.endswith("embedded"):
                bench.fill(sides[0], sides[0])
            bench.fill(before, sides[-1])
            print(f"{given.rows:,} rows of {VALUE_BYTES} bytes, {PARTITIONS} partitions, {given.master}")
            for case in bench.cases():
                if any(word in case.name for word in given.only.split(",")):
                    able = [side for side in sides if not case.writes or side.read_only is None]
                    compare(case, able, given.rounds, given.rows)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _typed(side: Side) -> str:
    """The topic whose values are decoded."""
    return f"{side.filled}-typed"


def _penstock(name: str, port: int) -> Side:
    url = f"http://127.0.0.1:{port}"

    def make(topic: str) -> None:
        with HttpClient(url) as client:
            client.create_topic(TopicName.parse(topic), PARTITIONS)

    return Side(name, "penstock", {"url": url}, make, "filled")


def _kafka(bootstrap: str) -> Side:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(topic: str) -> None:
        for done in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
            done.result(TIMEOUT_S)

    return Side("Kafka's connector", "kafka", {"kafka.bootstrap.servers": bootstrap}, make, "filled")


if __name__ == "__main__":
    main()
