"""How fast Spark scans a topic, next to Spark reading the same rows from Parquet (the scan floor).

    python benchmarks/spark_scan.py [--rows 5000000] [--batch 1000] [--url URL --topic TOPIC]

Without `--url` the topic is served by a bare process that does nothing but send entries made beforehand, so
that the figure is the source's own; with it, a Penstock serves one that it already holds.
"""

import argparse
import json
import multiprocessing as mp
import statistics
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pyspark.sql import DataFrame

from penstock.model.entry import Entry
from penstock.model.message import OutMessage
from penstock.pipeline.rows.entries import read_frames
from penstock.pipeline.rows.place import Place
from penstock.pipeline.rows.rows import decode
from penstock.pipeline.session import session
from penstock.pipeline.source.offsets import Range
from penstock.wire import entry as wire
from penstock.wire.runs import RUNS, Frames

PARTITIONS = 2
RUN_MESSAGES = 8000  # about what a server reads at once
VALUE = '{"carrier":"UA","flight":%d,"origin":"EWR","dest":"IAH","delay":%d,"note":"%s"}'
TIME = 1_700_000_000_000


def entry(first: int, count: int) -> bytes:
    """A batch of `count` messages of about 200 bytes with keys."""
    chance = Random(first)  # values that do not compress to nothing: the floor has to do its work too
    messages = [
        OutMessage(
            payload=(VALUE % (n % 9999, chance.randrange(-20, 500), chance.randbytes(60).hex())).encode(),
            key=f"key-{n % 9973:06d}",
        )
        for n in range(first, first + count)
    ]
    encoded = wire.encode(
        messages, producer="bench", sequence_id=first, publish_time=TIME + first, schema_version=None
    )
    return encoded.data


def stored(first: int, count: int, number: int) -> Entry:
    """That batch, or a message alone, in the log."""
    return Entry(1, number, first, count, TIME + first, 0, entry(first, count))


def serve(rows: int, batch: int, ready: Any, topics: int = 1) -> None:
    """Serve topic `bench`: `rows` messages in each of PARTITIONS partitions, which are alike; `bench-2` and so on
    are like it too."""
    size = max(batch, RUN_MESSAGES)  # of what is sent together
    starts = range(0, rows, size)
    made = Frames(1, runs=True)
    frames = []
    for begin in starts:
        firsts = range(begin, min(begin + size, rows), batch)
        entries = [stored(first, min(batch, rows - first), first // batch) for first in firsts]
        frames.append(made.block(entries, rows))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            low, high = int(query["offset"][0]), int(query["end_offset"][0])
            wanted = frames[bisect_right(starts, low) - 1 : bisect_right(starts, high - 1)]
            self.head(RUNS, sum(map(len, wanted)))
            for part in wanted:
                self.wfile.write(part)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            log = {"ledger": 1, "earliest": 0, "latest": rows, "bytes": sum(map(len, frames))}
            there = [
                {"topic": name, "partitioned": True, "partitions": [log] * PARTITIONS}
                for name in sorted(
                    "persistent://public/default/bench" + (f"-{n + 1}" if n else "") for n in range(topics)
                )
            ]
            answer = {"seen": "", "changed": True, "missing": [], "topics": there}
            body = json.dumps(answer).encode()
            self.head("application/json", len(body))
            self.wfile.write(body)

        def head(self, kind: str, size: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(size))
            self.send_header("X-Penstock-Ledger", "1")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ready.send(server.server_address[1])
    server.serve_forever()


def measure(repeats: int, work: Callable[[], None]) -> float:
    """The best of several runs, in seconds; the first one warms up."""
    seconds = []
    for _ in range(repeats + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])


def decode_alone(batch: int) -> float:
    """Rows a second of the decoder by itself, without Spark or HTTP."""
    rows = 200_000 // batch * batch
    entries = [stored(first, batch, n) for n, first in enumerate(range(0, rows, batch))]
    sent = Frames(1, runs=True).block(entries, rows)
    wanted = Range("persistent://public/default/bench", 0, True, 1, 0, rows)
    place = Place(wanted.topic, 0, 1)
    rates = []
    for _ in range(5):
        begun = time.perf_counter()
        frames = read_frames(BytesIO(sent).read)
        assert sum(each.num_rows for each in decode(place, frames, 0, rows)) == rows
        rates.append(rows / (time.perf_counter() - begun))
    return statistics.median(rates)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rows", type=int, default=5_000_000)
    arguments.add_argument("--batch", type=int, default=1000, help="messages in an entry; 1: published alone")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--master", default="local[2]")
    arguments.add_argument("--url", default="")
    arguments.add_argument("--topic", default="bench")
    given = arguments.parse_args()

    process = None
    url = given.url
    if not url:
        ours, theirs = mp.get_context("spawn").Pipe()
        process = mp.get_context("spawn").Process(
            target=serve, args=(given.rows // PARTITIONS, given.batch, theirs), daemon=True
        )
        process.start()
        url = f"http://127.0.0.1:{ours.recv()}"
    spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
    try:
        source = spark.read.format("penstock").option("url", url).option("subscribe", given.topic).load()
        rows = source.count()
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "floor")
            source.write.option("compression", "zstd").parquet(path)
            floor = spark.read.parquet(path)
            print(
                f"{rows:,} rows, entries of {given.batch}, {given.master}; decoder alone {decode_alone(given.batch) / 1e6:.2f} M rows/s"
            )

            def scan(frame: DataFrame) -> None:
                frame.write.format("noop").mode("overwrite").save()

            def total(frame: DataFrame) -> None:
                frame.selectExpr("sum(length(value))", "max(offset)").collect()

            for name, work in (("every row into noop", scan), ("sum(length(value))", total)):
                ours_s = measure(given.repeats, lambda work=work: work(source))  # type: ignore[misc]
                floor_s = measure(given.repeats, lambda work=work: work(floor))  # type: ignore[misc]
                print(
                    f"{name:20} penstock {rows / ours_s / 1e6:5.2f} M rows/s   parquet {rows / floor_s / 1e6:5.2f}"
                    f" M rows/s   ratio {floor_s / ours_s:.2f}"
                )
    finally:
        spark.stop()
        if process is not None:
            process.kill()


if __name__ == "__main__":
    main()
