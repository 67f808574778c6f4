# ruff: noqa: DTZ001 - Spark gives times without a zone, in the session's
"""Values decoded by the topics' registered schemas, by a real Spark session from a real server."""

import json
import pickle
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.client.http import HttpClient
from penstock.codec import codec_for
from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.encode.plan import plan_encoding
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.schemas import all_versions, register
from penstock.pipeline.run.failures import ErrorClass, cause_of
from penstock.pipeline.run.handle import pipeline
from penstock.testing.server import Address, running

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
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
    ],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Read = Callable[..., DataFrame]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with running(tmp_path_factory.mktemp("data")) as address, HttpClient(address.url) as client:
        path = "/admin/v2/namespaces/public/default/schemaCompatibilityStrategy"
        client.call("PUT", path, body="BACKWARD")
        yield address


@pytest.fixture
def client(server: Address) -> Iterator[HttpClient]:
    with HttpClient(server.url) as made:
        yield made


@pytest.fixture
def read(spark: SparkSession, server: Address) -> Read:
    def read(**options: object) -> DataFrame:
        reader = spark.read.format("penstock").option("url", server.url)
        for name, value in ({"value.decode": "struct"} | options).items():
            reader = reader.option(name, str(value))
        return reader.load()

    return read


def topic_with(client: HttpClient, name: str, *schemas: Any, kind: SchemaType = SchemaType.AVRO) -> TopicName:
    topic = TopicName.parse(name)
    client.create_topic(topic)
    for number, schema in enumerate(schemas):
        info = schema if isinstance(schema, SchemaInfo) else SchemaInfo(kind, json.dumps(schema).encode())
        assert register(client, name, info) == number
    return topic


def put(client: HttpClient, topic: TopicName, *values: Any, version: int) -> None:
    answer = client.produce(topic, [{"value": value} for value in values], schema_version=version)
    assert all(each["error"] is None for each in answer["messageIds"]), answer


def put_bytes(client: HttpClient, topic: TopicName, *payloads: bytes) -> None:
    """Messages that name no schema."""
    messages = [{"value": b64encode(payload).decode()} for payload in payloads]
    answer = client.produce(topic, messages, schema_type="BYTES")
    assert all(each["error"] is None for each in answer["messageIds"]), answer


def values(frame: DataFrame) -> list[Any]:
    return [row.value for row in frame.orderBy("offset").collect()]


def plain(row: Any) -> Any:
    return row.asDict(recursive=True) if hasattr(row, "asDict") else row


@pytest.fixture(scope="module")
def mixed(server: Address) -> str:
    """Two versions, message by message, and broken ones among them."""
    with HttpClient(server.url) as client:
        topic = topic_with(client, "mixed", V0, V1)
        for n in range(0, 40, 2):
            put(client, topic, {"id": n, "to": f"a{n}"}, version=0)
            put(client, topic, {"id": n + 1, "to": None, "at": n, "tags": ["x"] * (n % 3)}, version=1)
            if n % 10 == 0:
                put_bytes(client, topic, b"\xff\xff no order")
    return "mixed"


def test_two_versions_interleaved(mixed: str, read: Read) -> None:
    frame = read(subscribe=mixed, mode="permissive")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,to:string,at:timestamp,tags:array<string>>"
    )
    rows = frame.orderBy("offset").collect()
    good = [row for row in rows if row._error is None]
    assert [row.value.id for row in good] == list(range(40))
    for row in good:
        n = row.value.id
        assert row._raw is None
        if n % 2:
            assert (row.value.to, row.value.tags) == (None, ["x"] * ((n - 1) % 3))
        else:
            assert (row.value.to, row.value.tags) == (f"a{n}", ["new"])
    assert {plain(r.value)["at"].replace(tzinfo=UTC) for r in good if r.value.id % 2 == 0} == {EPOCH}
    broken = [row for row in rows if row._error is not None]
    assert [(bytes(row._raw), row.value) for row in broken] == [(b"\xff\xff no order", None)] * 4
    assert all(row._error.startswith("value: the payload is not of its Avro schema") for row in broken)


