"""What a cold start of a pipeline costs: wall time, and the CPU seconds of all its processes.

    python -m benchmarks.pipeline_start [ROUNDS]

- the pipeline of `make demo` over its 336,776 flights, in one process: Spark's start and the run, as the demo says them
- `penstock pipeline run --once` with a new state folder, over 2,000 messages, to a topic and a table
- `penstock pipeline check` of a file with a mistake that is found without Spark

Prints each run to stderr and then a table: median, least and most of the rounds. On a busy machine look at the CPU seconds alone.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from penstock.client.http import HttpClient
from penstock.demo.flights import publish_flights
from penstock.model.names import TopicName
from penstock.testing.server import launch

from .pipeline_idle import costs

MESSAGES: Final = 2_000
POLL_S: Final = 0.1
BOUND_S: Final = 600.0
PIPELINE: Final = """
name = "start"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT key, CAST(value AS STRING) AS text, timestamp AS at FROM s"
expect = [{ name = "short", predicate = "length(text) < 100", action = "drop" }]
[sinks.out]
input = "read"
value = "text"
topic = "out"
[sinks.table]
input = "read"
path = "table"
"""
MISTAKE: Final = PIPELINE.replace(
    'input = "read"\nvalue', 'input = "s"\nvalue'
)  # a source has no column `text`
DEMO: Final = "the demo's pipeline"
FILES: Final = {
    "run --once, 2,000 messages": (PIPELINE, "run", "--once"),
    "check, a mistake": (MISTAKE, "check"),
}


def main() -> None:
    """Measure, and print."""
    if sys.argv[1:2] == ["demo"]:
        run_demo(sys.argv[2], Path(sys.argv[3]))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with (
        tempfile.TemporaryDirectory() as name,
        launch(Path(name, "data"), "--set", "log.level=warning") as server,
    ):
        publish(server.url)
        found: dict[str, list[tuple[float, float, str]]] = {}
        for _ in range(rounds):
            for what in (DEMO, *FILES):
                one = measured(server.url, what)
                print(f"{what}: {one}", file=sys.stderr, flush=True)
                found.setdefault(what, []).append(one)
    print(f"{'':28} {'wall':>21} {'CPU':>21}  said")
    for what, each in found.items():
        wall, cpu = (spread([one[index] for one in each]) for index in (0, 1))  # type: ignore[misc]
        print(f"{what:28} {wall:>21} {cpu:>21}  {each[-1][2]}")


def spread(numbers: list[float]) -> str:
    """Median, least and most, in seconds."""
    return f"{statistics.median(numbers):.1f} s ({min(numbers):.1f} to {max(numbers):.1f})"


def publish(url: str) -> None:
    """The flights, and some small messages."""
    flights, small = TopicName.parse("flights"), TopicName.parse("in")
    with HttpClient(url) as client:
        client.create_topic(flights, 4)
        client.create_topic(small)
        values = [{"key": str(n % 7), "value": f"message {n}"} for n in range(MESSAGES // 2)]
        for _ in range(2):
            client.produce(small, values)
    publish_flights(url, flights, lambda _: None)


def measured(url: str, what: str) -> tuple[float, float, str]:
    """Wall and CPU seconds of a command, from its start to its end, and the last that it said."""
    with tempfile.TemporaryDirectory() as folder:
        if what == DEMO:
            command = [sys.executable, "-m", "benchmarks.pipeline_start", "demo", url, folder]
        else:
            text, *words = FILES[what]
            file = Path(folder, "start.toml")
            file.write_text(text)
            command = [sys.executable, "-m", "penstock", "pipeline", *words, str(file), "--url", url]
        began = time.perf_counter()
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            spent: dict[int, float] = {}  # CPU seconds, when it was last seen
            while process.poll() is None:
                spent |= {pid: cpu for (pid, _), cpu in costs(process.pid).items()}
                if time.perf_counter() - began > BOUND_S:
                    os.killpg(process.pid, signal.SIGKILL)
                time.sleep(POLL_S)
            wall = time.perf_counter() - began
            said = process.communicate()[0].strip().splitlines() or [""]
    if what == DEMO and process.returncode == 0:
        wall = sum(float(word) for word in said[-1].split() if word.replace(".", "").isdigit())
    wanted = 1 if what.startswith("check") else 0
    return (
        wall,
        sum(spent.values()),
        said[-1][:100] if process.returncode == wanted else f"FAILED: {said[-1]}",
    )


def run_demo(url: str, folder: Path) -> None:
    """The demo's pipeline as the demo runs it; says what the demo says."""
    from penstock.demo import delays, show

    began = time.perf_counter()
    with delays.Delays(url, folder, show.PIPELINE.read_text("utf-8")) as pipeline:
        ready = time.perf_counter()
        pipeline.run(lambda _: None)
        print(f"Spark's start {ready - began:.1f} s, the run {time.perf_counter() - ready:.1f} s")


if __name__ == "__main__":
    main()
