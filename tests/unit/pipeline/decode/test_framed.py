"""Values that begin with the id of their schema in a registry."""

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec import codec_for
from penstock.codec.json_schema.records import record_of
from penstock.codec.proto.native import of_proto, with_root
from penstock.codec.registered import schema_of
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import column_type
from penstock.pipeline.decode.framed import UNKNOWN_MAX, decode_framed

PROTO = """
syntax = "proto3";
package shop;
message Order { int64 id = 1; message Line { string product = 1; } repeated Line lines = 2; }
message Refund { int64 id = 1; }
"""


def avro(*fields: dict[str, Any]) -> SchemaInfo:
    definition = {"type": "record", "name": "R", "fields": list(fields)}
    return schema_of("AVRO", json.dumps(definition), {})


ID = {"name": "id", "type": "int"}
FIRST = avro(ID)
SECOND = avro({"name": "id", "type": "long"}, {"name": "to", "type": "string", "default": "?"})


def framed(number: int, schema: SchemaInfo, value: Any, indexes: bytes = b"") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + indexes + codec_for(schema).encode(value)


def decoded(
    payloads: list[bytes | None],
    writers: dict[int, SchemaInfo],
    reader: SchemaInfo,
    known: Collection[int] = (),
) -> tuple[list[Any], dict[int, str], Counter[int]]:
    asked: Counter[int] = Counter()

    def writer(number: int, ask: bool) -> SchemaInfo | None:
        asked[number] += ask
        return writers.get(number) if ask or number in known else None

    # A slice, as Arrow's batches often are.
    column = pa.array([b"\0\0\0\0\7before", *payloads], pa.binary())[1:]
    found, wrong = decode_framed(column, writer, reader, column_type(reader))
    assert len(found) == len(payloads)
    return found.to_pylist(), wrong, asked


def test_each_value_is_read_by_the_schema_that_it_names() -> None:
    other = avro({"name": "id", "type": "string"})
    payloads = [
        framed(7, FIRST, {"id": 1}),
        framed(300_000, SECOND, {"id": 2, "to": "b"}),
        None,
        framed(7, FIRST, {"id": 3}),
        framed(9, other, {"id": "4"}),
        framed(7, FIRST, {"id": 5})[:-1],
        b"plain",
        b"\0\0\0",
        b"",
    ]
    found, wrong, asked = decoded(payloads, {7: FIRST, 300_000: SECOND, 9: other}, SECOND)
    assert found[:4] == [{"id": 1, "to": "?"}, {"id": 2, "to": "b"}, None, {"id": 3, "to": "?"}]
    assert found[4:] == [None] * 5
    assert wrong.keys() == {4, 5, 6, 7, 8}
    assert "does not begin with 0x00 and a schema's id" in wrong[6]
    assert asked == {7: 1, 300_000: 1, 9: 1}
    assert decoded([], {}, SECOND)[0] == []


def test_ids_without_a_schema_are_asked_for_a_bounded_number_of_times() -> None:
    payloads = [b"\0" + number.to_bytes(4, "big") + b"x" for number in range(100, 200)]
    payloads += [framed(7, FIRST, {"id": 1})] * 2
    found, wrong, asked = decoded(payloads, {7: FIRST}, FIRST)
    assert found == [None] * 100 + [{"id": 1}] * 2
    assert wrong.keys() == set(range(100))
    assert wrong[5] == "value: schema id 105: the registry does not have it"
    assert wrong[99].startswith("value: schema id 199: not asked for")
    assert asked.total() == UNKNOWN_MAX + 1


def test_ids_that_are_known_are_read_among_any_number_of_others() -> None:
    payloads: list[bytes | None] = [b"\0" + number.to_bytes(4, "big") + b"x" for number in range(100)]
    payloads.append(framed(500, FIRST, {"id": 1}))
    assert decoded(payloads, {500: FIRST}, FIRST)[0][-1] is None
    found, wrong, asked = decoded(payloads, {500: FIRST}, FIRST, known={500})
    assert found[-1] == {"id": 1}
    assert wrong.keys() == set(range(100))
    assert asked.total() == UNKNOWN_MAX


def test_a_registry_that_is_away_is_no_broken_value() -> None:
    def away(number: int, ask: bool) -> SchemaInfo | None:
        raise PenstockError(ErrorKind.UNAVAILABLE, "away")

    column = pa.array([framed(7, FIRST, {"id": 1})])
    with pytest.raises(PenstockError, match="away"):
        decode_framed(column, away, FIRST, column_type(FIRST))


def test_json_is_read_by_its_json_schema() -> None:
    shape = {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "to": {"type": ["null", "string"]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
            "tags": {"type": "object", "additionalProperties": {"type": "number"}},
        },
        "required": ["id", "to"],
        "definitions": {
            "Line": {"properties": {"product": {"oneOf": [{"type": "string"}, {"type": "null"}]}}}
        },
    }
    record = record_of(json.dumps(shape))
    assert record is not None
    schema = SchemaInfo(SchemaType.JSON, record.encode())
    payloads: list[bytes | None] = [
        b'\0\0\0\0\7{"id": 1, "to": "a", "lines": [{"product": "tea"}, {}], "tags": {"n": 1.5}, "more": [1]}',
        b'\0\0\0\0\7{"id": 2}',
        b"\0\0\0\0\7{",
        b'\0\0\0\0\7{"to": "a"}',
    ]
    found, wrong, _ = decoded(payloads, {7: schema}, schema)
    assert found[0] == {
        "id": 1,
        "to": "a",
        "lines": [{"product": "tea"}, {"product": None}],
        "tags": [("n", 1.5)],
    }
    assert found[1] == {"id": 2, "to": None, "lines": None, "tags": None}
    assert wrong.keys() == {2, 3}


@pytest.mark.parametrize(
    "shape",
    [
        {"type": "string"},
        {"type": "object"},
        {"properties": {"a b": {"type": "string"}}},
        {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "http://127.0.0.1/a.json"}}},
        {"properties": {"a": True}},
    ],
)
def test_json_schemas_that_have_no_columns(shape: dict[str, Any]) -> None:
    assert record_of(json.dumps(shape)) is None


def test_a_message_of_protobuf_is_chosen_by_its_indexes() -> None:
    file = of_proto(PROTO, {})
    line = with_root(file, "shop.Order.Line")
    assert line is not None
    order = {"id": "1", "lines": [{"product": "tea"}]}
    payloads: list[bytes | None] = [
        framed(7, file, order, b"\0"),
        framed(7, file, order, b"\2\0"),  # the first message, written out
        framed(7, line[1], {"product": "tea"}, b"\4\0\0"),
        b"\0\0\0\0\7\2\x08",  # a fifth message
        b"\0\0\0\0\7\1",  # below 0
        b"\0\0\0\0\7",
    ]
    found, wrong, _ = decoded(payloads, {7: file}, file)
    assert found[:2] == [{"id": 1, "lines": [{"product": "tea"}]}] * 2
    assert wrong.keys() == {2, 3, 4, 5}
    assert "indexes" in wrong[3]
    found, wrong, _ = decoded(payloads[:3], {7: file}, line[1])
    assert (found[2], set(wrong)) == ({"product": "tea"}, {0, 1})
