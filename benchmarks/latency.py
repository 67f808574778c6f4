"""Publish to delivery over WebSocket at a steady rate, against one durable commit on the same disk.

`python -m benchmarks.latency [SECONDS]`. The commit is one row inserted by a bare loop with the same
durability (WAL, synchronous=FULL), measured in between, on the same folder's disk.
"""

import asyncio
import base64
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from websockets.asyncio.client import connect

from . import servers

RATE = 1000  # messages a second
SOCKETS = "ws://127.0.0.1:{port}/ws/v2"


def commit_ms(seconds: float) -> list[float]:
    """How long durable commits of one small row take at the same rate, in ms, sorted."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        database = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")
        taken = []
        begun = time.perf_counter()
        for number in range(int(RATE * seconds)):
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            started = time.perf_counter()
            database.execute("INSERT INTO t (data) VALUES (?)", (b"x" * 200,))
            taken.append(time.perf_counter() - started)
        database.close()
        return sorted(t * 1000 for t in taken)


async def measure(port: int, seconds: float) -> list[float]:
    """Latencies in ms, sorted."""
    base = SOCKETS.format(port=port)
    topic = "persistent/public/default/latency"
    latencies: list[float] = []
    count = int(RATE * seconds)

    async def receive() -> None:
        url = f"{base}/consumer/{topic}/s?subscriptionType=Shared"
        async with connect(url, compression=None) as consumer:
            ready.set()
            for _ in range(count):
                frame = json.loads(await consumer.recv())
                latencies.append((time.perf_counter() - float(base64.b64decode(frame["payload"]))) * 1000)
                await consumer.send(json.dumps({"messageId": frame["messageId"]}))

    async def publish() -> None:
        async with connect(f"{base}/producer/{topic}", compression=None) as producer:
            started = time.perf_counter()

            async def receipts() -> None:
                for _ in range(count):
                    assert json.loads(await producer.recv())["result"] == "ok"

            async with asyncio.TaskGroup() as group:
                group.create_task(receipts())
                for number in range(count):
                    wait = started + number / RATE - time.perf_counter()
                    if wait > 0:
                        await asyncio.sleep(wait)
                    payload = base64.b64encode(repr(time.perf_counter()).encode()).decode()
                    await producer.send(f'{{"payload":"{payload}"}}')

    ready = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(receive())
        await ready.wait()
        await publish()
    return sorted(latencies)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    print(f"{'commit ms':>9} {'its p99':>8} {'median ms':>9} {'p99 ms':>7} {'p99/commit':>10}")
    with servers.penstock() as (port, _):
        uvloop.run(measure(port, 1.0))  # warm
        for _ in range(5):
            commits = commit_ms(seconds)
            taken = uvloop.run(measure(port, seconds))
            commit, p99 = statistics.median(commits), percentile(taken)
            print(
                f"{commit:>9.2f} {percentile(commits):>8.2f} {statistics.median(taken):>9.2f} {p99:>7.2f}"
                f" {p99 / commit:>10.1f}"
            )


def percentile(ordered: list[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]


if __name__ == "__main__":
    main()
