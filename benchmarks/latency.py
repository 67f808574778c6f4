"""Publish to delivery over WebSocket at a steady rate, beside one durable commit on the same disk.

    python -m benchmarks.latency [--seconds 2] [--rounds 5] [--quick] [--folder DIR]

The commit is one row inserted by a bare loop with the same durability (WAL, synchronous=FULL) and at the same rate.
The bound that Penstock sets itself is a p99 of three times the median and a commit.
"""

import os
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from . import servers
from .generator import STAMP, Result, Server, consume, paced, run
from .measuring import Options, options
from .websocket import PAYLOAD, TOPIC

RATES: Final = (500, 1000)  # messages a second
WARM_S: Final = 0.5
TEXT: Final = f'{{"payload":"{PAYLOAD}","properties":{{"at":"{STAMP}"}}}}'


def commits_ms(folder: Path | None, per_second: float, seconds: float) -> list[float]:
    """How long durable commits of one small row take at a steady rate, in ms, sorted."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as data:
        database = sqlite3.connect(Path(data) / "floor.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        taken = []
        begun = time.perf_counter()
        for number in range(int(per_second * seconds)):
            time.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
            started = time.perf_counter()
            database.execute("INSERT INTO t (data) VALUES (?)", (os.urandom(200),))
            taken.append((time.perf_counter() - started) * 1000)
        database.close()
    return sorted(taken)


def deliver(server: Server, topic: str, per_second: float, options: Options) -> Result:
    """From sending a frame to its delivery, at so many messages a second. The topic shall be new: what another run
    left there would be delivered too."""
    peers = [
        consume(f"/ws/v2/consumer/{TOPIC}/{topic}/s?subscriptionType=Shared"),
        paced(f"/ws/v2/producer/{TOPIC}/{topic}", TEXT, per_second),
    ]
    return run(server, peers, options.seconds, warm_s=WARM_S)


def main() -> None:
    given = options(__doc__)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors; medians of {given.rounds} rounds")
    print(
        "| messages/s | commit p50, p99 ms | delivery p50, p99 ms | p99 / (p50 + commit), least to most "
        "| CPU µs | generator |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    with servers.penstock(folder=given.folder) as penstock:
        for per_second in RATES:
            commits, delays = [], []
            for number in range(given.rounds):
                commits.append(commits_ms(given.folder, per_second, given.seconds))
                delays.append(deliver(penstock, f"latency-{per_second}-{number}", per_second, given))
            show(per_second, commits, delays)


def show(per_second: int, commits: list[list[float]], delays: list[Result]) -> None:
    middle = statistics.median
    typical = [middle(each) for each in commits]
    ratios = [d.p99_ms / (d.p50_ms + commit) for d, commit in zip(delays, typical, strict=True)]
    print(
        f"| {per_second:,} "
        f"| {middle(typical):.2f}, {middle(each[int(len(each) * 0.99)] for each in commits):.2f} "
        f"| {middle(d.p50_ms for d in delays):.2f}, {middle(d.p99_ms for d in delays):.2f} "
        f"| {middle(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) "
        f"| {middle(d.server_us for d in delays):.0f} | {middle(d.generator_share for d in delays):.0%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
