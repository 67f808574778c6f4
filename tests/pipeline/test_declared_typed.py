"""Typed sources of declared pipelines: what is rejected comes back as it was, and schemas that grow."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests.pipeline.declared import HOUR, Bench

from penstock.client.http import HttpClient
from penstock.codec import codec_for, key_value_schema
from penstock.model.names import TopicName
from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType
from penstock.pipeline.http.schemas import register
from penstock.pipeline.run.redrive import Choice, run_redrive
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.server import running

V0 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
V1 = {**V0, "fields": [*V0["fields"], {"name": "to", "type": "string", "default": "?"}]}


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


def avro(definition: dict[str, Any]) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, json.dumps(definition).encode())


def declare(bench: Bench, topic: str, *schemas: SchemaInfo) -> None:
    bench.create(topic)
    with HttpClient(bench.url) as client:
        path = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
        client.call("PUT", path, body="BACKWARD")
        for number, schema in enumerate(schemas):
            assert register(client, topic, schema) == number


def put(bench: Bench, topic: str, *messages: dict[str, Any], version: int) -> None:
    with HttpClient(bench.url) as client:
        answer = client.produce(TopicName.parse(topic), list(messages), schema_version=version)
    assert all(each["error"] is None for each in answer["messageIds"]), answer


def order(n: int, hours: float, **more: Any) -> dict[str, Any]:
    value = {"id": n, "at": int(hours * HOUR * 1000), **more}
    return {"key": f"k{n}", "value": value, "properties": {"n": str(n)}, "eventTime": 1000 + n}


def raw(bench: Bench, topic: str) -> list[Row]:
    """Messages as they are, by offset."""
    frame = bench.spark.read.format("penstock").options(
        url=bench.url, subscribe=topic, include="properties,schema_version,event_time"
    )
    return sorted(frame.load().collect(), key=lambda row: row.offset)


def message(row: Row) -> tuple[Any, ...]:
    """What a message is, wherever it lies."""
    own = {name: text for name, text in row.properties.items() if not name.startswith("x-dlq-")}
    return row.key, row.value, own, row.schema_version, row.event_time


ORDERS = """
name = "orders"
spark."spark.sql.shuffle.partitions" = 1
dead_letters = "dead"
[sources.orders]
topics = ["orders"]
decode = "{decode}"
include = ["event_time"]
on_bad_value = "dead_letter"
watermark = {{ column = "at", delay = "10 minutes", late = "dead_letter" }}
expect = [{{ name = "known", predicate = "id < 100", action = "dead_letter" }}]
[[steps]]
name = "hourly"
sql = "SELECT window.start AS at, count(*) AS c FROM orders GROUP BY window(at, '1 hour')"
[sinks.out]
input = "hourly"
topic = "out"
"""


def test_rejected_rows_come_back_as_the_messages_that_they_were(bench: Bench) -> None:
    declare(bench, "orders", avro(V0), avro(V1))
    text = ORDERS.format(decode="flat")
    put(bench, "orders", order(1, 100), order(101, 100), version=0)
    put(bench, "orders", order(2, 103, to="x"), version=1)
    assert bench.run_once(text)["dead_letters"] == 1
    put(bench, "orders", order(3, 90, to="late"), version=1)
    put(bench, "orders", order(4, 91), order(102, 104), version=0)
    with HttpClient(bench.url) as client:  # bytes that say nothing of themselves, and are no order
        body = [{"value": "Pw==", "key": "odd"}]
        client.produce(TopicName.parse("orders"), body, schema_type="BYTES")
    last = bench.run_once(text)
    assert (last["dead_letters"], last["late_unseen"]) == (4, 0)

    there = {row.offset: row for row in raw(bench, "orders")}
    dead = raw(bench, "dead")
    origins = [int(row.properties["x-dlq-offset"]) for row in dead]
    assert sorted(origins) == [1, 3, 4, 5, 6]
    for row, offset in zip(dead, origins, strict=True):
        was = there[offset]
        assert (row.key, row.value, row.event_time) == (was.key, was.value, was.event_time)
        version = row.properties.get("x-dlq-schema-version")
        assert version == (None if was.schema_version is None else str(was.schema_version))
        assert "x-dlq-row" not in row.properties

    spec = load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")
    report = run_redrive(spec, bench.spark, Choice())
    assert (report.redriven, report.without_origin) == (5, 0)
    again = [row for row in raw(bench, "orders") if row.offset > 6]
    assert sorted(map(message, again), key=str) == sorted((message(there[n]) for n in origins), key=str)
    values = [m["value"] for m in bench.messages("orders")[7:] if m["schema_version"] is not None]
    assert {value["id"] for value in values} == {101, 3, 4, 102}, "the server reads them by their versions"
    assert {value.get("to") for value in values} == {None, "late"}


PAIRS = """
name = "pairs"
dead_letters = "dead"
[sources.s]
topics = ["pairs"]
decode = "flat"
expect = [{ name = "known", predicate = "id < 100", action = "dead_letter" }]
[sinks.out]
input = "s"
topic = "out"
value = ["id", "at"]
"""


def test_a_key_that_was_decoded_comes_back_as_bytes(bench: Bench) -> None:
    key = {"type": "record", "name": "K", "fields": [{"name": "n", "type": "long"}]}
    schema = key_value_schema(avro(key), avro(V0), KeyValueEncoding.SEPARATED)
    declare(bench, "pairs", schema)
    put(bench, "pairs", *({"key": {"n": n}, "value": {"id": n, "at": 0}} for n in (7, 123456)), version=0)
    bench.run_once(PAIRS)
    first, second = raw(bench, "pairs")
    (dead,) = raw(bench, "dead")
    assert (dead.key, dead.value) == (second.key, second.value)
    assert dead.key == codec_for(avro(key)).encode({"n": 123456})
    assert [m["value"] for m in bench.messages("out")] == [{"id": 7, "at": "1970-01-01T00:00:00.000000Z"}]
    assert first.key != dead.key


STEPS = """
name = "steps"
dead_letters = "dead"
[sources.s]
topics = ["orders"]
decode = "struct"
{include}
[[steps]]
name = "read"
sql = "SELECT value.id, {columns} key, properties, topic, partition, offset, schema_version FROM s"
expect = [{{ name = "known", predicate = "id < 100", action = "dead_letter" }}]
[sinks.out]
input = "read"
topic = "out"
value = ["id"]
"""


def test_steps_keep_the_message_where_they_select_it(bench: Bench) -> None:
    declare(bench, "orders", avro(V0))
    put(bench, "orders", order(1, 1), order(100, 1), version=0)
    kept = STEPS.format(include='include = ["_raw", "event_time"]', columns="_raw, _key, event_time,")
    bench.run_once(kept)
    row = raw(bench, "orders")[1]
    (dead,) = raw(bench, "dead")
    assert (dead.key, dead.value) == (row.key, row.value)
    spec = load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")
    assert run_redrive(spec, bench.spark, Choice()).redriven == 1
    assert message(raw(bench, "orders")[2]) == message(row)

    # Without them the letter is the row, and nobody takes it for a message.
    lost = STEPS.format(include="", columns="").replace('"steps"', '"lost"').replace('"dead"', '"lost-dead"')
    bench.run_once(lost)
    letters = raw(bench, "lost-dead")
    assert [json.loads(bytes(letter.value))["id"] for letter in letters] == [100, 100]
    assert {letter.properties["x-dlq-row"] for letter in letters} == {"json"}
    spec = load_spec(bench.folder / "p.toml", url=bench.url, state=bench.folder / "state")
    report = run_redrive(spec, bench.spark, Choice())
    assert (report.redriven, report.without_origin) == (0, 2)


def test_a_column_says_by_which_version_bytes_are_read(bench: Bench) -> None:
    declare(bench, "to", avro(V0), avro(V1))
    old, new = codec_for(avro(V0)), codec_for(avro(V1))
    written = [
        (0, old.encode({"id": 1, "at": 0})),
        (1, new.encode({"id": 2, "at": 0, "to": "x"})),
        (0, old.encode({"id": 3, "at": 0})),
        (None, b"plain"),
    ]
    rows = [(value, version) for version, value in written]
    frame = bench.spark.createDataFrame(rows, "value BINARY, schema_version BIGINT").coalesce(1)
    options = {"url": bench.url, "topic": "to"}
    frame.write.format("penstock").mode("append").options(**options).save()
    assert [(row.schema_version, bytes(row.value)) for row in raw(bench, "to")] == written
    decoded = [m["value"] for m in bench.messages("to")]
    assert [value["id"] for value in decoded[:3]] == [1, 2, 3]

    with pytest.raises(Exception, match="to has no schema version 9; there are 0, 1"):
        bench.spark.createDataFrame([(b"x", 9)], "value BINARY, schema_version INT").write.format(
            "penstock"
        ).mode("append").options(**options).save()
    with pytest.raises(Exception, match="column schema_version is for values that are bytes"):
        bench.spark.createDataFrame([((1,), 0)], "value STRUCT<id: INT>, schema_version INT").write.format(
            "penstock"
        ).mode("append").options(**options).save()
    assert len(raw(bench, "to")) == 4