def test_values_of_a_registry_s_serializer(server: Address, read: Read) -> None:
    with closing(SchemaRegistryClient({"url": server.registry_url})) as registry:
        context = SerializationContext("serialized", MessageField.VALUE)
        framed = [
            AvroSerializer(registry, json.dumps(schema))(value, context)
            for schema, value in (
                (V0, {"id": 1, "to": "a"}),
                (V1, {"id": 2, "to": None, "at": EPOCH, "tags": []}),
            )
        ]
    given = {"records": [{"value": b64encode(each or b"").decode()} for each in framed]}
    kind = {"content-type": "application/vnd.kafka.binary.v2+json"}
    url = f"{server.rest_proxy_url}/topics/serialized"
    answer = httpx.post(url, json=given, headers=kind, trust_env=False)
    assert [each["error_code"] for each in answer.json()["offsets"]] == [None, None]
    found = [(row.id, row.to, row.tags) for row in values(read(subscribe="serialized"))]
    assert found == [(1, "a", ["new"]), (2, None, [])]


def test_one_version_for_the_whole_table(mixed: str, read: Read) -> None:
    frame = read(subscribe=mixed, readerSchema="version:0", mode="dead_letter")
    assert frame.schema["value"].dataType.simpleString() == "struct<id:int,to:string>"
    errors = [row._error for row in frame.orderBy("offset").collect()]
    assert sum(error is None for error in errors) == 20, "what version 1 wrote has no `to` that is no null"
    assert any("schema version 1: the reader's schema cannot read this: field 'id'" in e for e in errors if e)


def test_columns_written_down_and_flat(mixed: str, read: Read) -> None:
    frame = read(
        **{"value.decode": "flat"},
        subscribe=mixed,
        readerSchema="ddl: id bigint, `to` string, missing map<string, array<double>>",
        mode="permissive",
    )
    assert frame.columns == [
        *("key", "topic", "partition", "offset", "timestamp", "timestampType"),
        *("id", "to", "missing", "_raw", "_error"),
    ]
    rows = frame.where("_error IS NULL").orderBy("offset").collect()
    assert [(row.id, row.missing) for row in rows] == [(n, None) for n in range(40)]


def test_failfast_names_the_place(mixed: str, read: Read) -> None:
    with pytest.raises(
        PySparkException, match=r"public/default/mixed, partition 0, offset 2: value: the payload"
    ) as error:
        read(subscribe=mixed).collect()
    assert cause_of(error.value).kind is ErrorClass.PLAN


def test_the_version_is_a_column_only_when_asked_for(mixed: str, read: Read) -> None:
    frame = read(subscribe=mixed, include="schema_version", mode="permissive")
    counts = {row.schema_version: row["count"] for row in frame.groupBy("schema_version").count().collect()}
    assert counts == {0: 20, 1: 20, None: 4}
    assert "schema_version" not in read(subscribe=mixed).columns


def test_json(client: HttpClient, read: Read) -> None:
    topic = topic_with(client, "json", V1, kind=SchemaType.JSON)
    put(client, topic, {"id": 1, "to": "é", "at": "2024-02-29T00:00:00Z"}, {"id": 2, "tags": []}, version=0)
    put_bytes(client, topic, b'{"id": "one"}', b'{"id": 3, "unknown": true}', b"{} {}")
    rows = read(subscribe="json", mode="permissive").orderBy("offset").collect()
    assert [row.value and (row.value.id, row.value.to, row.value.tags) for row in rows] == [
        (1, "é", ["new"]),
        (2, None, []),
        None,
        (3, None, ["new"]),
        None,
    ]
    assert rows[0].value.at == datetime(2024, 2, 29)
    assert rows[2]._error == "value.id: 'one' is no long"


@pytest.mark.parametrize(
    ("kind", "given", "expected", "spark_type"),
    [
        ("STRING", ["é", ""], ["é", ""], "string"),
        ("BOOLEAN", [True, False], [True, False], "boolean"),
        ("INT8", [-128, 127], [-128, 127], "tinyint"),
        ("INT16", [-(2**15)], [-(2**15)], "smallint"),
        ("INT32", [2**31 - 1], [2**31 - 1], "int"),
        ("INT64", [-(2**63)], [-(2**63)], "bigint"),
        ("FLOAT", [0.5], [0.5], "float"),
        ("DOUBLE", [0.1], [0.1], "double"),
        ("LOCAL_DATE", ["2024-02-29"], [date(2024, 2, 29)], "date"),
        ("LOCAL_TIME", ["00:00:01"], [10**9], "bigint"),
        ("TIME", ["00:00:01"], [1000], "bigint"),
        ("DATE", ["2024-02-29"], [datetime(2024, 2, 29)], "timestamp"),
        ("TIMESTAMP", ["2024-02-29T01:02:03.004Z"], [datetime(2024, 2, 29, 1, 2, 3, 4000)], "timestamp"),
        (
            "INSTANT",
            ["1969-12-31T23:59:59.999999Z"],
            [datetime(1969, 12, 31, 23, 59, 59, 999999)],
            "timestamp",
        ),
        ("LOCAL_DATE_TIME", ["2024-02-29T01:02:03"], [datetime(2024, 2, 29, 1, 2, 3)], "timestamp_ntz"),
    ],
)
def test_primitives(
    client: HttpClient, read: Read, kind: str, given: list[Any], expected: list[Any], spark_type: str
) -> None:
    name = f"primitive-{kind}"
    topic = topic_with(client, name, SchemaInfo(SchemaType[kind]))
    put(client, topic, *given, None, version=0)
    if kind not in ("STRING",):
        put_bytes(client, topic, b"123")
    frame = read(subscribe=name, mode="permissive")
    assert frame.schema["value"].dataType.simpleString() == spark_type
    rows = frame.orderBy("offset").collect()
    assert [row.value for row in rows[: len(given) + 1]] == [*expected, None]
    assert rows[len(given)]._error is None
    if kind not in ("STRING",):
        assert rows[-1]._error == f"value: a payload of 3 bytes is no {kind.lower()}"


def protobuf_schema() -> SchemaInfo:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto as F
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from penstock.codec.descriptors import native_schema

    file = F(
        name="order.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="SENT", number=1)
    message = file.message_type.add(name="Order")
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("id", 3, 1, ""),
            ("to", 9, 1, ""),
            ("state", 14, 1, ".shop.State"),
            ("tags", 9, 3, ""),
            ("counts", 11, 3, ".shop.Order.CountsEntry"),
            ("at", 11, 1, ".google.protobuf.Timestamp"),
            ("big", 4, 1, ""),
        ],
        1,
    ):
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            field.type_name = type_name
    return native_schema(FileDescriptorSet(file=[file]).SerializeToString(), "shop.Order")


def test_protobuf(client: HttpClient, read: Read) -> None:
    topic = topic_with(client, "protobuf", protobuf_schema())
    full = {
        "id": "7",
        "to": "me",
        "state": "SENT",
        "tags": ["a", "b"],
        "counts": {"x": 1},
        "at": "2024-02-29T00:00:00Z",
        "big": str(2**64 - 1),
    }
    put(client, topic, full, {}, version=0)
    put_bytes(client, topic, b"\x0a\xff")
    frame = read(subscribe="protobuf", mode="permissive")
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,to:string,state:string,tags:array<string>,counts:map<string,int>,at:timestamp,"
        "big:decimal(20,0)>"
    )
    first, second, third = frame.orderBy("offset").collect()
    assert plain(first.value) | {"at": None} == full | {"id": 7, "at": None, "big": 2**64 - 1}
    assert plain(second.value) == {
        "id": 0,
        "to": "",
        "state": "NEW",
        "tags": [],
        "counts": {},
        "at": None,
        "big": 0,
    }
    assert third.value is None
    assert "is no Protobuf message shop.Order" in third._error


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_and_value(client: HttpClient, read: Read, encoding: str) -> None:
    from penstock.codec import key_value_schema
    from penstock.model.schema import KeyValueEncoding

    schema = key_value_schema(
        SchemaInfo(SchemaType.INT32),
        SchemaInfo(SchemaType.AVRO, json.dumps(V0).encode()),
        KeyValueEncoding(encoding),
    )
    name = f"pairs-{encoding}"
    topic = topic_with(client, name, schema)
    messages = [{"key": 7, "value": {"id": 1, "to": "x"}}, {"key": 8, "value": {"id": 2, "to": "y"}}]
    answer = client.produce(topic, messages, schema_version=0)
    assert all(each["error"] is None for each in answer["messageIds"]), answer
    frame = read(subscribe=name)
    assert frame.schema["value"].dataType.simpleString() == "struct<key:int,value:struct<id:int,to:string>>"
    assert [plain(v) for v in values(frame)] == messages
    flat = read(subscribe=name, **{"value.decode": "flat"}).orderBy("offset").collect()
    assert [(row.key, row.id, row.to) for row in flat] == [(7, 1, "x"), (8, 2, "y")]


