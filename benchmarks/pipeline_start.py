"""What a cold start of a pipeline costs: wall time, and the CPU seconds of all its processes.

    python -m benchmarks.pipeline_start [RUNS]

Each run is `penstock pipeline run --once` with a new state folder, over 2,000 messages, to a topic and a table; and
`penstock pipeline check` of a file with a mistake that can be found without Spark. Prints a line of JSON each. On a busy
machine look at the CPU seconds alone.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import running

from .pipeline_idle import costs

MESSAGES = 2_000
POLL_S = 0.1
PIPELINE = """
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
MISTAKE = PIPELINE.replace('input = "read"\nvalue', 'input = "s"\nvalue')  # a source has no column `text`


def main() -> None:
    """Measure, and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with running() as server, HttpClient(server.url) as client:
        client.create_topic(TopicName.parse("in"))
        values = [{"key": str(n % 7), "value": f"message {n}"} for n in range(MESSAGES // 2)]
        for _ in range(2):
            client.produce(TopicName.parse("in"), values)
        for text, *words in ((PIPELINE, "run", "--once"), (MISTAKE, "check")):
            for _ in range(runs):
                print(
                    json.dumps({"command": " ".join(words), **measured(server.url, text, *words)}), flush=True
                )


def measured(url: str, text: str, *words: str) -> dict[str, object]:
    """One command, from its start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "start.toml")
        file.write_text(text)
        command = [sys.executable, "-m", "penstock", "pipeline", *words, str(file), "--url", url]
        began = time.perf_counter()
        with subprocess.Popen([*command, "--master", "local[2]"], stdout=subprocess.DEVNULL) as process:
            spent: dict[int, tuple[str, float]] = {}  # when it was last seen: what, and CPU seconds
            while process.poll() is None:
                for (pid, what), cpu in costs(process.pid).items():
                    spent[pid] = (what or spent.get(pid, ("",))[0], cpu)
                time.sleep(POLL_S)
            wall = time.perf_counter() - began
    of = {
        kind: sum(cpu for what, cpu in spent.values() if what.startswith(kind)) for kind in ("java", "python")
    }
    return {
        "exit": process.returncode,
        "wall_s": round(wall, 1),
        "cpu_s": round(sum(cpu for _, cpu in spent.values()), 1),
        **{f"{kind}_cpu_s": round(cpu, 1) for kind, cpu in of.items()},
        "processes": len(spent),
    }


if __name__ == "__main__":
    main()
