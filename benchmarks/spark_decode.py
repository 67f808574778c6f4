"""How fast Spark reads values as columns, next to the same messages read as bytes.

    python benchmarks/spark_decode.py [--rows 2000000] [--batch 1000]

Messages of about 200 bytes in four topics: Avro of one schema version, Avro of two that change from message to
message, the same with one broken message in a thousand, and JSON. They are served by a bare process, so that the
figures are the source's own. A run reads every row of every column.
"""

import argparse
import json
import multiprocessing as mp
import struct
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.codec import codec_for
from penstock.model.message import OutMessage
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire import entry as wire

PARTITIONS = 2
TIME = 1_700_000_000_000
_FIELDS = [
    {"name": "carrier", "type": "string"},
    {"name": "flight", "type": "int"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "delay", "type": ["null", "double"], "default": None},
    {"name": "origin", "type": "string"},
    {"name": "dest", "type": "string"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "note", "type": ["null", "string"], "default": None},
]
OLD = {"type": "record", "name": "Flight", "fields": _FIELDS}
NEW = {**OLD, "fields": [*_FIELDS, {"name": "context", "type": "int", "default": 0}]}
# The latest of `avro` is the new one, so that every topic makes the same columns.
SCHEMAS = {"avro": (NEW,), "mixed": (OLD, NEW), "broken": (OLD, NEW), "json": (NEW,)}


def messages(topic: str, first: int, count: int) -> list[tuple[int, OutMessage]]:
    """Messages, each with the version of its schema."""
    chance = Random(first)
    kind = SchemaType.JSON if topic == "json" else SchemaType.AVRO
    codecs = [codec_for(SchemaInfo(kind, json.dumps(schema).encode())) for schema in SCHEMAS[topic]]
    made = []
    for n in range(first, first + count):
        version = n % len(codecs)
        value = {
            "carrier": "UA",
            "flight": n % 9999,
            "at": TIME + n,
            "delay": chance.uniform(-20, 500) if n % 9 else None,
            "origin": "EWR",
            "dest": "IAH",
            "tags": ["late", "rain"][: n % 3],
            "note": chance.randbytes(75).hex(),
        }
        if SCHEMAS[topic][version] is NEW:
            value["context"] = n % 40
        payload = codecs[version].encode(value)
        if topic == "broken" and n % 1000 == 7:
            payload = payload[:-3]
        made.append((version, OutMessage(payload=payload)))
    return made


def entries(topic: str, first: int, count: int) -> list[tuple[int, bytes]]:
    """Batches, each of one version, as an entry names one version for all of its messages.

    Those of two versions alternate, many times within a block of rows.
    """
    made = messages(topic, first, count)
    found = []
    for version in range(len(SCHEMAS[topic])):
        own = [message for number, message in made if number == version]
        encoded = wire.encode(
            own, producer="bench", sequence_id=first, publish_time=TIME + first, schema_version=version
        )
        found.append((len(own), encoded.data))
    return found


def serve(rows: int, batch: int, ready: Any) -> None:
    topics: dict[str, tuple[list[int], list[bytes]]] = {}
    for topic in SCHEMAS:
        starts, frames, offset = [], [], 0
        for first in range(0, rows, batch):
            for count, data in entries(topic, first, min(batch, rows - first)):
                starts.append(offset)
                frames.append(struct.pack(">QIQI", offset, count, len(starts), len(data)) + data)
                offset += count
        topics[topic] = (starts, frames)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            self.answer(json.loads(self.rfile.read(length) or b"{}"))

        def do_GET(self) -> None:
            self.answer({})

        def answer(self, asked: Any) -> None:
            parts = urlsplit(self.path)
            topic = next((name for name in SCHEMAS if f"/{name}" in parts.path), "avro")
            if parts.path.endswith("/messages"):
                query = parse_qs(parts.query)
                low, high = int(query["offset"][0]), int(query["end_offset"][0])
                starts, frames = topics[topic]
                wanted = frames[bisect_right(starts, low) - 1 : bisect_right(starts, high - 1)]
                self.head("application/vnd.penstock.entries", sum(map(len, wanted)))
                for at in range(0, len(wanted), 16):
                    self.wfile.write(b"".join(wanted[at : at + 16]))
                return
            answers = [
                {
                    "version": n,
                    "type": "JSON" if topic == "json" else "AVRO",
                    "data": json.dumps(schema),
                    "properties": {},
                    "timestamp": 0,
                }
                for n, schema in enumerate(SCHEMAS[topic])
            ]
            if parts.path.endswith("/schema"):
                body: Any = answers[-1]
            elif parts.path.endswith("/schemas"):
                body = {"getSchemaResponses": answers}
            else:
                body = log_states(asked, rows)
            text = json.dumps(body).encode()
            self.head("application/json", len(text))
            self.wfile.write(text)

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


