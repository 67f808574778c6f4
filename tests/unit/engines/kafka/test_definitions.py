"""Schemas as a registry has them: Pulsar's JSON becomes a JSON Schema of its values, and comes back."""

from base64 import b64encode

import jsonschema_rs
import msgspec
import pytest

from penstock.codec.codec import Codec
from penstock.codec.lookup import codec_for
from penstock.engines.kafka.schema_registry.client import Definition
from penstock.engines.kafka.schema_registry.definitions import of_registry, to_registry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import ANY_JSON, SchemaInfo, SchemaType

TREE = {
    "type": "record",
    "name": "Tree",
    "namespace": "n",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "color",
            "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]},
            "default": "RED",
        },
        {"name": "other", "type": ["null", "Color"], "default": None},
        {"name": "more", "type": {"type": "array", "items": "Tree"}, "default": []},
        {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "part", "type": ["null", {"type": "record", "name": "Part", "fields": []}], "default": None},
    ],
}


def json_schema(definition: object) -> SchemaInfo:
    return SchemaInfo(SchemaType.JSON, msgspec.json.encode(definition))


def registered(schema: SchemaInfo) -> Definition:
    found = to_registry(schema)
    assert found is not None
    return found.definition


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"id": 1}, True),
        ({"id": 1, "name": None, "more": [{"id": 2, "name": "x", "tags": {"a": 1.5}}]}, True),
        ({"id": 1, "color": "BLUE", "other": "RED", "day": "2024-02-29", "raw": "AP8=", "part": {}}, True),
        ({"name": "x"}, False),
        ({"id": "1"}, False),
        ({"id": 1, "unknown": 2}, False),
        ({"id": 1, "more": [{}]}, False),
        ({"id": 1, "color": "GREEN"}, False),
    ],
)
def test_the_json_schema_takes_what_the_definition_takes(value: object, *, fits: bool) -> None:
    schema = json_schema(TREE)
    definition = registered(schema)
    assert definition.type == "JSON"
    validator = jsonschema_rs.validator_for(definition.text)
    assert validator.is_valid(value) is fits
    if fits:
        codec: Codec = codec_for(schema)
        stored = msgspec.json.decode(codec.encode(value))
        assert validator.is_valid(stored)
        assert codec.decode(codec.encode(value))["id"] == 1


def test_json_of_any_shape_is_any_json_there() -> None:
    outgoing = to_registry(ANY_JSON)
    assert outgoing is not None
    assert outgoing.record == "Any"
    validator = jsonschema_rs.validator_for(outgoing.definition.text)
    assert all(validator.is_valid(value) for value in (None, 1, "x", [1], {"a": {"b": 1}}))


def test_definitions_come_back() -> None:
    for data in (b"", ANY_JSON.data, msgspec.json.encode(TREE)):
        back = of_registry(registered(SchemaInfo(SchemaType.JSON, data)), {})
        assert (back.type, back.data) == (SchemaType.JSON, data)
    avro = SchemaInfo(SchemaType.AVRO, msgspec.json.encode(TREE))
    back = of_registry(registered(avro), {})
    assert (back.type, back.data) == (avro.type, avro.data)


def test_a_record_may_be_the_type_of_a_type() -> None:
    wrapped = registered(json_schema({"type": {"type": TREE}}))
    bare = registered(json_schema(TREE))
    shapes = [{**msgspec.json.decode(one.text), "x-pulsar-schema": ""} for one in (wrapped, bare)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("text", ["{", "[]", "true", '{"type": "object"}', '{"x-pulsar-schema": 1}'])
def test_another_json_schema_takes_any_json(text: str) -> None:
    found = of_registry(Definition("JSON", text), {})
    assert codec_for(found).decode(b'{"a":[1]}') == {"a": [1]}
    assert found.properties == {"json-schema": text}


@pytest.mark.parametrize(
    "definition",
    [
        Definition("XML", "<a/>"),
        Definition("PROTOBUF", 'syntax = "proto3";'),
        Definition("PROTOBUF", 'syntax = "proto3"; message A { missing.B b = 1; }'),
        Definition("PROTOBUF", 'edition = "2023"; message A {}'),
        Definition(
            "PROTOBUF", f'syntax = "proto2"; message A {{ optional double d = 1 [default = {"9" * 1000}]; }}'
        ),
        Definition("PROTOBUF", f"message {'A' * 1000} {{}}"),
        Definition("PROTOBUF", "; " * (2 << 20)),
        Definition("PROTOBUF", "CgFmUAUiAwoBQQ=="),  # a descriptor with a public import that is not there
        Definition(
            "PROTOBUF", b64encode(b"\x0a\x01f\x22\x05\x0a\x03A\xff\xff").decode()
        ),  # a name that is no text
    ],
)
def test_what_is_not_understood(definition: Definition) -> None:
    with pytest.raises(PenstockError) as caught:
        of_registry(definition, {})
    assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA
