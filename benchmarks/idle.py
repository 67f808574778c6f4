"""What waiting costs: a thousand consumers on one topic, and a thousand topics with one consumer each.

`python -m benchmarks.idle [SECONDS]`: the server's CPU time while nothing happens, then how evenly messages of the
one topic are spread.
"""

import asyncio
import json
import os
import statistics
import sys
from pathlib import Path

import httpx
import uvloop
from websockets.asyncio.client import ClientConnection, connect

from penstock.runtime.tasks import Tasks

from . import servers

CONSUMERS = 1000
MESSAGES = 20_000


def cpu_s(pid: int) -> float:
    """User and system time of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def open_all(port: int, urls: list[str]) -> list[ClientConnection]:
    base = f"ws://127.0.0.1:{port}/ws/v2/consumer/persistent/public/default"
    made: list[ClientConnection] = []
    for start in range(0, len(urls), 50):
        part = urls[start : start + 50]
        made += await asyncio.gather(
            *(connect(f"{base}/{u}", compression=None, ping_interval=None) for u in part)
        )
    return made


async def idle(port: int, pid: int, seconds: float) -> None:
    shared = "?subscriptionType=Shared&receiverQueueSize=100"
    for name, urls in (
        ("1000 consumers, one topic", [f"one/s{shared}"] * CONSUMERS),
        ("1000 topics, a consumer each", [f"topic-{n}/s{shared}" for n in range(CONSUMERS)]),
    ):
        consumers = await open_all(port, urls)
        await asyncio.sleep(1)
        before = cpu_s(pid)
        await asyncio.sleep(seconds)
        share = (cpu_s(pid) - before) / seconds
        print(f"{name:>30}: {share * 100:.2f} % of a core while idle")
        if "one topic" in name:
            await fairness(port, consumers)
        await asyncio.gather(*(c.close() for c in consumers))


async def fairness(port: int, consumers: list[ClientConnection]) -> None:
    counts = [0] * len(consumers)

    async def read(number: int, consumer: ClientConnection) -> None:
        async for frame in consumer:
            counts[number] += 1
            await consumer.send(json.dumps({"messageId": json.loads(frame)["messageId"]}))

    tasks = Tasks()
    for number, consumer in enumerate(consumers):
        tasks.spawn(read(number, consumer), "read")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(MESSAGES // 100):
            body = {"messages": [{"value": "x"}] * 100}
            (await client.post("/topics/public/default/one", json=body)).raise_for_status()
    while sum(counts) < MESSAGES:
        await asyncio.sleep(0.05)
    await tasks.close()
    print(
        f"{'spread of ' + str(MESSAGES):>30}: {min(counts)} to {max(counts)} each,"
        f" standard deviation {statistics.pstdev(counts):.1f}"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    with servers.penstock() as (port, pid):
        uvloop.run(idle(port, pid, seconds))


if __name__ == "__main__":
    main()
