"""`penstock pipeline` as a process: what it says, how it ends, and what survives when Spark's process is killed."""

import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.support.ahead import Done, Work

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import Address, launch, running

needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs the extra spark")

IN, OUT = TopicName.parse("in"), TopicName.parse("out")

COPY = """
name = "copy"
trigger = "100 milliseconds"
spark."spark.sql.shuffle.partitions" = 1
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT CAST(value AS STRING) AS value FROM s"
[sinks.out]
input = "read"
topic = "out"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Address]:
    (tmp_path / "copy.toml").write_text(COPY)
    with running() as server:
        yield server


def command(folder: Path, url: str, *words: str) -> list[str]:
    verb, *rest = words
    start = [sys.executable, "-m", "penstock", "pipeline", verb, str(folder / "copy.toml"), "--url", url]
    return [*start, *(["--master", "local[1]"] if verb != "status" else []), *rest]


def call(folder: Path, url: str, *words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, url, *words), capture_output=True, text=True, timeout=timeout)


def publish(url: str, *values: str) -> None:
    with HttpClient(url) as client:
        client.produce(IN, [{"value": value} for value in values])


def copied(url: str) -> Counter[str]:
    with HttpClient(url) as client:
        return Counter(b64decode(m["value"]).decode() for m in client.read(OUT)["messages"])


def until(lines: Iterator[str], **wanted: Any) -> dict[str, Any]:
    for line in lines:
        event: dict[str, Any] = json.loads(line)
        if all(event.get(name) == value for name, value in wanted.items()):
            return event
    raise AssertionError(f"the run ended before {wanted}")


def refused(folder: Path, done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("penstock: ")
    assert done.stderr.count("\n") == 1
    assert not (folder / "penstock-pipelines").exists()
    return done.stderr


def test_what_cannot_run_is_said_before_spark_starts(server: Address, tmp_path: Path) -> None:
    missing = "copy.toml: [sources.s]: topic persistent://public/default/in does not exist"
    cases = [
        *((server.url, (verb,), missing) for verb in ("check", "run", "refresh", "preview")),
        (server.url, ("test",), "copy.toml has no [[tests]], and no file of tests beside it"),
        (
            server.url,
            ("backfill", "--from", "2026-01-31", "--to", "2026-02-01"),
            "a topic keeps its messages",
        ),
        (server.url, ("run", "--set", "steps.nothing.sql=SELECT 1"), "there is no 'nothing'; there are read"),
        ("http://127.0.0.1:1", ("run",), "http://127.0.0.1:1 cannot be reached"),
        (server.url, ("status",), "has not run yet"),
        (server.url, ("stop",), "is not running"),
        (server.url, ("reset", "--to", "2026-01-31"), "say --yes"),
        (server.url, ("reset", "--to", "soon", "--yes"), "is no time like"),
        (server.url, ("redrive",), "the pipeline has no dead_letters"),
    ]
    folders = [
        tmp_path / str(number) for number in range(len(cases))
    ]  # for one each: they run beside each other
    for folder in folders:
        folder.mkdir()
        (folder / "copy.toml").write_text(COPY)
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(call, folder, url, *words)
            for folder, (url, words, _) in zip(folders, cases, strict=True)
        ]
    for folder, run, (_, words, reason) in zip(folders, runs, cases, strict=True):
        assert reason in refused(folder, run.result()), words


@needs_spark
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_run_survives_a_kill_and_ends_when_asked(server: Address, tmp_path: Path) -> None:
    with HttpClient(server.url) as client:
        client.create_topic(IN)
    publish(server.url, "a", "b")
    process = subprocess.Popen(
        command(tmp_path, server.url, "run"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        lines = iter(process.stdout)
        until(lines, rows=2, state="running")
        second = call(tmp_path, server.url, "run", "--once")
        assert second.returncode == 1
        assert f"is in use by process {process.pid}: the pipeline is running" in second.stderr
        scratch = tmp_path / "penstock-pipelines" / "copy" / "scratch"
        left = set(scratch.glob("blockmgr-*"))
        assert left, "Spark's temporary files are in the state folder"
        # The worker, and nothing else of ours, is killed.
        (worker,) = _children(process.pid)
        os.kill(worker, signal.SIGKILL)
        publish(server.url, "c")
        lost = until(lines, state="restarting")
        assert lost["error"] == "Spark's process ended unexpectedly (signal SIGKILL)"
        until(lines, rows=1, state="running")
        assert not left & set(scratch.glob("blockmgr-*")), "and those of a killed run are gone"
        assert json.loads(call(tmp_path, server.url, "status").stdout)["running"] is True
        process.send_signal(signal.SIGTERM)
        until(lines, state="stopped")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert copied(server.url) == Counter("abc")
    assert not scratch.exists()
    assert json.loads(call(tmp_path, server.url, "status").stdout)["state"] == "stopped"
    assert "is not running" in call(tmp_path, server.url, "stop").stderr
    everybody = [sys.executable, "-m", "penstock", "pipeline", "status", "--url", server.url]
    listed = subprocess.run(everybody, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(listed.stdout)["state"] == "stopped"


def run_the_example(work: Work) -> Done:
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()
    declared, *_ = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (script,) = (block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "run --once" in block)
    (work.folder / "sales.toml").write_text(declared)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with launch(work.folder / "data") as server:
        environment = {**os.environ, "PATH": path, "PENSTOCK_URL": server.url}
        done = work.run(["bash", "-euo", "pipefail", "-c", script], timeout_s=500, environment=environment)
    assert done.returncode or (work.folder / "history" / "_delta_log").is_dir()
    return done


@needs_spark
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.ahead(work=run_the_example)
def test_the_example_of_the_docs_works_as_printed(done: Done) -> None:
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    sold = next(line["value"] for line in said if line.get("key") == "tea")
    assert (sold["product"], sold["sold"], sold["revenue"]) == ("tea", 1, 3.5)
    (dead,) = (line for line in said if "x-dlq-error" in (line.get("properties") or {}))
    assert b64decode(dead["value"]) == b"not an order"
    assert said[-1]["state"] == "stopped"
    assert said[-1]["rejected"] == 1


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
    pairs = (map(int, line.split()) for line in found.stdout.splitlines())
    return [child for child, parent in pairs if parent == pid]
