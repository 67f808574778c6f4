"""`.proto` texts become the descriptors that protoc makes of them, and descriptors become texts that mean the same."""

import contextlib
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from grpc_tools import protoc  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

import penstock.wire
from penstock.codec.cardinality import is_repeated
from penstock.codec.descriptors import well_known
from penstock.codec.proto.files import compile_file
from penstock.codec.proto.resolve import types_of
from penstock.codec.proto.tokens import ProtoError
from penstock.codec.proto.write import write

INCLUDE = Path(protoc.__file__).parent / "_proto"

PROTO2 = r"""/* a comment */ syntax = "proto2"; // and another
package a.b;
import "google/protobuf/timestamp.proto";
option java_package = "x.\"y";
message Outer {
  optional int32 x = 1 [default = -0x10, deprecated = true];
  repeated sint64 packed = 2 [packed=true, json_name = "pk"];
  required group Result = 3 { optional string url = 4 [default = "a\n\x01" 'b']; }
  map<string, Inner> m = 5;
  message Inner { optional .a.b.Outer.Kind kind = 1 [default = B]; optional Outer outer = 2; }
  enum Kind { option allow_alias = true; A = 0; B = 1; C = 1 [deprecated=true]; reserved 5 to max; reserved "ZZ"; }
  oneof choice { string s = 6; bytes y = 7; group G = 18 { optional double d = 1 [default = inf]; } }
  reserved 100, 102 to 110; reserved "foo", "bar";
  extensions 200 to max;
  optional bytes raw = 9 [default = "\000\377x"];
  optional bool message = 10 [default = true];
  extend Outer { optional int32 ext = 200; repeated group EG = 201 { optional int32 q = 1; } }
  optional google.protobuf.Timestamp at = 11;
  optional double tenth = 12 [default = 0.1];
  optional float f = 13 [default = -1.5e3];
  optional uint64 big = 14 [default = 18446744073709551615];
}
extend a.b.Outer { optional string top = 300; }
service S { rpc Do(Outer) returns (stream Outer) { option deprecated = true; } }
;
"""
PROTO3 = """syntax = "proto3";
package p;
import public "google/protobuf/struct.proto";
enum Color { RED = 0; BLUE = 010; }
message A {
  optional string maybe = 1;
  int64 long_name = 2;
  oneof one { B b = 3; Color color = 4; }
  optional B other = 5;
  repeated google.protobuf.Value values = 6;
  message B { map<int32, A> by_number = 1; p.A.B.C c = 2; message C { A a = 1; } }
  map<string, Color> colors = 7;
}
"""
TEXTS = {"proto2.proto": PROTO2, "proto3.proto": PROTO3}
CARRIED = ("descriptor", "struct", "type", "api", "any", "field_mask", "wrappers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proto")


def by_protoc(folder: Path, name: str, text: str) -> FileDescriptorProto:
    (folder / name).write_text(text)
    target = folder / "set"
    arguments = [
        "protoc",
        f"--proto_path={folder}",
        f"--proto_path={INCLUDE}",
        f"--descriptor_set_out={target}",
    ]
    assert protoc.main([*arguments, name]) == 0, text
    return FileDescriptorSet.FromString(target.read_bytes()).file[0]


def ours(name: str, text: str) -> FileDescriptorProto:
    return compile_file(name, text, {}, well_known).file[-1]


def bare(file: FileDescriptorProto) -> FileDescriptorProto:
    """Without what is left out: services, and options that are not one value of protobuf's own."""
    file = FileDescriptorProto.FromString(file.SerializeToString())
    file.ClearField("service")
    for message in file.message_type:
        _bare_ranges(message)
    _bare_options(file)
    return file


def _bare_ranges(message: DescriptorProto) -> None:
    for one in message.extension_range:
        one.ClearField("options")
    for inner in message.nested_type:
        _bare_ranges(inner)


def _bare_options(message: Message) -> None:
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.name != "options":
            for one in value if is_repeated(field) else [value]:
                _bare_options(one)
            continue
        for option, _ in value.ListFields():
            if option.is_extension or is_repeated(option) or option.message_type is not None:
                value.ClearField(option.name)
        value.DiscardUnknownFields()
        if not value.ByteSize():
            message.ClearField("options")


