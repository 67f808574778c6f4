"""Sources, tables and sinks of other formats of Spark: with our rules, in one batch with our own sinks."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.pipeline.checkpoints import lose_commit
from tests.pipeline.declared import Bench

from penstock.codec import codec_for
from penstock.codec.descriptors import native_message
from penstock.codec.proto.native import of_proto
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.query import check
from penstock.pipeline.run.views import session_for
from penstock.pipeline.spec.parse import load_spec
from penstock.pipeline.spec.spec import Spec
from penstock.testing.server import running

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}

FILES = """
name = "files"
dead_letters = "dead"
[sources.orders]
format = "json"
schema = "id BIGINT, product STRING, at TIMESTAMP"
options = { path = "orders", maxFilesPerTrigger = 1 }
watermark = { column = "at", delay = "1 minute", late = "drop" }
expect = [{ name = "id", predicate = "id > 0", action = "dead_letter" }]
[tables.names]
format = "csv"
schema = "product STRING, name STRING"
options = { path = "names.csv" }
[[steps]]
name = "named"
sql = "SELECT id, name, at FROM orders JOIN names USING (product)"
[sinks.topic]
input = "named"
topic = "named"
[sinks.table]
input = "named"
path = "table"
[sinks.files]
input = "named"
format = "parquet"
options = { path = "parquet", compression = "gzip" }
"""

RECORDING = """
import json
from pathlib import Path

def write(rows, batch):
    found = sorted(row.id for row in rows.collect())
    with Path(__file__).with_name("calls.jsonl").open("a") as file:
        file.write(json.dumps([batch, found]) + "\\n")

def fail_once(rows, batch):
    there = Path(__file__).with_name("failed")
    if not there.exists():
        there.touch()
        raise OSError("the service is away")
"""


@pytest.fixture
def bench(tmp_path: Path, spark: SparkSession) -> Iterator[Bench]:
    with running() as server:
        yield Bench(tmp_path, server.url, spark)


def put(bench: Bench, name: str, *rows: object) -> None:
    folder = bench.folder / "orders"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(path, (int(path.stem), int(path.stem)))  # Spark takes the oldest first


def order(number: int, minute: int = 0) -> dict[str, object]:
    return {"id": number, "product": "t", "at": f"2026-01-31T08:{minute:02}:00Z"}


def calls(bench: Bench) -> list[object]:
    return [json.loads(line) for line in (bench.folder / "calls.jsonl").read_text().splitlines()]


def test_files_go_through_our_rules_into_every_sink(bench: Bench) -> None:
    (bench.folder / "names.csv").write_text("t,tea\n")
    put(bench, "1.json", order(1), order(2), order(-1))
    event = bench.run_once(FILES)
    assert (event["dead_letters"], event["lag"]) == (1, None)
    put(bench, "2.json", order(3, 30))
    bench.run_once(FILES)
    put(bench, "3.json", order(4, 31))
    put(bench, "4.json", order(5, 1))  # late
    bench.run_once(FILES.replace('late = "drop"', 'late = "dead_letter"'))

    written = {1, 2, 3, 4}
    assert {message["value"]["id"] for message in bench.messages("named")} == written
    assert {row["id"] for row in bench.table("table")} == written
    rows = bench.spark.read.parquet(str(bench.folder / "parquet")).collect()
    assert sorted(row.id for row in rows) == sorted(written)
    assert {row.name for row in rows} == {"tea"}
    assert list((bench.folder / "parquet").glob("*.gz.parquet"))
    dead = bench.messages("dead")
    assert [json.loads(message["value"])["id"] for message in dead] == [-1, 5]
    assert "x-dlq-topic" not in dead[0]["properties"]  # which would be one of ours


@pytest.mark.parametrize(("decode", "given"), [("struct", "avro:order.avsc"), ("flat", "topic:orders")])
def test_bytes_are_decoded_by_a_file_or_by_the_schema_of_a_topic(
    bench: Bench, decode: str, given: str
) -> None:
    schema = SchemaInfo(SchemaType.AVRO, json.dumps(ORDER).encode())
    (bench.folder / "order.avsc").write_bytes(schema.data)
    from penstock.client.http import HttpClient
    from penstock.pipeline.http.schemas import register

    bench.create("orders")
    with HttpClient(bench.url) as client:
        register(client, "persistent://public/default/orders", schema)
    codec = codec_for(schema)
    good = [codec.encode({"id": n, "tags": {"n": str(n)}, "at": 1769846400000 + n}) for n in range(3)]
    rows = [("k", payload) for payload in (*good, b"\xff", None)]
    frame = bench.spark.createDataFrame(rows, "key STRING, payload BINARY")
    frame.coalesce(1).write.parquet(str(bench.folder / "bytes"))
    fields = "payload.id, payload.tags, payload.at" if decode == "struct" else "id, tags, at"
    bench.run_once(
        f"""
name = "bytes"
dead_letters = "dead"
[sources.orders]
format = "parquet"
schema = "key STRING, payload BINARY"
options = {{ path = "bytes" }}
decode = "{decode}"
column = "payload"
reader_schema = "{given}"
on_bad_value = "dead_letter"
expect = [{{ name = "small", predicate = "{fields.split(",")[0]} IS NULL OR {fields.split(",")[0]} < 2", action = "dead_letter" }}]
[[steps]]
name = "fields"
sql = "SELECT {fields} FROM orders WHERE key = 'k'"
[sinks.table]
input = "fields"
path = "table"
"""
    )
    found = sorted(bench.table("table"), key=lambda row: -1 if row["id"] is None else row["id"])
    assert [row["id"] for row in found] == [None, 0, 1]
    assert dict(found[1]["tags"]) == {"n": "0"}
    assert [row["at"].timestamp() for row in found[1:]] == [1769846400.0, 1769846400.001]
    reader = bench.spark.read.format("penstock").option("url", bench.url).option("subscribe", "dead")
    letters = reader.option("include", "properties").load().collect()
    # The bytes, as they came.
    why = {bytes(letter.value): letter.properties["x-dlq-error"] for letter in letters}
    assert why[good[2]].startswith("orders: expectation small: ")
    assert why[b"\xff"].startswith("orders: value")
    assert {bytes(letter.key) for letter in letters} == {b"k"}
    assert len(letters) == 2


REGISTERED = """
name = "registered"
dead_letters = "dead"
[schema_registry]
url = "REGISTRY"
"""

REGISTERED_SOURCE = """
[sources.KIND]
format = "parquet"
schema = "value BINARY"
options = { path = "KIND" }
decode = "flat"
reader_schema = "registry:KIND-value"
on_bad_value = "dead_letter"
[sinks.KIND]
input = "KIND"
path = "table-KIND"
"""


def test_values_of_a_schema_registry_are_decoded_by_their_ids(bench: Bench) -> None:
    registry = f"{bench.url}/registry"
    first = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    later = first | {"fields": [*ORDER["fields"][:1], {"name": "note", "type": "string", "default": "-"}]}
    shape = {"title": "T", "type": "object", "properties": {"id": {"type": "integer"}}}
    descriptor = native_message(of_proto('syntax = "proto3"; message Order { int64 id = 1; }', {}))
    order_class = GetMessageClass(descriptor)
    with closing(SchemaRegistryClient({"url": registry})) as client:
        writers = {
            "avro": [
                (AvroSerializer(client, json.dumps(first)), {"id": 1}),
                (AvroSerializer(client, json.dumps(later)), {"id": 2, "note": "b"}),
            ],
            "json": [(JSONSerializer(json.dumps(shape), client), {"id": 1})],
            "protobuf": [(ProtobufSerializer(order_class, client), order_class(id=1))],
        }
        values: dict[str, list[bytes | None]] = {}
        for kind, pairs in writers.items():
            context = SerializationContext(kind, MessageField.VALUE)
            values[kind] = [serialize(value, context) for serialize, value in pairs]
    for kind, some in values.items():
        frame = bench.spark.createDataFrame([(value,) for value in (*some, b"\0\0\0\x7f\0?")], "value BINARY")
        frame.coalesce(1).write.parquet(str(bench.folder / kind))
    sources = "".join(REGISTERED_SOURCE.replace("KIND", kind) for kind in values)
    bench.run_once(REGISTERED.replace("REGISTRY", registry) + sources)
    assert sorted(bench.table("table-avro"), key=lambda row: row["id"]) == [
        {"id": 1, "note": "-"},
        {"id": 2, "note": "b"},
    ]
    assert bench.table("table-json") == bench.table("table-protobuf") == [{"id": 1}]
    dead = [message["properties"]["x-dlq-error"] for message in bench.messages("dead")]
    assert sorted(dead) == [
        f"{kind}: value: schema id 32512: the registry does not have it" for kind in sorted(values)
    ]


def test_a_batch_that_fails_in_one_function_is_not_repeated_in_another(bench: Bench) -> None:
    (bench.folder / "recording.py").write_text(RECORDING)
    (bench.folder / "names.csv").write_text("t,tea\n")
    put(bench, "1.json", order(1))
    sinks = """
[sinks.first]
input = "named"
python = "recording:write"
[sinks.second]
input = "named"
python = "recording:fail_once"
"""
    with pytest.raises(PipelineError) as failed:
        bench.run_once(FILES + sinks)
    assert "[sinks.second] (python recording:fail_once): " in failed.value.message
    assert "the service is away" in failed.value.message
    assert "files, first, table, topic have batch 0, second has not" in failed.value.message
    bench.run_once(FILES + sinks)
    assert calls(bench) == [[0, [1]]]
    assert [message["value"]["id"] for message in bench.messages("named")] == [1]
    assert bench.spark.read.parquet(str(bench.folder / "parquet")).count() == 1
    # Spark lost the commit: what was written down holds still.
    lose_commit(Folder(bench.folder / "state" / "files").checkpoint)
    bench.run_once(FILES + sinks)
    assert calls(bench) == [[0, [1]]]
    assert len(bench.messages("named")) == len(bench.table("table")) == 1


class Recorder(DataSourceWriter):
    """Appends the options of a write to a file."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def write(self, iterator: Iterator[object]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()

    def commit(self, messages: object) -> None:
        with Path(self._options["path"]).open("a") as file:
            file.write(json.dumps(self._options) + "\n")


class FakeDelta(DataSource):
    """Takes the options that Delta takes."""

    @classmethod
    def name(cls) -> str:
        return "delta"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return Recorder(dict(self.options))


def test_delta_is_told_the_query_and_the_batch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def session_with_delta(spec: Spec, spark: SparkSession) -> SparkSession:
        made = session_for(spec, spark)
        made.dataSource.register(FakeDelta)
        return made

    monkeypatch.setattr("penstock.pipeline.run.query.session_for", session_with_delta)
    put(bench, "1.json", order(1))
    text = """
name = "delta"
[sources.s]
format = "json"
schema = "id BIGINT"
options = { path = "orders" }
[sinks.d]
input = "s"
format = "delta"
options = { path = "told", mergeSchema = true, note = "env:HOME" }
"""
    query = bench.run_once(text)["query"]
    lose_commit(Folder(bench.folder / "state" / "delta").checkpoint)
    bench.run_once(text)
    told = [json.loads(line) for line in (bench.folder / "told").read_text().splitlines()]
    assert [(one["txnappid"], one["txnversion"], one["mergeschema"]) for one in told] == [
        (query, "0", "true")
    ] * 2
    assert all(one["note"].startswith("/") for one in told)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ('format = "json"', 'format = "iceberg"'),
            '[sources.orders]: format: this Spark has no format iceberg: add "spark.jars.packages" ='
            ' "org.apache.iceberg:iceberg-spark-runtime-',
        ),
        (
            ('format = "parquet"', 'format = "no.such"'),
            "[sinks.files] (format no.such path=parquet): format: this Spark has no format no.such",
        ),
        (
            ('format = "json"\nschema = "id BIGINT, product STRING, at TIMESTAMP"', 'format = "jdbc"'),
            "a format without streams is read by [tables.…] format = 'jdbc'",
        ),
    ],
)
def test_a_format_that_is_not_there_is_named(bench: Bench, change: tuple[str, str], sentence: str) -> None:
    (bench.folder / "names.csv").write_text("t,tea\n")
    put(bench, "1.json", order(1))
    text = FILES.replace(*change)
    assert text != FILES
    with pytest.raises(PipelineError) as refused:
        check(load_spec(bench.file(text), url=bench.url, state=bench.folder / "state"), bench.spark)
    assert sentence in refused.value.message
    assert "\n" not in refused.value.message


def test_check_says_how_often_each_sink_may_have_a_row(bench: Bench) -> None:
    (bench.folder / "names.csv").write_text("t,tea\n")
    put(bench, "1.json", order(1))
    spec = load_spec(bench.file(FILES), url=bench.url, state=bench.folder / "state")
    checked = check(spec, bench.spark)
    assert checked.deliveries == [
        "[sinks.topic] delivery: exactly_once",
        "[sinks.table] delivery: exactly_once",
        "[sinks.files] delivery: at_least_once: parquet does not know a batch that is repeated",
    ]
    assert checked.limits == ["[sources.orders] a batch takes what the options of format json say"]
    assert checked.sinks["files"] == {"id": "bigint", "name": "string", "at": "timestamp"}


def test_a_pipeline_without_topics_needs_no_server(bench: Bench) -> None:
    put(bench, "1.json", order(1))
    bench.url = "http://127.0.0.1:1"
    bench.run_once(
        """
name = "alone"
[sources.s]
format = "json"
schema = "id BIGINT"
options = { path = "orders" }
[sinks.f]
input = "s"
format = "csv"
options = { path = "csv" }
"""
    )
    assert bench.spark.read.csv(str(bench.folder / "csv")).count() == 1