def test_several_topics(client: HttpClient, read: Read) -> None:
    one = topic_with(client, "several-1", V1)
    two = topic_with(client, "several-2", V0)
    put(client, one, {"id": 1}, version=0)
    put(client, two, {"id": 2, "to": "b"}, version=0)
    rows = read(subscribe="several-1,several-2").collect()
    assert sorted((row.value.id, row.value.to) for row in rows) == [(1, None), (2, "b")]
    assert read(subscribePattern="several-.*").count() == 2
    topic_with(client, "several-3", SchemaInfo(SchemaType.INT32))
    with pytest.raises(
        PySparkException, match=r"several-3: schema version 0 does not fit .*INT32 was written"
    ):
        read(subscribe="several-1,several-3")
    topic_with(client, "several-4")
    with pytest.raises(PySparkException, match="several-4 has no registered schema"):
        read(subscribe="several-1,several-4")


def test_a_frame_keeps_its_columns_when_a_version_follows(client: HttpClient, read: Read) -> None:
    topic = topic_with(client, "grows", V0)
    put(client, topic, {"id": 1, "to": "a"}, version=0)
    lenient = read(subscribe="grows", mode="permissive", readerSchema="latest")
    failing = read(subscribe="grows", onNewSchema="fail")
    both = {**V0, "fields": [*V0["fields"], {"name": "more", "type": "int", "default": 5}]}
    assert register(client, "grows", SchemaInfo(SchemaType.AVRO, json.dumps(both).encode())) == 1
    put(client, topic, {"id": 2, "to": "b", "more": 6}, version=1)
    assert [plain(v) for v in values(lenient)] == [{"id": 1, "to": "a"}, {"id": 2, "to": "b"}]
    assert len(values(failing)) == 2, "it is planned when it is run, with all versions there are then"
    assert [v.more for v in values(read(subscribe="grows"))] == [5, 6]


def test_sql(client: HttpClient, spark: SparkSession, server: Address) -> None:
    topic = topic_with(client, "in-sql", V0)
    put(client, topic, {"id": 1, "to": "a"}, {"id": 2, "to": "b"}, version=0)
    spark.sql(
        f"CREATE TABLE typed USING penstock OPTIONS (url '{server.url}', subscribe 'in-sql', `value.decode` 'flat')"
    )
    try:
        found = spark.sql("SELECT sum(id) AS n, max(`to`) AS last FROM typed WHERE id > 0").first()
        assert found is not None
        assert (found.n, found.last) == (3, "b")
    finally:
        spark.sql("DROP TABLE typed")


