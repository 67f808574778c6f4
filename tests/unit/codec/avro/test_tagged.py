"""Avro's JSON encoding beside plain values."""

import json
from typing import Any

import pytest

from penstock.codec.avro.parse import parse
from penstock.codec.avro.tagged import untagged
from penstock.codec.lookup import codec_for
from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ITEM_A = {"type": "record", "name": "Item", "namespace": "a", "fields": [{"name": "v", "type": "string"}]}
ITEM_B = {"type": "record", "name": "Item", "namespace": "b", "fields": [{"name": "v", "type": "string"}]}
TOKEN = {"type": "fixed", "name": "Token", "namespace": "t", "size": 4}
STATE = {"type": "enum", "name": "State", "namespace": "t", "symbols": ["ON", "OFF"]}
MANY = ["null", {"type": "array", "items": "int"}, {"type": "map", "values": "string"}, "bytes", STATE, TOKEN]


def through(schema: Any, value: Any) -> Any:
    """A value that was written from Avro's JSON, as it is read."""
    info = SchemaInfo(SchemaType.AVRO, json.dumps(schema).encode())
    codec = codec_for(info)
    return codec.decode(codec.encode(untagged(parse(info.data), value)))


@pytest.mark.parametrize(
    ("schema", "value", "read"),
    [
        (["null", "string"], {"string": "x"}, "x"),
        (["null", "string"], "x", "x"),
        (["null", "string"], None, None),
        (["int", "long"], {"long": 5}, 5),
        (["string", "bytes"], {"bytes": "\u00ff"}, "/w=="),
        (["null", ITEM_A, ITEM_B], {"b.Item": {"v": "x"}}, {"v": "x"}),
        (MANY, {"array": [1, 2]}, [1, 2]),
        (MANY, {"map": {"k": "v"}}, {"k": "v"}),
        (MANY, {"bytes": "ABCD"}, "QUJDRA=="),
        (MANY, {"t.State": "ON"}, "ON"),
        (MANY, {"t.Token": "ABCD"}, "QUJDRA=="),
        (MANY, [1, 2], [1, 2]),
        (TOKEN, "QUJDRA==", "QUJDRA=="),
        ("bytes", "abcd", "YWJjZA=="),
        ({"type": "map", "values": ["null", "long"]}, {"a": {"long": 1}, "b": None}, {"a": 1, "b": None}),
        ({"type": "array", "items": ["int", "string"]}, [{"string": "1"}, 1], ["1", 1]),
        (DECIMAL, "14.36", "14.36"),
        (DECIMAL, "\u0005\u009c", "14.36"),
        (["null", DECIMAL], {"bytes": "\u0005\u009c"}, "14.36"),
    ],
)
def test_both_forms_are_taken(schema: Any, value: Any, read: Any) -> None:
    assert through(schema, value) == read


def test_the_named_branch_is_written() -> None:
    info = SchemaInfo(SchemaType.AVRO, b'["int", "long"]')
    assert codec_for(info).encode(untagged(parse(info.data), {"long": 5})) == b"\x02\x0a"
    assert codec_for(info).encode(untagged(parse(info.data), 5)) == b"\x00\x0a"


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["null", ITEM_A], {"Item": {"v": "x"}}),
        (["null", "string"], {"int": 1}),
        (MANY, {"t.State": "MISSING"}),
        (MANY, {"t.Token": "ABC"}),
        (["int", "string"], {"int": "x"}),
        ("bytes", "\u0100"),
        ("bytes", 5),
        (DECIMAL, "x" * 20),
    ],
)
def test_what_fits_nothing_is_refused(schema: Any, value: Any) -> None:
    with pytest.raises(PenstockError):
        through(schema, value)
