"""Protobuf messages by their descriptors, and what can be done without them."""

import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.codec.vectors import field, record, schema

from penstock.codec import check, check_definition, codec_for
from penstock.codec.descriptors import native_message, native_schema, schema_of_message
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility, SchemaInfo, SchemaType

_PROTO = """
syntax = "proto3";
package t;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
enum Colour { RED = 0; BLUE = 1; }
message Inner { string text = 1; }
message Outer {
  int32 i = 1; int64 l = 2; bytes raw = 3; Colour colour = 4; Inner inner = 5; repeated Inner many = 6;
  map<string, Inner> map = 7; google.protobuf.Timestamp at = 8; google.protobuf.Int32Value wrapped = 9;
  optional double maybe = 10; Outer again = 11; oneof one { string left = 12; uint32 right = 13; }
  repeated sint32 numbers = 14; google.protobuf.Duration took = 15; float f = 16; bool ok = 17;
  map<int32, bool> flags = 18; google.protobuf.Value any = 19; uint64 camelCase_name = 20;
}
"""


@pytest.fixture(scope="module")
def outer(tmp_path_factory: pytest.TempPathFactory) -> SchemaInfo:
    folder = tmp_path_factory.mktemp("proto")
    (folder / "a.proto").write_text(_PROTO)
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    arguments = [
        "",
        f"-I{folder}",
        f"-I{well_known}",
        "--include_imports",
        f"--descriptor_set_out={folder / 'o'}",
    ]
    assert protoc.main([*arguments, str(folder / "a.proto")]) == 0
    return native_schema((folder / "o").read_bytes(), "t.Outer")


FULL: dict[str, Any] = {
    "i": -3,
    "l": "1099511627776",
    "raw": "aGk=",
    "colour": "BLUE",
    "inner": {"text": "q"},
    "many": [{"text": "1"}, {"text": ""}],
    "map": {"a": {"text": "v"}},
    "at": "2020-01-01T00:00:00Z",
    "wrapped": 0,
    "maybe": 1.5,
    "left": "l",
    "numbers": [-1, 2],
    "took": "1.500s",
    "f": 0.5,
    "ok": True,
    "flags": {"5": True},
    "any": {"x": [1.0, None]},
    "camelCase_name": "7",
}


def test_the_schema_is_as_java_writes_it(outer: SchemaInfo) -> None:
    data = json.loads(outer.data)
    assert data.keys() == {"fileDescriptorSet", "rootMessageTypeName", "rootFileDescriptorName"}
    assert (data["rootMessageTypeName"], data["rootFileDescriptorName"]) == ("t.Outer", "a.proto")
    assert (outer.type, outer.name) == (SchemaType.PROTOBUF_NATIVE, "Outer")
    check_definition(outer)
    assert schema_of_message(native_message(outer)) == outer


def test_values_come_back(outer: SchemaInfo) -> None:
    codec = codec_for(outer)
    payload = codec.encode(FULL)
    assert codec.decode(payload) == FULL
    codec.check(payload)
    assert codec.encode({"i": -3}) == bytes.fromhex("08fdffffffffffffffff01")
    assert codec.encode({"camelCaseName": 7, "l": 2**40}) == codec.encode(
        {"camelCase_name": "7", "l": str(2**40)}
    )
    assert codec.encode({"any": None, "inner": None}) == bytes.fromhex("9a01020800")