@pytest.mark.parametrize(("on_new", "trouble"), [("restart", "new_schema"), ("fail", "schema")])
def test_a_version_that_ends_a_stream(
    client: HttpClient, spark: SparkSession, server: Address, tmp_path: Path, on_new: str, trouble: str
) -> None:
    name = f"streamed-{on_new}"
    topic = topic_with(client, name, V0)
    put(client, topic, {"id": 1, "to": "a"}, version=0)

    def frame() -> DataFrame:
        reader = spark.readStream.format("penstock").option("url", server.url).option("subscribe", name)
        reader = reader.option("startingOffsets", "earliest").option("value.decode", "struct")
        return reader.option("onNewSchema", on_new).load().selectExpr("CAST(value.id AS BIGINT) AS id")

    def start() -> Any:
        writer = frame().writeStream.format("parquet").option("path", str(tmp_path / "out"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    query = start()
    try:
        query.processAllAvailable()
        wider = {**V0, "fields": [{"name": "id", "type": "long"}, V0["fields"][1]]}
        register(client, name, SchemaInfo(SchemaType.AVRO, json.dumps(wider).encode()))
        put(client, topic, {"id": 2**40, "to": "b"}, version=1)
        with pytest.raises(
            PySparkException, match="has schema version 1, the query was planned with 0"
        ) as error:
            query.awaitTermination(60)
        assert cause_of(error.value).kind.value == trouble
    finally:
        query.stop()
    again = start()
    try:
        again.processAllAvailable()
    finally:
        again.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(row.id for row in rows) == [1, 2**40]


def test_written_by_the_registered_schema_and_read_back(
    client: HttpClient, spark: SparkSession, read: Read, server: Address
) -> None:
    topic_with(client, "written")
    frame = spark.sql(
        "SELECT struct(id, CAST(id AS STRING) AS name, id % 2 = 0 AS even, array(id, NULL) AS both,"
        " map('a', id * 0.5D) AS m, TIMESTAMP '2024-02-29 01:02:03.000004' AS at, DATE '2024-02-29' AS day,"
        " CAST(id AS DECIMAL(10, 2)) AS price, CAST('x' AS BINARY) AS raw, named_struct('n', id) AS inner) AS value"
        " FROM range(100)"
    )
    encoding = plan_encoding("auto", frame.schema["value"].dataType, "written", client)
    assert encoding.schema_version == 0
    assert plan_encoding("auto", frame.schema["value"].dataType, "written", client).schema_version == 0
    column = frame.toArrow()["value"].combine_chunks()
    encoding = pickle.loads(pickle.dumps(encoding))
    payloads = [bytes(payload) for payload in encoding.encode(column).to_pylist()]
    codec = codec_for(encoding.schema)
    assert codec.decode(payloads[3])["name"] == "3"
    messages = [{"value": b64encode(payload).decode()} for payload in payloads]
    answer = client.produce(TopicName.parse("written"), messages, schema_version=0, encoding="base64")
    assert all(each["error"] is None for each in answer["messageIds"])
    back = read(subscribe="written").orderBy("offset").select("value")
    wanted = frame.schema["value"].dataType.simpleString()
    assert back.schema["value"].dataType.simpleString() == wanted
    assert back.collect() == frame.collect()


def test_through_the_sink_and_back(
    client: HttpClient, spark: SparkSession, read: Read, server: Address
) -> None:
    """Structs by a schema made of them, Protobuf by the registered one, pairs whose key is the message's."""
    from penstock.codec import key_value_schema
    from penstock.model.schema import KeyValueEncoding

    pair = key_value_schema(
        SchemaInfo(SchemaType.STRING),
        SchemaInfo(SchemaType.JSON, json.dumps(V0).encode()),
        KeyValueEncoding.SEPARATED,
    )
    topic_with(client, "sunk-struct")
    topic_with(client, "sunk-protobuf", protobuf_schema())
    topic_with(client, "sunk-pair", pair)
    columns = {
        "sunk-struct": "struct(id, array(CAST(id AS STRING)) AS tags, CAST(NULL AS DOUBLE) AS none)",
        "sunk-protobuf": "struct(id, 'SENT' AS state, map('a', CAST(id AS INT)) AS counts, TIMESTAMP '2024-02-29' AS at)",
        "sunk-pair": "struct(CAST(id AS STRING) AS key, struct(CAST(id AS INT) AS id, 'x' AS `to`) AS value)",
    }
    for name, column in columns.items():
        frame = spark.sql(f"SELECT IF(id = 3, NULL, {column}) AS value FROM range(5)").coalesce(1)
        frame.write.format("penstock").option("url", server.url).option("topic", name).mode("append").save()
        back = [plain(v) for v in values(read(subscribe=name))]
        wanted = [plain(row.value) for row in frame.collect()]
        if name == "sunk-protobuf":
            assert [v and v["id"] for v in back] == [0, 1, 2, None, 4]
            back = [v and {k: v[k] for k in wanted[0]} for v in back]
        if name == "sunk-pair":
            wanted[3] = back[3]  # a pair without either part: a null message with no key
            assert back[3] in (None, {"key": None, "value": None})
        assert back == wanted


def test_what_the_registered_schema_does_not_take(client: HttpClient, spark: SparkSession) -> None:
    topic_with(client, "written-to", V0)
    narrow = spark.sql("SELECT struct(1 AS id) AS value").schema["value"].dataType
    with pytest.raises(PipelineError, match=r"version 0 of .*/written-to: value.to: the column is missing"):
        plan_encoding("auto", narrow, "written-to", client)
    assert plan_encoding("avro", narrow, "written-to", client).schema_version == 1
    number = spark.sql("SELECT 1.5D AS value").schema["value"].dataType
    with pytest.raises(PipelineError, match="value: double cannot be written as record Order"):
        plan_encoding("auto", number, "written-to", client)
    for how, said in {
        "avro": "refuses the schema of column value: .*double",
        "json": "has a schema of type AVRO, not JSON",
        "protobuf": "has a schema of type AVRO, not PROTOBUF_NATIVE",
        "none": "none needs a column value of type binary or string",
    }.items():
        with pytest.raises(PipelineError, match=said):
            plan_encoding(how, number, "written-to", client)
    assert max(all_versions(client, "written-to")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"value.decode": "structs"}, "option value.decode: 'structs' is none of none, struct, flat"),
        ({"readerSchema": "newest"}, "option readerSchema: 'newest' is none of latest"),
        ({"readerSchema": "version:9"}, "has no schema version 9; there are 0, 1"),
        ({"readerSchema": "ddl: id frog"}, "option readerSchema: ddl: no type 'frog'"),
        ({"readerSchema": "ddl: id tinyint"}, r"value.id: int64 was written, which int8 cannot hold"),
        ({"mode": "lenient"}, "option mode: 'lenient' is none of failfast"),
        ({"onNewSchema": "stop"}, "option onNewSchema: 'stop' is none of ignore"),
        ({"value.decode": "none", "mode": "permissive"}, "option mode needs value.decode=struct or flat"),
    ],
)
def test_bad_options(mixed: str, read: Read, options: dict[str, str], said: str) -> None:
    with pytest.raises(PySparkException, match=said):
        read(subscribe=mixed, **options)


