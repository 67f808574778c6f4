"""Schemas on one log through several endpoints: what one writes the others read (PIP-43, PIP-64)."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.schemas import A, B, C, Endpoints, avro, b64, record, tell_values_without_a_schema

from penstock.codec.descriptors import native_schema
from penstock.testing.server import Address, running


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running() as address:
        yield address


@pytest.fixture
def endpoints(server: Address) -> Iterator[Endpoints]:
    with httpx.Client(base_url=server.url, timeout=60) as http:
        yield Endpoints(server, http)


def test_values_without_a_schema(endpoints: Endpoints) -> None:
    tell_values_without_a_schema(endpoints)
    number = {"type": "JSON", "schema": record({"name": "n", "type": "int"})}
    declared = endpoints.publish(value_schema=number, messages=[{"value": {"n": 1}}])["schema_version"]
    again = endpoints.publish(messages=[{"value": {"n": 2}}])
    assert again["schema_version"] == declared
    assert "value.n" in endpoints.publish(422, messages=[{"value": {"a": 1}}])["message"]
    assert [value for value, version in endpoints.values_and_versions() if version == declared] == [
        {"n": 1},
        {"n": 2},
    ]


def test_the_first_value_says_what_a_topic_without_a_schema_is(endpoints: Endpoints) -> None:
    answer = endpoints.publish(messages=[{"value": None}, {"value": "text"}, {"value": {"a": 1}}])
    assert [slot["error_code"] for slot in answer["messageIds"]] == [None, None, 1]
    assert endpoints.publish(422, messages=[{"value": {"a": 1}}])["error_code"] == 42202
    assert endpoints.values_and_versions() == [(None, None), ("text", 0)]


def test_values_without_a_schema_do_not_follow_avro(endpoints: Endpoints) -> None:
    endpoints.register(record(A))
    for value in ("text", {"a": 1}, 5):
        assert endpoints.publish(422, messages=[{"value": value}])["error_code"] == 42202


def test_one_producer_many_schemas_over_websocket(endpoints: Endpoints) -> None:
    answers = endpoints.frames(
        {"payload": b64(b"\x02"), "valueSchema": avro(A)},
        {"payload": b64(b"\x04\x02x"), "valueSchema": avro(A, B)},
        {"payload": b64(b"\x06\x02x"), "valueSchema": avro(A, C)},
        {"payload": b64(b"\x06"), "schemaVersion": 0},
        {"payload": b64(b"\x08"), "schemaVersion": 1},
        {"payload": b64(b"\x08\x02y"), "schemaVersion": 1},
        {"payload": b64(b"\x0a"), "schemaVersion": 9},
        {"payload": b64(b"\x0a"), "valueSchema": json.dumps(avro(A))},
    )
    assert [a["result"] == "ok" for a in answers] == [True, True, False, True, False, True, False, True]
    assert "field 'c'" in answers[2]["errorMsg"]
    assert "it ends too early" in answers[4]["errorMsg"]
    assert "version 9" in answers[6]["errorMsg"]
    expected = [({"a": 1}, 0), ({"a": 2, "b": "x"}, 1), ({"a": 3}, 0), ({"a": 4, "b": "y"}, 1), ({"a": 5}, 0)]
    assert endpoints.values_and_versions() == expected
    assert [v["version"] for v in endpoints.versions()] == [0, 1]


def test_one_request_many_schemas(endpoints: Endpoints) -> None:
    endpoints.register(record(A))
    answer = endpoints.publish(
        schema_version=0,
        messages=[
            {"value": {"a": 1}},
            {"value": {"a": 2, "b": "x"}, "value_schema": avro(A, B)},
            {"value": {"a": 3, "c": "x"}, "value_schema": avro(A, C)},
            {"value": {"a": 2**31}},
            {"value": {"a": 5}},
            {"value": "text", "schema_type": "string"},
        ],
    )
    slots = answer["messageIds"]
    assert [slot["schema_version"] for slot in slots] == [0, 1, None, None, 0, None]
    assert "field 'c'" in slots[2]["error"]
    assert "value.a: 2147483648 does not fit 32 bits" in slots[3]["error"]
    assert "STRING" in slots[5]["error"]
    # other endpoints see the same bytes, versions and order
    seen = [(frame["payload"], frame["schemaVersion"]) for frame in endpoints.reader(3)]
    assert seen == [(b64(b"\x02"), 0), (b64(b"\x04\x02x"), 1), (b64(b"\x0a"), 0)]
    assert len(endpoints.versions()) == 2


def test_a_reader_resolves_what_websocket_wrote(endpoints: Endpoints) -> None:
    endpoints.frames(
        {"payload": b64(b"\x02"), "valueSchema": avro(A)},
        {"payload": b64(b"\x04\x02x"), "valueSchema": avro(A, B)},
    )
    renamed = {"name": "first", "type": "double", "aliases": ["a"]}
    for fields, expected in (
        ([{"name": "a", "type": "long"}, B], [{"a": 1, "b": "d"}, {"a": 2, "b": "x"}]),
        ([renamed], [{"first": 1.0}, {"first": 2.0}]),
    ):
        request = {"value_schema": avro(*fields), "initial_position": "earliest"}
        made = endpoints.http.post(f"{endpoints.topic}/subscription/s{len(fields)}", json=request).json()
        found = endpoints.http.get(f"{made['base_uri']}/messages", params={"timeout": 60_000}).json()[
            "messages"
        ]
        assert [message["value"] for message in found] == expected
    assert len(endpoints.versions()) == 2  # a reader's schema is not registered
    request = {"value_schema": avro(C), "initial_position": "earliest"}
    refused = endpoints.http.post(f"{endpoints.topic}/subscription/t", json=request)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40903)
    assert "field 'c'" in refused.json()["message"]


@pytest.mark.parametrize(
    ("kind", "value", "payload"),
    [
        ("bytes", "AP8=", "00ff"),
        ("string", "é", "c3a9"),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'.hex()),
        ("boolean", True, "01"),
        ("int8", -2, "fe"),
        ("int16", 258, "0102"),
        ("int32", -1, "ffffffff"),
        ("int64", 2**40, "0000010000000000"),
        ("float", 1.5, "3fc00000"),
        ("double", 2.25, "4002000000000000"),
        ("date", "1970-01-02", "0000000005265c00"),
        ("time", "00:00:01.002", "00000000000003ea"),
        ("timestamp", "1970-01-01T00:00:01.500Z", "00000000000005dc"),
        ("instant", "1970-01-01T00:00:01.000000005Z", "000000000000000100000005"),
        ("local_date", "1969-12-31", "ffffffffffffffff"),
        ("local_time", "00:00:00.000000001", "0000000000000001"),
        ("local_date_time", "1970-01-02T00:00:00.000000001", "00000000000000010000000000000001"),
    ],
)
def test_types_without_a_definition(endpoints: Endpoints, kind: str, value: Any, payload: str) -> None:
    version = endpoints.publish(schema_type=kind, messages=[{"value": value}])["schema_version"]
    assert version == (None if kind == "bytes" else 0)
    raw = b64(bytes.fromhex(payload))
    assert endpoints.reader(1)[0]["payload"] == raw
    # the same bytes from the other side are the same value
    given = {} if kind == "bytes" else {"schemaVersion": 0}
    assert endpoints.frames({"payload": raw, **given})[0]["result"] == "ok"
    assert endpoints.values_and_versions() == [(value, version)] * 2
    assert [v["type"] for v in endpoints.versions()] == ([] if kind == "bytes" else [kind.upper()])


def test_pairs(endpoints: Endpoints) -> None:
    schemas = {"key_schema": avro(A), "value_schema": {"type": "INT32"}}
    endpoints.publish(**schemas, messages=[{"key": {"a": 1}, "value": 7}])
    (frame,) = endpoints.reader(1)
    assert (frame["payload"], frame["key"]) == (b64(b"\0\0\0\7"), b64(b"\2"))  # SEPARATED
    one = {"keySchema": avro(A), "valueSchema": {"type": "INT32"}}
    answers = endpoints.frames(
        {**one, "key": b64(b"\4"), "payload": b64(b"\0\0\0\x08")},
        {**one, "key": b64(b""), "payload": b64(b"\0\0\0\x08")},
        {**one, "key": b64(b"\4"), "payload": b64(b"\0")},
    )
    assert [answer["result"] == "ok" for answer in answers] == [True, False, False]
    assert answers[1]["errorMsg"].startswith("key: ")
    inline = endpoints.publish(
        **schemas, key_value_encoding="INLINE", messages=[{"key": {"a": 3}, "value": 9}]
    )
    found = endpoints.read()["messages"]
    assert [(m["key"], m["value"]) for m in found] == [({"a": 1}, 7), ({"a": 2}, 8), ({"a": 3}, 9)]
    assert inline["schema_version"] == 1
    assert endpoints.reader(3)[2]["payload"] == b64(b"\0\0\0\1\6\0\0\0\4\0\0\0\x09")


def message(*fields: tuple[str, int]) -> str:
    """The definition of `message M` with optional fields of those types, numbered from 1."""
    file = FileDescriptorProto(name="m.proto", package="t", syntax="proto3")
    made = file.message_type.add(name="M")
    for number, (name, kind) in enumerate(fields, 1):
        made.field.add(name=name, number=number, type=kind, label=1)  # type: ignore[arg-type]
    return native_schema(FileDescriptorSet(file=[file]).SerializeToString(), "t.M").data.decode()


INT32, STRING = 5, 9  # FieldDescriptorProto.Type


def test_protobuf_native(endpoints: Endpoints) -> None:
    one = {"type": "PROTOBUF_NATIVE", "schema": message(("x", INT32))}
    two = {"type": "PROTOBUF_NATIVE", "schema": message(("x", INT32), ("s", STRING))}
    other = {"type": "PROTOBUF_NATIVE", "schema": message(("x", STRING))}
    answer = endpoints.publish(
        value_schema=one,
        messages=[
            {"value": {"x": 1}},
            {"value": {"x": 2, "s": "é"}, "value_schema": two},
            {"value": {"x": "3"}, "value_schema": other},
            {"value": {"x": 2**31}},
        ],
    )
    errors = [slot["error"] for slot in answer["messageIds"]]
    assert errors[:2] == [None, None]
    assert "field 'x': its type was int32, not string" in errors[2]
    assert "value.x: 2147483648 does not fit int32" in errors[3]
    assert [frame["payload"] for frame in endpoints.reader(2)] == [
        b64(b"\x08\1"),
        b64(b"\x08\2\x12\2\xc3\xa9"),
    ]
    ok, bad = endpoints.frames(
        {"payload": b64(b"\x08\3"), "schemaVersion": 1}, {"payload": b64(b"\x08"), "schemaVersion": 1}
    )
    assert (ok["result"], bad["result"]) == ("ok", "send-error:7")
    assert endpoints.values_and_versions() == [({"x": 1}, 0), ({"x": 2, "s": "é"}, 1), ({"x": 3, "s": ""}, 1)]


def test_protobuf_by_field_numbers(endpoints: Endpoints) -> None:
    def numbered(number: int) -> dict[str, Any]:
        info = [
            {"number": number, "name": "x", "type": "INT32", "label": "LABEL_OPTIONAL", "definition": None}
        ]
        definition = record({"name": "x", "type": "int", "default": 0})
        properties = {"__PARSING_INFO__": json.dumps(info)}
        return {"type": "PROTOBUF", "schema": definition, "properties": properties}

    endpoints.publish(value_schema=numbered(1), messages=[{"value": {"x": 1}}])
    endpoints.publish(value_schema=numbered(2), messages=[{"value": {"x": 2}}])
    assert [frame["payload"] for frame in endpoints.reader(2)] == [b64(b"\x08\1"), b64(b"\x10\2")]
    assert endpoints.values_and_versions() == [({"x": 1}, 0), ({"x": 2}, 1)]  # other bytes: another version


def test_include_schema_gives_those_that_occur(endpoints: Endpoints) -> None:
    for version, fields in enumerate(([A], [A, B])):
        endpoints.publish(value_schema=avro(*fields), messages=[{"value": {"a": version}}])
    first = endpoints.read(include_schema=True, max_messages=1)
    (found,) = first["schemas"]
    assert (found["type"], found["version"]) == ("AVRO", 0)
    assert json.loads(base64.b64decode(found["data"])) == record(A)
    assert [one["version"] for one in endpoints.read(include_schema=True)["schemas"]] == [0, 1]
