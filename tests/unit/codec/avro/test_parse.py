"""Definitions are parsed by the specification's rules."""

from typing import Any

import pytest
from tests.unit.codec.vectors import field, record

from penstock.codec.avro.parse import DEPTH_MAX, TYPES_MAX, DefinitionError, parse, parse_tree
from penstock.codec.avro.types import Enum, Fixed, Logical, Primitive, Record, Union


def test_a_record() -> None:
    kind = parse_tree(
        record(
            field("a", "int", 5, aliases=["z"]),
            field("me", ["null", "R"], None),
            field("e", {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}),
            name="x.R",
            aliases=["Old", "y.Older"],
            doc="words",
        )
    )
    assert isinstance(kind, Record)
    assert (kind.name, kind.short, kind.aliases) == ("x.R", "R", ("x.Old", "y.Older"))
    a, me, e = kind.fields
    assert (a.name, a.aliases, a.default) == ("a", ("z",), b"\x0a")
    assert isinstance(me.type, Union)
    assert me.type.branches[1] is kind
    assert isinstance(e.type, Enum)
    assert (e.type.name, e.type.default) == ("x.E", "A")


def test_names_of_nested_classes_and_older_forms() -> None:
    kind = parse_tree(record(name="Inner", namespace="org.example.Outer$"))
    assert isinstance(kind, Record)
    assert kind.name == "org.example.Outer$.Inner"
    assert parse_tree({"type": {"type": {"type": "int"}}}).kind == "int"
    assert parse_tree({"type": "error", "name": "E", "fields": []}).kind == "record"


@pytest.mark.parametrize(
    ("tree", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, Logical("date")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, Logical("decimal", 4, 0)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, Logical("decimal", 4, 2)),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, Logical("uuid")),
        # unknown, misplaced or malformed ones are ignored
        ({"type": "int", "logicalType": "unknown"}, None),
        ({"type": "string", "logicalType": "date"}, None),
        ({"type": "bytes", "logicalType": "decimal"}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10**9}, None),
        ({"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 3}, None),
        ({"type": "fixed", "name": "F", "size": 8, "logicalType": "uuid"}, None),
    ],
)
def test_logical_types(tree: Any, logical: Logical | None) -> None:
    kind = parse_tree(tree)
    assert isinstance(kind, Primitive | Fixed)
    assert kind.logical == logical


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (5, "a type is a name, an object or a list, not 5"),
        ({}, 'an object without "type"'),
        ("x", "unknown type 'x'"),
        ([], "a union of nothing"),
        (["int", "int"], "the union has int twice"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "string"}], "has array twice"),
        (["int", ["null"]], "a union inside a union"),
        ({"type": "array"}, '"items" is missing'),
        ({"type": "map"}, '"values" is missing'),
        ({"type": "record", "name": "R"}, '"fields" is missing'),
        ({"type": "record", "fields": []}, '"name" is missing'),
        ({"type": "record", "name": "R", "fields": {}}, '"fields" is no list'),
        ({"type": "record", "name": "R", "fields": [5]}, "a field is an object, not 5"),
        (record(field("a b", "int")), "bad field name 'a b'"),
        (record(field("1a", "int")), "bad field name '1a'"),
        (record(field("a", "int"), field("a", "int")), "field a is there twice"),
        (record(field("a", record(field("b", "nope"), name="S"))), "at a.b: unknown type 'nope'"),
        (record(name="a-b"), "bad name 'a-b'"),
        (record(name="R", namespace="1"), "bad name 'R' in namespace '1'"),
        (record(name="R", namespace=5), "a namespace is text, not 5"),
        (record(name=5), "a name is text, not 5"),
        (record(name="int"), "int is the name of a primitive type"),
        (record(field("a", record(name="R"))), "at a: R is defined twice"),
        (record(aliases="x"), '"aliases" is no list of names'),
        ({"type": "enum", "name": "E", "symbols": "A"}, '"symbols" is no list of names'),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "a symbol of E is there twice"),
        ({"type": "enum", "name": "E", "symbols": ["a b"]}, '"symbols" is no list of names'),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "is none of its symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "the size of F is no size"),
        ({"type": "fixed", "name": "F", "size": True}, "the size of F is no size"),
        ({"type": "fixed", "name": "F"}, '"size" is missing'),
    ],
)
def test_refused(tree: Any, why: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        parse_tree(tree)
    assert why in str(caught.value)


def test_depth_and_number_are_bounded() -> None:
    deep: Any = "int"
    for _ in range(DEPTH_MAX):
        deep = {"type": "array", "items": deep}
    parse_tree(deep)
    with pytest.raises(DefinitionError, match="nested deeper"):
        parse_tree({"type": "array", "items": deep})
    with pytest.raises(DefinitionError, match="more than"):
        parse_tree(record(*(field(f"f{n}", "int") for n in range(TYPES_MAX + 1))))
    with pytest.raises(DefinitionError, match="not JSON"):
        parse(b"[" * 1_000_000)
