"""What a Spark job that scans a topic at full speed does to the latency of others' publishes.

    python -m benchmarks.spark_latency [--rows 1000000] [--seconds 8] [--rounds 3] [--nice 10]

One connection publishes single messages over HTTP at a steady rate, alone and beside the scan, in turns; a request
that has to wait for the one before counts from when it was due. The echo server, which does nothing but answer, is
asked alike: its figures are what the machine takes by itself. With `--nice`, Spark has a lower priority.
"""

import argparse
import asyncio
import multiprocessing as mp
import os
import statistics
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.session import session
from penstock.wire.bulk import pack_sections

from . import servers
from .generator import post
from .spark_scan import entry

RATE = 200  # requests a second
BATCH = 1000
PARTITIONS = 2
TOPIC = TopicName.parse("scanned")
MESSAGE = post("/topics/public/default/beside", b'{"messages":[{"value":"' + b"x" * 200 + b'"}]}')


async def paced(port: int, seconds: float) -> list[float]:
    """Latencies in ms, sorted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken = []
    begun = time.perf_counter()
    for number in range(int(RATE * seconds)):
        due = begun + number / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        writer.write(MESSAGE)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 2"), head
        length = head.lower().partition(b"content-length: ")[2].split(b"\r")[0]
        await reader.readexactly(int(length or 0))
        taken.append((time.perf_counter() - due) * 1000)
    writer.close()
    await writer.wait_closed()
    return sorted(taken)


def publisher(orders: Connection) -> None:
    """A process of its own: (port, seconds) in, latencies out."""
    while True:
        port, seconds = orders.recv()
        orders.send(uvloop.run(paced(port, seconds)))


def fill(url: str, rows: int) -> None:
    """Publish the rows that are scanned."""
    with HttpClient(url) as client:
        client.create_topic(TOPIC, PARTITIONS)
    stages = Stages(Access(url=url))
    names = [str(TOPIC.of_partition(n)) for n in range(PARTITIONS)]
    for first in range(0, rows, 10 * BATCH):
        made = [entry(n, BATCH) for n in range(first, min(rows, first + 10 * BATCH), BATCH)]
        sections = [(name, made[n::PARTITIONS]) for n, name in enumerate(names)]
        stages.publish(b"".join(pack_sections(sections)), deduplicate=False)
    stages.close()


def p(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Scan:
    """Scans again and again in a thread, until it is left."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.scans = 0
        self.seconds = 0.0

    def __enter__(self) -> "Scan":
        self._thread.start()
        time.sleep(1)  # so that the scan has begun
        return self

    def __exit__(self, *rest: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        begun = time.perf_counter()
        while not self._over.is_set():
            self._frame.write.format("noop").mode("overwrite").save()
            self.scans += 1
            self.seconds = time.perf_counter() - begun


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=float, default=8)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--nice", type=int, default=0)
    arguments.add_argument("--master", default="local[2]")
    given = arguments.parse_args()
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=publisher, args=(theirs,), daemon=True)
    process.start()

    def latencies(port: int) -> list[float]:
        ours.send((port, given.seconds))
        found: list[float] = ours.recv()
        return found

    with servers.echo() as (echo, _), servers.penstock() as (port, _):
        url = f"http://127.0.0.1:{port}"
        fill(url, given.rows)
        os.nice(given.nice)  # for Spark's processes, which inherit it
        spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
        try:
            frame = spark.read.format("penstock").option("url", url).option("subscribe", str(TOPIC)).load()
            assert frame.count() == given.rows
            latencies(port)  # warm
            found: dict[tuple[str, str], list[float]] = {}
            speeds = []
            for _ in range(given.rounds):
                for name, at in (("echo", echo), ("penstock", port)):
                    found.setdefault((name, "alone"), []).append(p(latencies(at), 0.99))
                    with Scan(frame) as scan:
                        found.setdefault((name, "beside"), []).append(p(latencies(at), 0.99))
                    speeds.append(scan.scans * given.rows / scan.seconds)
            print(f"scan {statistics.median(speeds) / 1e6:.2f} M rows/s, publishes at {RATE} a second, p99:")
            for name in ("echo", "penstock"):
                alone, beside = (statistics.median(found[name, how]) for how in ("alone", "beside"))
                print(
                    f"{name:10} alone {alone:6.2f} ms   beside a scan {beside:6.2f} ms   {beside / alone:5.2f} times"
                )
        finally:
            spark.stop()
            process.kill()


if __name__ == "__main__":
    main()
