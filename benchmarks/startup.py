"""From process start to the ready line, and what the server weighs then: `python -m benchmarks.startup [RUNS]`."""

import statistics
import subprocess
import sys
import time

from . import servers
from .memory import resident_mb


def bare_s() -> float:
    """The floor: a Python that starts and ends."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - began


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    floors = [bare_s() for _ in range(runs)]
    ready, stopped, weights = [], [], []
    for _ in range(runs):
        began = time.perf_counter()
        with servers.penstock() as (_, pid):
            ready.append(time.perf_counter() - began)
            weights.append(resident_mb(pid))
            began = time.perf_counter()
        stopped.append(time.perf_counter() - began)
    print(f"{'':24}{'median':>10}{'most':>10}")
    for name, values in (("bare Python", floors), ("start to ready", ready), ("SIGTERM to exit", stopped)):
        print(f"{name:24}{statistics.median(values):>9.3f}s{max(values):>9.3f}s")
    print(f"{'resident when ready':24}{statistics.median(weights):>8.0f}MB{max(weights):>8.0f}MB")


if __name__ == "__main__":
    main()