def log_states(asked: Any, rows: int) -> Any:
    """What `penstock.pipeline.http.logs.look` asks for."""
    log = {"ledger": 1, "earliest": 0, "latest": rows, "bytes": 200 * rows}
    topics = [
        {"topic": topic, "partitioned": True, "partitions": [log] * PARTITIONS} for topic in asked["topics"]
    ]
    return {"seen": "1", "changed": True, "missing": [], "topics": topics}


def alone(given: Any) -> None:
    """The decoder by itself: no Spark, no HTTP; versions change from row to row."""
    import numpy as np
    import pyarrow as pa

    from penstock.client.access import Access
    from penstock.pipeline.decode.decoders import column_type
    from penstock.pipeline.decode.options import Typed
    from penstock.pipeline.decode.plan import Plan
    from penstock.pipeline.decode.typed import TypedRows
    from penstock.pipeline.rows.place import Place

    topic = "persistent://public/default/t"
    for name in SCHEMAS:
        kind = SchemaType.JSON if name == "json" else SchemaType.AVRO
        schemas = {n: SchemaInfo(kind, json.dumps(s).encode()) for n, s in enumerate(SCHEMAS[name])}
        reader = schemas[max(schemas)]
        plan = Plan(
            typed=Typed(flat=False, mode="permissive"),
            server=Access(url="http://127.0.0.1"),
            reader=reader,
            wanted=column_type(reader).json(),
            schemas={topic: schemas},
        )
        rows = 16_384
        made = messages(name, 0, rows)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.nulls(rows, pa.binary()),
                pa.array([m.payload for _, m in made], pa.binary()),
                pa.array(np.arange(rows)),
                pa.array([version for version, _ in made], pa.int64()),
            ],
            ["key", "value", "offset", "schema_version"],
        )
        typed = TypedRows(plan, Place(topic, 0, 1), keep_version=False)
        work = partial(typed.apply, batch)
        seconds = measure(given.repeats * 3, work, time.process_time)
        print(f"decoder alone   {name:8} {rows / seconds / 1e6:5.2f} M rows/s of a core")


def measure(repeats: int, work: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """The best of several runs, in seconds; the first one warms up."""
    seconds = []
    for _ in range(repeats + 1):
        begun = clock()
        work()
        seconds.append(clock() - begun)
    return min(seconds[1:])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--rows", type=int, default=2_000_000, help="of each topic")
    arguments.add_argument("--batch", type=int, default=1000, help="messages of two entries")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--master", default="local[2]")
    given = arguments.parse_args()
    alone(given)

    from penstock.pipeline.session import session

    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(
        target=serve, args=(given.rows // PARTITIONS, given.batch, theirs), daemon=True
    )
    process.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    spark = session("benchmark", given.master, **{"spark.driver.memory": "2g"})
    try:
        rates: dict[tuple[str, bool], float] = {}
        for topic in SCHEMAS:
            for typed in (False, True):
                reader = spark.read.format("penstock").option("url", url).option("subscribe", topic)
                if typed:
                    reader = reader.option("value.decode", "struct").option("mode", "permissive")
                frame = reader.load()
                seconds = measure(
                    given.repeats,
                    lambda f=frame: f.write.format("noop").mode("overwrite").save(),  # type: ignore[misc]
                )
                rates[topic, typed] = given.rows / seconds / 1e6
            raw, decoded = rates[topic, False], rates[topic, True]
            print(
                f"{topic:8} bytes {raw:5.2f} M rows/s   columns {decoded:5.2f} M rows/s   ratio {decoded / raw:.2f}"
                f"   of one version {decoded / rates['avro', True]:.2f}"
            )
    finally:
        spark.stop()
        process.kill()


if __name__ == "__main__":
    main()
