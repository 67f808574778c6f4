"""What an idle pipeline costs: the CPU time of all its processes, in percent of a core.

    python benchmarks/pipeline_idle.py [SECONDS]

A pipeline with a trigger of one second reads a topic in which nothing happens: supervisor, driver, JVM and Python
workers together. Prints JSON; the goal is below 1 %.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.testing.server import running

PIPELINE = """
name = "idle"
trigger = "1 second"
[sources.s]
topics = ["in"]
[[steps]]
name = "read"
sql = "SELECT CAST(value AS STRING) AS value FROM s"
[sinks.out]
input = "read"
topic = "out"
"""
SETTLE_S = 20.0  # after the first batch: compiling, and the steps down to the slowest pace


def main() -> None:
    """Measure, and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as name, running() as server:
        folder = Path(name)
        with HttpClient(server.url) as client:
            client.create_topic(TopicName.parse("in"))
            client.produce(TopicName.parse("in"), [{"value": "a"}])
        (folder / "idle.toml").write_text(PIPELINE)
        command = [sys.executable, "-m", "penstock", "pipeline", "run", str(folder / "idle.toml")]
        process = subprocess.Popen(
            [*command, "--url", server.url, "--master", "local[2]"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if json.loads(line)["state"] == "idle":
                    break
            time.sleep(SETTLE_S)
            before = costs(process.pid)
            time.sleep(seconds)
            after = costs(process.pid)
        finally:
            process.terminate()
            process.communicate()
    spent = {
        f"{what} {pid}": round(100 * (cpu - before.get((pid, what), 0.0)) / seconds, 3)
        for (pid, what), cpu in after.items()
    }
    print(json.dumps({"seconds": seconds, "percent": round(sum(spent.values()), 3), "of": spent}))


def costs(root: int) -> dict[tuple[int, str], float]:
    """CPU seconds of a process and all below it, by pid and what it is."""
    ticks = os.sysconf("SC_CLK_TCK")
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        fields = stat.rpartition(")")[2].split()
        pid = int(entry.name)
        parents[pid] = int(fields[1])
        what = Path(words[0].decode()).name + " " + " ".join(word.decode() for word in words[1:4])[-60:]
        found[pid] = (what.strip(), (int(fields[11]) + int(fields[12])) / ticks)

    def below(pid: int) -> bool:
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return {(pid, what): cpu for pid, (what, cpu) in found.items() if below(pid)}


if __name__ == "__main__":
    main()
