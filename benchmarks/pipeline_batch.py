"""What a small batch of a declared pipeline costs, with sinks as users have them: a topic and a Delta table.

    python -m benchmarks.pipeline_batch [BATCHES [PIPELINE …]]

Three pipelines in one session, `local[2]`: rows as they come to a topic; to a topic and a table; and counted by
windows, with dead letters, to a topic and a table. Each batch has 100 messages. Prints JSON: the median and the least
time of a batch (Spark's `triggerExecution`), and the CPU time of all processes per batch. The first batches, in which
Spark compiles, are left out.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.run.handle import Pipeline
from penstock.pipeline.session import session
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import Launched

from .idle import cpu_s
from .spark_stream import family

ROWS = 100
WARM = 5
WAIT_S = 600

TOP = """
name = "{name}"
trigger = "50 milliseconds"
dead_letters = "dead"
[sources.s]
topics = ["{name}"]
[[steps]]
name = "read"
sql = '''
SELECT f.*, timestamp_seconds(f.s) AS at, key, value, properties, topic, partition, offset
FROM (SELECT *, from_json(CAST(value AS STRING), 'k STRING, n INT, s BIGINT') AS f FROM s)
'''
"""
WINDOWS = """
watermark = { column = "at", delay = "10 seconds", late = "dead_letter" }
[[steps]]
name = "counted"
sql = "SELECT window.start AS at, k, count(*) AS c FROM read GROUP BY window(at, '1 second'), k"
"""
SINKS = """
[sinks.topic]
input = "{input}"
topic = "{name}-out"
value = ["k"]
"""
TABLE = """
[sinks.table]
input = "{input}"
path = "{name}-table"
"""
PIPELINES = {
    "topic": TOP + SINKS.replace("{input}", "read"),
    "topic-and-table": TOP + (SINKS + TABLE).replace("{input}", "read"),
    "windows": TOP
    + WINDOWS.replace("{", "{{").replace("}", "}}")
    + (SINKS + TABLE).replace("{input}", "counted"),
}


class Heard:
    """The batches of a pipeline that had rows, as they are over."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.rows = 0
        self._news = threading.Condition()

    def __call__(self, event: dict[str, Any]) -> None:
        with self._news:
            if event.get("rows") and event.get("rows_total", 0) > self.rows:
                self.rows = event["rows_total"]
                self.batches.append(event["batch_ms"])
                self._news.notify_all()

    def until(self, rows: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.rows >= rows, WAIT_S), "no batch came"


def main() -> None:
    """Measure, and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    spark = session("bench", "local[2]")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Launched.start(folder / "data")
        try:
            for pipeline in sys.argv[2:] or PIPELINES:
                text = PIPELINES[pipeline]
                print(
                    json.dumps(
                        {"pipeline": pipeline} | measure(folder, server.url, spark, pipeline, text, count)
                    )
                )
        finally:
            server.terminate()
    spark.stop()


def measure(folder: Path, url: str, spark: Any, name: str, text: str, count: int) -> dict[str, float]:
    """Publish a batch at a time, and wait for it."""
    file = folder / f"{name}.toml"
    file.write_text(text.format(name=name))
    topic = TopicName.parse(name)
    heard = Heard()
    with HttpClient(url) as client:
        client.create_topic(topic, 2)
        running = Pipeline(load_spec(file, url=url, state=folder / "state"), spark, heard).start()
        try:
            before = 0.0
            for number in range(WARM + count):
                if number == WARM:
                    before = used_s()
                rows = [{"k": f"k{n % 5}", "n": n, "s": 1_000_000 + number * 20} for n in range(ROWS)]
                client.produce(topic, [{"key": row["k"], "value": json.dumps(row)} for row in rows])
                heard.until((number + 1) * ROWS)
            cpu = used_s() - before
        finally:
            running.stop()
    times = heard.batches[WARM:]
    return {
        "median_ms": statistics.median(times),
        "least_ms": min(times),
        "cpu_ms": round(cpu / count * 1000),
    }


def used_s() -> float:
    """CPU time of this process and all that came of it: Spark's JVM, its Python workers, the server."""
    found = 0.0
    for pid in family(os.getpid()):
        try:
            found += cpu_s(pid)
        except OSError:
            continue  # it has just ended
    return found


if __name__ == "__main__":
    main()
