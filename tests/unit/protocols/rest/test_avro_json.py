"""Avro's JSON encoding to plain values."""

from typing import Any

import msgspec
import pytest

from penstock.codec.definition import avro_type
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.protocols.rest.shipped import plain


@pytest.mark.parametrize(
    ("definition", "given", "expected"),
    [
        (["null", "int"], {"int": 5}, 5),
        (["null", "int"], 5, 5),
        (["null", "int"], None, None),
        ("bytes", "\xff\x00", "/wA="),
        (["null", {"type": "map", "values": ["null", "long"]}], {"map": {"a": {"long": 1}}}, {"a": 1}),
        (["null", {"type": "array", "items": "bytes"}], {"array": ["\x01"]}, ["AQ=="]),
        (
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            {"r": {"R": {"r": None}}},
            {"r": {"r": None}},
        ),
        ({"type": "map", "values": "int"}, {"int": 5}, {"int": 5}),
    ],
)
def test_plain(definition: Any, given: Any, expected: Any) -> None:
    kind = avro_type(SchemaInfo(SchemaType.AVRO, msgspec.json.encode(definition)))
    assert kind is not None
    assert plain(kind, given) == expected
