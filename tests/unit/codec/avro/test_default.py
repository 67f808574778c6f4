"""Default values are encoded as Avro encodes values."""

from typing import Any

import pytest
from tests.unit.codec.vectors import field, record

from penstock.codec.avro.parse import encode_default, parse_tree
from penstock.codec.avro.types import Record


@pytest.mark.parametrize(
    ("kind", "value", "encoded"),
    [
        ("null", None, ""),
        ("boolean", True, "01"),
        ("int", -1, "01"),
        ("float", 1, "0000803f"),
        ("double", 2.25, "0000000000000240"),
        ("string", "é", "04c3a9"),
        ("bytes", "\u00ff\u0000", "04ff00"),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", "ff"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "02"),
        ({"type": "array", "items": "int"}, [1, 2], "04020400"),
        ({"type": "array", "items": "int"}, [], "00"),
        ({"type": "map", "values": "int"}, {"a": 1}, "0202610200"),
        (["null", "int"], None, "00"),
        (["null", "int"], 1, "0202"),
        (record(field("a", "int", 5), field("b", "int")), {"b": 1}, "0a02"),
    ],
)
def test_encoded(kind: Any, value: Any, encoded: str) -> None:
    assert encode_default(parse_tree(kind), value).hex() == encoded


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("null", 0),
        ("boolean", 1),
        ("int", 2**31),
        ("int", True),
        ("long", 1.0),
        ("float", 1e39),
        ("double", 10**400),
        ("string", 5),
        ("bytes", "€"),
        ("bytes", [1]),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, []),
        (["null", "int"], "x"),
        (record(field("a", "int")), {}),
        (record(field("a", "int")), 5),
    ],
)
def test_misfits(kind: Any, value: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        encode_default(parse_tree(kind), value)


def test_defaults_that_double_are_bounded() -> None:
    definition: Any = record(field("x", "double", 0), name="R0")
    for number in range(40):
        name = f"R{number}"
        fields = [field("a", definition, {}), field("b", name, {}), field("c", name, {})]
        definition = record(*fields, name=f"R{number + 1}")
    kind = parse_tree(definition)
    assert isinstance(kind, Record)
    assert kind.fields[0].default is None
    assert kind.fields[0].default_error


def test_branches_in_branches_are_bounded() -> None:
    b = record(field("n", ["null", "A", "B"]), name="B")
    a = record(field("n", ["null", "A", b]), name="A")
    value: Any = 5
    for _ in range(60):
        value = {"n": value}
    kind = parse_tree(record(field("x", a, value), name="Top"))
    assert isinstance(kind, Record)
    assert "too large or too deep" in kind.fields[0].default_error