NESTED = {
    "type": "record",
    "name": "Nested",
    "fields": [
        {"name": "part", "type": ["null", {"type": "record", "name": "Part", "fields": [
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}},
        ]}]},
        {"name": "parts", "type": ["null", {"type": "array", "items": ["null", "Part"]}]},
        {"name": "named", "type": {"type": "map", "values": ["null", "Part"]}},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
        {"name": "raw", "type": ["null", "bytes"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("decode", ["none", "struct", "flat"])
def test_a_preview_has_the_rows_of_a_read(
    client: HttpClient, server: Address, spark: SparkSession, tmp_path: Path, decode: str
) -> None:
    name = f"nested-{decode}"
    topic = topic_with(client, name, NESTED)
    part = {"at": 1_700_000_000_000_001, "price": "123456789012.3456"}
    empty = {"at": None, "price": "-0.0001"}
    for n in range(30):
        value = {
            "part": part if n % 3 else None,
            "parts": [part, None, empty][: n % 4] if n % 5 else None,
            "named": {"a": empty, "b": None} if n % 2 else {},
            "local": n if n % 7 else None,
            "raw": "AP8=" if n % 2 else None,
        }
        message = {"value": value, "key": f"k{n % 4}", "eventTime": 1000 + n, "properties": {"n": str(n)}}
        answer = client.produce(topic, [message], schema_version=0)
        assert all(each["error"] is None for each in answer["messageIds"]), answer
    include = ["properties", "event_time", "message_id", "producer_name", "sequence_id", "schema_version"]
    include += ["ordering_key", "deliver_at"]
    file = tmp_path / "p.toml"
    file.write_text(
        f'name = "p"\n[sources.s]\ntopics = ["{name}"]\ndecode = "{decode}"\ninclude = {json.dumps(include)}\n'
        '[sinks.o]\ninput = "s"\ntopic = "o"\n[spark]\n"spark.sql.session.timeZone" = "Asia/Kolkata"\n'
    )
    made = pipeline(file, spark, url=server.url, state=tmp_path / "state")
    found = made.preview("s", rows=100, messages=20)
    reader = spark.read.format("penstock").option("url", server.url).option("subscribe", name)
    read = reader.option("value.decode", decode).option("include", ",".join(include)).load()
    wanted = read.where("offset >= 10").orderBy(f.col("offset").desc())
    assert [(each.name, each.dataType) for each in found.schema] == [
        (each.name, each.dataType) for each in wanted.schema
    ]
    assert found.count() == 20
    assert found.toArrow().to_pylist() == wanted.toArrow().to_pylist()