def test_native_values(outer: SchemaInfo) -> None:
    codec = codec_for(outer)
    native = {
        **FULL,
        "l": 2**40,
        "raw": b"hi",
        "at": datetime(2020, 1, 1, tzinfo=UTC),
        "took": timedelta(seconds=1.5),
        "flags": {5: True},
        "camelCase_name": 7,
    }
    del native["any"]
    plain = {name: value for name, value in FULL.items() if name != "any"}
    payload = codec.encode(plain)
    assert codec.decode_native(payload) == native
    assert codec.encode_native(native) == payload
    message = GetMessageClass(native_message(outer)).FromString(payload)
    assert codec.encode_native(message) == payload
    with pytest.raises(PenstockError, match=r"a google\.protobuf\.Timestamp is no t\.Outer"):
        codec.encode_native(Timestamp())


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (5, "value: 5 is no Outer"),
        ({"nope": 1}, "value.nope: Outer has no such field"),
        ({"i": "x"}, "value.i: 'x' is no int32"),
        ({"i": 2**31}, "value.i: 2147483648 does not fit int32"),
        ({"i": True}, "value.i: true is no int32"),
        ({"i": 1.5}, "value.i: 1.5 is no int32"),
        ({"raw": "*"}, "value.raw: '*' is no bytes"),
        ({"colour": "GREEN"}, "value.colour: 'GREEN' is no Colour"),
        ({"inner": {"text": 4}}, "value.inner.text: 4 is no string"),
        ({"inner": 4}, "value.inner: 4 is no Inner"),
        ({"many": {"text": "x"}}, "value.many: an object is no list"),
        ({"many": [{"text": "x"}, {"text": 1}]}, "value.many[1].text: 1 is no string"),
        ({"map": {"a": {"text": 1}}}, "value.map['a'].text: 1 is no string"),
        ({"map": []}, "value.map: a list is no map"),
        ({"flags": {"x": True}}, "value.flags['x']: true does not fit this map"),
        ({"at": "noon"}, "value.at: 'noon' is no google.protobuf.Timestamp"),
        ({"left": "a", "right": 1}, "value.right: only one of left and right can be set"),
        ({"f": 1e39}, "value.f: 1e+39 is no float"),
        ({"ok": 1}, "value.ok: 1 is no bool"),
        ({"numbers": [1, "b"]}, "value.numbers[1]: 'b' is no sint32"),
        ({"inner": {"text": "\ud800"}}, "value.inner.text: '\\ud800' is no string"),
    ],
)
def test_errors_name_the_place(outer: SchemaInfo, value: Any, why: str) -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(outer).encode(value)
    assert caught.value.kind is ErrorKind.BAD_MESSAGE
    assert caught.value.message == why


def test_deep_values_end_no_process(outer: SchemaInfo) -> None:
    codec = codec_for(outer)
    value: dict[str, Any] = {}
    for _ in range(5000):
        value = {"again": value}
    with pytest.raises(PenstockError):
        codec.encode(value)
    payload = b""
    for _ in range(5000):
        size = len(payload)
        payload = b"\x5a" + bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + payload
    with pytest.raises(PenstockError):
        codec.decode(payload)


def test_any_bytes(outer: SchemaInfo) -> None:
    codec = codec_for(outer)

    @given(st.binary(max_size=40))
    def run(payload: bytes) -> None:
        for decode in (codec.decode, codec.decode_native, codec.check):
            try:
                decode(payload)
            except PenstockError as error:
                if error.kind is not ErrorKind.BAD_MESSAGE:
                    raise

    run()


def _native(*fields: dict[str, Any], name: str = "M", required: bool = False) -> SchemaInfo:
    file = FileDescriptorProto(name="x.proto", syntax="proto2")
    file.message_type.add(name=name, field=[{"label": "LABEL_OPTIONAL", **f} for f in fields])
    return native_schema(FileDescriptorSet(file=[file]).SerializeToString(), name)


A = {"name": "a", "number": 1, "type": "TYPE_INT32"}
B = {"name": "b", "number": 2, "type": "TYPE_STRING"}


@pytest.mark.parametrize(
    ("new", "why"),
    [
        (_native(A, B), None),
        (_native(), None),
        (_native({**A, "name": "renamed"}), None),
        (_native(A, name="N"), "the root message was M, not N"),
        (_native({**A, "number": 3}), "field 'a': its number was 1, not 3"),
        (_native({**A, "type": "TYPE_STRING"}), "field 'a': its type was int32, not string"),
        (_native({**A, "label": "LABEL_REPEATED"}), "field 'a': it was single, not repeated"),
        (
            _native(A, {**B, "label": "LABEL_REQUIRED"}),
            "field 'b': it is required and not in what was written",
        ),
    ],
)
def test_compatibility(new: SchemaInfo, why: str | None) -> None:
    said = check(new, [_native(A)], Compatibility.BACKWARD)
    assert (said is None) == (why is None)
    assert why is None or why in (said or "")


