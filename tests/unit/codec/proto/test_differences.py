"""Which `.proto` file reads what another wrote: a table of changes, read in both directions."""

import pytest

from penstock.codec.descriptors import well_known
from penstock.codec.proto.differences import broken
from penstock.codec.proto.files import compile_file


def names(original: str, update: str, imports: tuple[str, str] = ("", "")) -> list[str]:
    head = 'syntax = "proto3"; package shop; '
    sets = [
        compile_file(
            "order.proto",
            each if "syntax" in each else head + ('import "other.proto"; ' if more else "") + each,
            {"other.proto": more} if more else {},
            well_known,
        )
        for each, more in zip((original, update), imports, strict=True)
    ]
    return [each.name for each in broken(*sets)]


def fields(text: str) -> str:
    return f"message M {{ {text} }} message N {{}} enum E {{ A = 0; }}"


# (what changes, original, update, what breaks from original to update, what breaks from update to original)
CASES: list[tuple[str, str, str, list[str], list[str]]] = [
    ("nothing", fields("int32 a = 1;"), fields("int32 a = 1;"), [], []),
    ("field added", fields(""), fields("int32 a = 1;"), [], []),
    ("field renamed", fields("int32 a = 1;"), fields("int32 b = 1;"), [], []),
    ("message added", fields(""), fields("") + "message P {}", [], ["MESSAGE_REMOVED"]),
    ("message added within", fields(""), fields("message P {}"), [], ["MESSAGE_REMOVED"]),
    ("enum added", fields(""), fields("") + "enum F { B = 0; }", [], []),
    ("varints", fields("int32 a = 1;"), fields("uint64 a = 1;"), [], []),
    ("boolean and enum", fields("bool a = 1;"), fields("E a = 1;"), [], []),
    ("string and bytes", fields("string a = 1;"), fields("bytes a = 1;"), [], []),
    ("fixed", fields("fixed32 a = 1;"), fields("sfixed32 a = 1;"), [], []),
    *(
        (f"{one} and {other}", fields(f"{one} a = 1;"), fields(f"{other} a = 1;"), [name], [name])
        for one, other, name in [
            ("int32", "sint32", "FIELD_SCALAR_KIND_CHANGED"),
            ("int32", "fixed32", "FIELD_SCALAR_KIND_CHANGED"),
            ("fixed32", "fixed64", "FIELD_SCALAR_KIND_CHANGED"),
            ("float", "double", "FIELD_SCALAR_KIND_CHANGED"),
            ("int32", "string", "FIELD_SCALAR_KIND_CHANGED"),
            ("string", "N", "FIELD_KIND_CHANGED"),
            ("N", "map<string, N>", "FIELD_KIND_CHANGED"),
            ("int32", "repeated int32", "FIELD_NUMERIC_LABEL_CHANGED"),
            ("M", "N", "FIELD_NAMED_TYPE_CHANGED"),
            ("map<string, int32>", "map<string, sint32>", "FIELD_SCALAR_KIND_CHANGED"),
            ("map<string, M>", "map<string, N>", "FIELD_NAMED_TYPE_CHANGED"),
        ]
    ),
    ("a label of text", fields("string a = 1;"), fields("repeated string a = 1;"), [], []),
    ("a label of messages", fields("N a = 1;"), fields("repeated N a = 1;"), [], []),
    ("oneof added", fields(""), fields("oneof o { int32 a = 1; }"), [], []),
    (
        "member added",
        fields("oneof o { N a = 1; }"),
        fields("oneof o { N a = 1; N b = 2; }"),
        [],
        ["ONEOF_FIELD_REMOVED"],
    ),
    ("one field into a oneof", fields("N a = 1;"), fields("oneof o { N a = 1; N b = 2; }"), [], []),
    (
        "two fields into a oneof",
        fields("N a = 1; N b = 2;"),
        fields("oneof o { N a = 1; N b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        [],
    ),
    (
        "a field to the members of a oneof",
        fields("oneof o { N a = 1; } N b = 2;"),
        fields("oneof o { N a = 1; N b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
        [],
    ),
    (
        "a oneof renamed",
        fields("oneof o { N a = 1; N b = 2; }"),
        fields("oneof p { N a = 1; N b = 2; }"),
        [],
        [],
    ),
    ("optional", fields("int32 a = 1;"), fields("optional int32 a = 1;"), [], []),
    (
        "package",
        'syntax = "proto3"; package a; message M {}',
        'syntax = "proto3"; package b; message M {}',
        ["PACKAGE_CHANGED"],
        ["PACKAGE_CHANGED"],
    ),
    (
        "required",
        'syntax = "proto2"; message M {}',
        'syntax = "proto2"; message M { required int32 a = 1; }',
        ["REQUIRED_FIELD_ADDED"],
        ["REQUIRED_FIELD_REMOVED"],
    ),
    (
        "no longer optional",
        'syntax = "proto2"; message M { optional int32 a = 1; }',
        'syntax = "proto2"; message M { required int32 a = 1; }',
        ["REQUIRED_FIELD_ADDED"],
        ["REQUIRED_FIELD_REMOVED"],
    ),
]


@pytest.mark.parametrize(
    ("original", "update", "forth", "back"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_change(original: str, update: str, forth: list[str], back: list[str]) -> None:
    assert names(original, update) == forth
    assert names(update, original) == back


OTHER = 'syntax = "proto3"; package shop; message C {{ {} name = 1; C parent = 2; }}'


@pytest.mark.parametrize(("kind", "found"), [("bytes", []), ("int32", ["FIELD_SCALAR_KIND_CHANGED"])])
def test_imported_messages_are_compared(kind: str, found: list[str]) -> None:
    message = "message M { C customer = 1; C other = 2; }"
    assert names(message, message, (OTHER.format("string"), OTHER.format(kind))) == found


def test_a_message_may_move_into_an_imported_file() -> None:
    here = "message C { string name = 1; C parent = 2; } message M { C customer = 1; }"
    found = names(here, "message M { C customer = 1; }", ("", OTHER.format("string")))
    assert found == ["MESSAGE_REMOVED"]
