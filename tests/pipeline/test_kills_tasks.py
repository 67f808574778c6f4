"""Tasks that raise, die and are cut off in the middle of their rows: what they did not finish is nowhere."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline import census, copying
from tests.support.fault_proxy import FaultProxy

from penstock.pipeline.run.handle import pipeline
from penstock.testing.server import running

pytestmark = [pytest.mark.crash]

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
COUNT = 20_000 if SOAK else 1600
WAIT_S = 500

# Rows go on a few at a time, so that their writer has sent some when the attempt ends: the first attempt of each
# task raises, the second one's process is killed.
STEPS = """
import os
import signal

from pyspark import TaskContext


def breaking(frame):
    def rows(batches):
        attempt, seen = TaskContext.get().attemptNumber(), 0
        for batch in batches:
            for start in range(0, batch.num_rows, 50):
                piece = batch.slice(start, 50)
                yield piece
                seen += piece.num_rows
                if seen >= 150 and attempt == 0:
                    raise RuntimeError("this attempt is meant to fail")
                if seen >= 150 and attempt == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

    return frame.mapInArrow(rows, frame.schema)


topic = table = both = breaking
"""


@pytest.mark.timeout(3600 if SOAK else 900)
def test_tasks_that_end_in_the_middle(spark: SparkSession, tmp_path: Path) -> None:
    with running(tmp_path / "data") as server, FaultProxy(server.port) as proxy:
        census.create(server.url, "in", 2)
        publisher = census.Publisher(server.url, "in", sizes=(0, 10_000, 40_000))
        publisher.publish(COUNT)
        (tmp_path / "steps.py").write_text(STEPS)
        # Reading is cut off too: the first answers with entries end in the middle.
        cuts = [proxy.at(r"GET /topics/\S+/messages", when="after") for _ in range(3)]
        runs = []
        # Else the few messages of both partitions would share a task.
        source = "min_partitions = 2"
        # Spark hands rows on to the writers in batches of so many.
        conf = '"spark.sql.execution.arrow.maxRecordsPerBatch" = 50'
        given = {"source": source, "spark": conf, "python": "steps:{name}"}
        for file in copying.write(tmp_path, rows=COUNT // 2, **given):
            runs.append(pipeline(file, spark, url=proxy.url).start(once=True))
        for run in runs:
            assert run.await_termination(WAIT_S)
        for cut in cuts:
            cut.wait(0)
        compared = copying.check(server.url, tmp_path)
        staged = {path.split("/")[4] for path in proxy.requests if path.startswith("PUT /stages/")}
        print(f"{len(staged)} stages, {compared} rows compared")
        assert len(staged) > 2 * 2 * 2, "attempts that failed had staged rows"
        assert compared > 3 * publisher.count