def test_a_readers_schema() -> None:
    written, seen = _native(A, B), _native(A)
    assert codec_for(written, seen).decode(codec_for(written).encode({"a": 1, "b": "x"})) == {"a": 1}
    with pytest.raises(PenstockError) as caught:
        codec_for(written, _native(A, name="N"))
    assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA


def test_required_fields() -> None:
    codec = codec_for(_native({**A, "label": "LABEL_REQUIRED"}))
    with pytest.raises(PenstockError, match="missing required fields: a"):
        codec.encode({})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "Input data was truncated"),
        (b"{}", "fileDescriptorSet"),
        ({"fileDescriptorSet": "*", "rootMessageTypeName": "x"}, "no base64 of a FileDescriptorSet"),
        ({"fileDescriptorSet": "/w==", "rootMessageTypeName": "x"}, "no base64 of a FileDescriptorSet"),
        ({"fileDescriptorSet": "", "rootMessageTypeName": "x"}, "there is no message 'x' in the set"),
    ],
)
def test_bad_definitions(data: Any, why: str) -> None:
    with pytest.raises(PenstockError, match=why) as caught:
        check_definition(schema("PROTOBUF_NATIVE", data))
    assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA


def test_bad_descriptor_sets() -> None:
    with pytest.raises(PenstockError, match="no FileDescriptorSet"):
        native_schema(b"\xff", "x")
    alone = FileDescriptorProto(name="a.proto", dependency=["b.proto"])
    with pytest.raises(PenstockError, match=r"a\.proto imports what is not in the set"):
        native_schema(FileDescriptorSet(file=[alone]).SerializeToString(), "x")
    twice = FileDescriptorProto(name="a.proto")
    with pytest.raises(PenstockError, match="a file is there twice"):
        native_schema(FileDescriptorSet(file=[twice, twice]).SerializeToString(), "x")


INFO = [
    {"number": 1, "name": "i", "type": "INT32", "label": "LABEL_OPTIONAL", "definition": None},
    {"number": 4, "name": "colour", "type": "ENUM", "label": "LABEL_OPTIONAL", "definition": None},
    {"number": 5, "name": "inner", "type": "MESSAGE", "label": "LABEL_OPTIONAL", "definition": None},
    {"number": 14, "name": "numbers", "type": "SINT32", "label": "LABEL_REPEATED", "definition": None},
]
AVRO = record(field("i", "int", 0), name="Outer")


def test_protobuf_by_its_parsing_info(outer: SchemaInfo) -> None:
    codec = codec_for(schema("PROTOBUF", AVRO, __PARSING_INFO__=json.dumps(INFO)))
    payload = codec_for(outer).encode({"i": 5, "colour": "BLUE", "inner": {"text": "x"}, "numbers": [-1, 3]})
    seen = {"i": 5, "colour": 1, "inner": "CgF4", "numbers": [-1, 3]}
    assert codec.decode(payload) == seen
    again = codec_for(outer).decode_native(codec.encode(seen))
    assert again == codec_for(outer).decode_native(payload)
    assert codec.decode_native(struct.pack("BB", 8, 7)) == {"i": 7, "numbers": []}


@pytest.mark.parametrize(
    "info",
    ["", "{", "[]x", '[{"number":0,"name":"a","type":"INT32"}]', '[{"number":1,"name":"a","type":"GROUP"}]',
     '[{"number":1,"name":"a","type":"NOPE"}]', '[{"number":1,"name":"a b","type":"INT32"}]',
     '[{"number":99999999999,"name":"a","type":"INT32"}]'],
)  # fmt: skip
def test_bad_parsing_info(info: str) -> None:
    with pytest.raises(PenstockError, match="__PARSING_INFO__") as caught:
        codec_for(schema("PROTOBUF", AVRO, __PARSING_INFO__=info))
    assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA
