"""Two schema versions record by record, with broken records among them, through a topic and a table."""

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.pipeline import census
from tests.pipeline.census import TIME_MS

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.codec import codec_for
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.http.schemas import register
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.run.handle import pipeline
from penstock.testing.server import running
from penstock.wire import entry as wire
from penstock.wire.bulk import pack_sections

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
COUNT = 500_000 if SOAK else 10_000
BATCHES = 2
WAIT_S = 500

V0 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "to", "type": "string"}],
}
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["none"]},
    ],
}

FILE = """
name = "mixed"
trigger = "available_now"
dead_letters = "dead"
[spark]
"spark.sql.shuffle.partitions" = 1
[sources.orders]
topics = ["orders"]
decode = "flat"
on_bad_value = "dead_letter"
max_rows_per_batch = {rows}
[[steps]]
name = "all"
sql = "SELECT key, partition, offset, id, to, tags FROM orders"
[sinks.out]
input = "all"
topic = "out"
key = "key"
value = ["id", "to", "tags", "partition", "offset"]
[sinks.table]
input = "all"
path = "table"
compact = false
"""


class Orders:
    """Messages that alternate between the versions; every 23rd is broken, in one of four ways."""

    def __init__(self) -> None:
        self._dice = random.Random(8)
        self._codecs = [codec_for(SchemaInfo(SchemaType.AVRO, json.dumps(s).encode())) for s in (V0, V1)]
        self.good: dict[tuple[int, int], dict[str, Any]] = {}
        self.bad: dict[tuple[int, int], tuple[bytes, int]] = {}

    def entry(self, partition: int, offset: int) -> bytes:
        version = (partition + offset) % 2
        number = offset * 2 + partition
        value: dict[str, Any] = {"id": number, "to": f"street {number}"}
        if version:
            value = {"id": number << 20, "to": None if number % 3 else "x", "tags": ["t"] * (number % 4)}
        payload = self._codecs[version].encode(value)
        if number % 23 == 5:
            ways = (payload[:-1], payload + b"\x00", b"", b"\xff" * self._dice.randint(1, 30))
            payload = ways[number // 23 % 4]
            self.bad[partition, offset] = (payload, version)
        else:
            self.good[partition, offset] = value if version else value | {"tags": ["none"]}
        message = OutMessage(payload=payload, key=f"k{number}", properties={"n": str(number)})
        return wire.encode(
            [message], producer="p", sequence_id=offset, publish_time=TIME_MS, schema_version=version
        ).data  # fmt: skip

    def publish(self, url: str, count: int) -> None:
        topic = TopicName.parse("orders")
        with Stages(Access(url=url)) as client:
            for start in range(0, count // 2, 5000):
                offsets = range(start, min(start + 5000, count // 2))
                sections = [
                    (str(topic.of_partition(p)), [self.entry(p, o) for o in offsets]) for p in range(2)
                ]
                client.publish(b"".join(pack_sections(sections)), deduplicate=False)


def as_text(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.timeout(3600 if SOAK else 600)
def test_versions_and_broken_records_interleaved(spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders()
    with running(tmp_path / "data") as server:
        with HttpClient(server.url) as client:
            path = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
            client.call("PUT", path, body="BACKWARD")
            client.create_topic(TopicName.parse("orders"), 2)
            for number, schema in enumerate((V0, V1)):
                info = SchemaInfo(SchemaType.AVRO, json.dumps(schema).encode())
                assert register(client, "orders", info) == number
        orders.publish(server.url, COUNT)
        file = tmp_path / "mixed.toml"
        file.write_text(FILE.format(rows=COUNT // BATCHES))
        began = time.monotonic()
        run = pipeline(file, spark, url=server.url).start()
        assert run.await_termination(WAIT_S)
        print(f"{COUNT} rows in {time.monotonic() - began:.1f} s")
        assert run.progress["rows_total"] == COUNT
        assert run.progress["dead_letters"] == len(orders.bad)

        wanted = Counter((place, as_text(value)) for place, value in orders.good.items())
        rows = DeltaTable(tmp_path / "table").to_pyarrow_table().to_pylist()
        assert wanted == Counter(
            ((row["partition"], row["offset"]), as_text({name: row[name] for name in ("id", "to", "tags")}))
            for row in rows
        )
        assert all(row["key"] == b"k%d" % (row["offset"] * 2 + row["partition"]) for row in rows)
        out = census.raw(server.url, "out")
        values = [dict(m["value"]) for m in out]
        assert wanted == Counter(((v.pop("partition"), v.pop("offset")), as_text(v)) for v in values)

        # Versions that alternate cost neither files nor entries: one file a task, entries that are full.
        files = DeltaTable(tmp_path / "table").file_uris()
        assert len(files) <= 2 * BATCHES
        with HttpClient(server.url) as client:
            entries = client.call("GET", "/admin/v2/persistent/public/default/out/internalStats")
        assert int(entries["numberOfEntries"]) <= 2 * BATCHES * (1 + COUNT // BATCHES // 2 // 1000)

        letters = census.raw(server.url, "dead")
        buried = Counter((census.buried(m["properties"]), m["properties"]["n"], m["key"]) for m in letters)
        assert buried == Counter(((p, o), str(o * 2 + p), f"k{o * 2 + p}") for p, o in orders.bad), (
            "each once, with its key and properties"
        )
        for letter in letters:
            payload, version = orders.bad[census.buried(letter["properties"])]
            assert census.payload(letter) == payload
            assert letter["properties"]["x-dlq-schema-version"] == str(version)
            assert letter["properties"]["x-dlq-topic"] == "persistent://public/default/orders"
        reasons = Counter(letter["properties"]["x-dlq-error"] for letter in letters)
        print(reasons.most_common(6))