def cases() -> list[tuple[str, str]]:
    found = [
        *TEXTS.items(),
        ("pulsar.proto", (Path(penstock.wire.__file__).parent / "pulsar.proto").read_text()),
    ]
    for name in ("any", "descriptor", "field_mask", "struct", "wrappers"):  # which import nothing
        text = (INCLUDE / "google" / "protobuf" / f"{name}.proto").read_text()
        found.append((f"{name}.proto", text))
    return found


@pytest.mark.parametrize(("name", "text"), cases(), ids=lambda one: one if one.endswith(".proto") else "")
def test_a_text_is_what_protoc_says(folder: Path, name: str, text: str) -> None:
    if "google.protobuf;" in text:  # its types are protoc's own, which may not be there twice
        text = text.replace("package google.protobuf;", "package copied;").replace(
            "google.protobuf.", "copied."
        )
    expected = by_protoc(folder, name, text)
    assert bare(ours(name, text)) == bare(expected)
    types = types_of([expected, *filter(None, map(well_known, expected.dependency))])
    written = write(expected, types)
    assert bare(by_protoc(folder, name, written)) == bare(ours(name, written))
    assert write(ours(name, written), types) == written


@pytest.mark.parametrize("name", CARRIED)
def test_what_every_library_carries_comes_back(name: str) -> None:
    file = well_known(f"google/protobuf/{name}.proto")
    assert file is not None
    imported = [one for one in map(well_known, file.dependency) if one is not None]
    text = write(file, types_of([file, *imported]))
    assert write(ours(file.name, text), types_of([ours(file.name, text), *imported])) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('edition = "2023";', "editions"),
        ('syntax = "proto4";', "proto4"),
        ("message A { int32 a = 1; }", "proto2"),
        ('syntax = "proto3"; message A { B b = 1; }', "'B'"),
        ('syntax = "proto3"; message A { int32 a = 0; }', "line 1: 0 is no number"),
        ('syntax = "proto3";\nmessage A {\n', "line 2"),
        ('syntax = "proto3"; message A { int32 a = "x"; }', "number"),
        ("\0", "line 1"),
        ('syntax = "proto3";' + "message A {" * 40, "32 messages"),
        ('syntax = "proto3"; enum E { A = 99999999999; }', "99999999999"),
        ('syntax = "proto2"; message A { optional int32 a = 1 [default = {}]; }', "default"),
        ('import "main.proto";', "imports"),
    ],
)
def test_what_is_no_file(text: str, why: str) -> None:
    with pytest.raises(ProtoError) as caught:
        ours("main.proto", text)
    assert why in str(caught.value)


@given(st.data())
def test_any_text_is_read_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(list(TEXTS.values())))
    first = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(first, min(len(text), first + 30)))
    new = data.draw(st.text(st.sampled_from("{}[]()<>=;.,\"'/*0x9ae+-\\ \n\0é"), max_size=5))
    with contextlib.suppress(ProtoError):
        ours("main.proto", text[:first] + new + text[end:])


def test_imports() -> None:
    texts = {
        "x/y.proto": 'syntax = "proto3"; package q; import public "z.proto"; message Y { Z z = 1; }',
        "z.proto": 'syntax = "proto3"; package q; message Z { confluent.type.Decimal d = 1; } '
        'import "confluent/type/decimal.proto";',
    }
    main = 'syntax = "proto3"; import "x/y.proto"; import "none.proto"; message A { q.Z z = 1 [(none.x) = {a: 1}]; }'
    files = compile_file("main.proto", main, texts, well_known).file
    assert [file.name for file in files] == [
        "confluent/type/decimal.proto",
        "z.proto",
        "x/y.proto",
        "main.proto",
    ]
    assert list(files[-1].dependency) == ["x/y.proto"]
    circle = {"a.proto": 'syntax = "proto3"; import "b.proto";', "b.proto": 'import "a.proto";'}
    with pytest.raises(ProtoError, match="imports"):
        compile_file("main.proto", 'import "a.proto";', circle, well_known)
    with pytest.raises(ProtoError, match=r"q\.Z.*x/y\.proto"):
        compile_file("main.proto", main, {}, well_known)
