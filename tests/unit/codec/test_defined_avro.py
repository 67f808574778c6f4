"""Avro values through the codec: vectors, plain unions, errors with paths, and the official client."""

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pulsar.schema
import pytest
from pulsar.schema import Array, AvroSchema, Boolean, Bytes, Double, Integer, Long, Map, Record, String
from tests.unit.codec.vectors import field, load, record, schema

from penstock.codec import codec_for
from penstock.model.errors import ErrorKind, PenstockError


@pytest.mark.parametrize("vector", load("avro"), ids=lambda v: f"{v['definition']}"[:60] + v["hex"][:12])
def test_vectors(vector: dict[str, Any]) -> None:
    codec = codec_for(schema("AVRO", vector["definition"]))
    payload = bytes.fromhex(vector["hex"])
    assert codec.decode(payload) == vector["plain"]
    for value in (vector["plain"], *vector.get("also", [])):
        assert codec.encode(value) == payload
    if "nanos" not in str(vector["definition"]):  # Python's datetime counts microseconds
        assert codec.encode_native(codec.decode_native(payload)) == payload
    codec.check(payload)


PERSON = record(
    field("name", "string"),
    field("age", "int", 7),
    field("nick", ["null", "string"]),
    field("address", ["null", record(field("zip", "int"), name="Address")], None),
    field("tags", {"type": "array", "items": "string"}, []),
    field("score", {"type": "map", "values": "double"}, {}),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "A"),
    name="Person",
)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (5, "value: 5 is no record Person"),
        ({}, "value.name: missing"),
        ({"name": "x"}, "value.nick: missing"),
        ({"name": None, "nick": None}, "value.name: null is no string"),
        ({"name": "x", "nick": 5}, "value.nick: 5 is no string"),
        ({"name": "x", "nick": None, "age": 2**31}, "value.age: 2147483648 does not fit 32 bits"),
        ({"name": "x", "nick": None, "age": True}, "value.age: true is no int"),
        ({"name": "x", "nick": None, "age": 1.0}, "value.age: 1.0 is no int"),
        ({"name": "x", "nick": None, "address": {"zip": "abc"}}, "value.address.zip: 'abc' is no int"),
        ({"name": "x", "nick": None, "address": {}}, "value.address.zip: missing"),
        ({"name": "x", "nick": None, "address": 5}, "value.address: 5 is no record Address"),
        ({"name": "x", "nick": None, "tags": ["a", 1]}, "value.tags[1]: 1 is no string"),
        ({"name": "x", "nick": None, "tags": "a"}, "value.tags: 'a' is no array"),
        ({"name": "x", "nick": None, "score": {"k": "v"}}, "value.score['k']: 'v' is no double"),
        ({"name": "x", "nick": None, "kind": "C"}, "value.kind: 'C' is no symbol of enum Kind"),
        ({"name": "x", "nick": None, "extra": 1}, "value.extra: record Person has no such field"),
        (
            {"name": "\ud800", "nick": None},
            "value.name: text with half a surrogate pair, which UTF-8 cannot hold",
        ),
        ({"name": "x", "nick": {"string": "y"}}, "value.nick: an object is no string"),
    ],
)
def test_errors_name_the_place(value: Any, why: str) -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(schema("AVRO", PERSON)).encode(value)
    assert caught.value.kind is ErrorKind.BAD_MESSAGE
    assert caught.value.message == why


def test_defaults_are_filled() -> None:
    codec = codec_for(schema("AVRO", PERSON))
    assert codec.decode(codec.encode({"name": "x", "nick": "y"})) == {
        "name": "x",
        "age": 7,
        "nick": "y",
        "address": None,
        "tags": [],
        "score": {},
        "kind": "A",
    }


def test_unions_are_plain() -> None:
    circle = record(field("radius", "double"), name="Circle")
    square = record(field("side", "double"), field("label", "string", ""), name="Square")
    thing = record(field("radius", "double"), field("colour", "string"), name="Thing")
    enum = {"type": "enum", "name": "E", "symbols": ["RED"]}
    branches = [
        "null", "boolean", "long", "double", "string", "bytes", enum,
        {"type": "array", "items": "int"}, circle, square, thing, {"type": "map", "values": "int"},
    ]  # fmt: skip
    codec = codec_for(schema("AVRO", branches))
    for value, branch in [
        (None, 0),
        (True, 1),
        (5, 2),
        (5.0, 3),
        ("text", 4),
        ("RED", 6),
        ([1, 2], 7),
        ({"radius": 1.0}, 8),
        ({"side": 1.0, "label": ""}, 9),
        ({"radius": 1.0, "colour": "red"}, 10),
        ({"x": 5}, 11),
    ]:
        payload = codec.encode(value)
        assert payload[0] == branch * 2
        assert codec.decode(payload) == value
    assert codec.decode(codec.encode({"side": 2})) == {"side": 2.0, "label": ""}
    assert codec.encode_native(b"raw")[0] == 5 * 2
    with pytest.raises(PenstockError, match="fits no branch of union of null, boolean"):
        codec.encode(10**400)


def test_records_are_told_apart_by_their_symbols() -> None:
    def kind(name: str) -> Any:
        symbol = {"type": "enum", "name": f"{name}Type", "symbols": [name.upper()]}
        return record(field("type", symbol), field("n", "int"), name=name)

    codec = codec_for(schema("AVRO", [kind("Added"), kind("Removed")]))
    assert codec.encode({"type": "ADDED", "n": 1})[0] == 0
    assert codec.encode({"type": "REMOVED", "n": 1})[0] == 2


def test_choosing_is_not_exponential() -> None:
    a = record(field("next", ["null", "A", "B"]), name="A")
    b = record(field("next", ["null", "A", "B"]), name="B")
    a["fields"][0]["type"] = ["null", "A", b]
    value: Any = "wrong"
    for _ in range(60):
        value = {"next": value}
    with pytest.raises(PenstockError):
        codec_for(schema("AVRO", a)).encode(value)


class Colour(Enum):
    RED = 1


def test_native_values() -> None:
    definition = record(
        field("raw", "bytes"),
        field("day", {"type": "int", "logicalType": "date"}),
        field("at", {"type": "long", "logicalType": "timestamp-micros"}),
        field("price", {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}),
        field("id", {"type": "string", "logicalType": "uuid"}),
        field("colour", {"type": "enum", "name": "C", "symbols": ["RED"]}),
    )
    codec = codec_for(schema("AVRO", definition))
    value = {
        "raw": b"\xff",
        "day": date(2020, 1, 31),
        "at": datetime(2020, 1, 31, 1, 2, 3, 4, tzinfo=UTC),
        "price": Decimal("-12345678901234567890123456789012345678.90"),
        "id": UUID(int=5),
        "colour": "RED",
    }
    payload = codec.encode_native(value)
    assert codec.decode_native(payload) == value
    assert codec.encode_native({**value, "colour": Colour.RED}) == payload
    assert codec.decode(payload) == {
        "raw": "/w==",
        "day": "2020-01-31",
        "at": "2020-01-31T01:02:03.000004Z",
        "price": "-12345678901234567890123456789012345678.90",
        "id": "00000000-0000-0000-0000-000000000005",
        "colour": "RED",
    }
    assert codec.encode(codec.decode(payload)) == payload
    with pytest.raises(PenstockError, match=r"value\.raw: 'text' is no bytes"):
        codec.encode_native({**value, "raw": "text"})
    with pytest.raises(PenstockError, match=r"value\.raw: '/' is no base64"):
        codec.encode({**codec.decode(payload), "raw": "/"})
    with pytest.raises(PenstockError, match=r"value\.price: '1\.234' is no decimal \(too many digits after"):
        codec.encode({**codec.decode(payload), "price": "1.234"})


@pytest.mark.parametrize(
    ("definition", "payload", "why"),
    [
        ("string", b"", "it ends too early"),
        ("string", b"\x06ab", "it ends too early"),
        ("string", b"\x02\xff", "text that is no UTF-8"),
        ("string", b"\x01", "it ends too early"),
        ("int", b"\x02\x02", "1 bytes are left over"),
        ("int", b"\xff\xff\xff\xff\x7f", "an int of more than 32 bits"),
        ("long", b"\xff" * 11, "an integer of more than ten bytes"),
        ("boolean", b"\x02", "no boolean"),
        (["null", "int"], b"\x04", "no such branch"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "it ends too early"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no such symbol"),
        ({"type": "array", "items": "double"}, b"\xfe\xff\xff\xff\x0f", "it ends too early"),
    ],
)
def test_payloads_of_something_else(definition: Any, payload: bytes, why: str) -> None:
    codec = codec_for(schema("AVRO", definition))
    for decode in (codec.decode, codec.decode_native, codec.check):
        with pytest.raises(PenstockError) as caught:
            decode(payload)
        assert caught.value.kind is ErrorKind.BAD_MESSAGE
        assert caught.value.message == f"value: the payload is not of its Avro schema: {why}"


def test_a_readers_schema() -> None:
    old = record(field("a", "int"), field("gone", "string"), field("old", "string"))
    new = record(
        field("renamed", "string", aliases=["old"]),
        field("a", "double"),
        field("more", ["null", "int"], None),
    )
    payload = codec_for(schema("AVRO", old)).encode({"a": 1, "gone": "x", "old": "y"})
    seen = codec_for(schema("AVRO", old), schema("AVRO", new)).decode(payload)
    assert seen == {"renamed": "y", "a": 1.0, "more": None}
    with pytest.raises(PenstockError, match="field 'a': double was written, which int cannot read") as caught:
        codec_for(schema("AVRO", new), schema("AVRO", old))
    assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA


def test_unions_of_reader_and_writer() -> None:
    written = schema("AVRO", record(field("x", ["null", "int", "string"])))
    seen = schema("AVRO", record(field("x", ["string", "long", "null"])))
    codec, writer = codec_for(written, seen), codec_for(written)
    for value in (None, 5, "text"):
        assert codec.decode(writer.encode({"x": value})) == {"x": value}


class Address(Record):
    street = String()
    zip = Integer()


class Person(Record):
    _avro_namespace = "org.example"
    name = String(required=True)
    age = Integer()
    big = Long(default=5, required_default=True)
    height = Double()
    ok = Boolean()
    raw = Bytes()
    tags = Array(String())
    scores = Map(Integer())
    address = Address()
    colour = pulsar.schema.CustomEnum(Colour)


FULL = Person(
    name="Ann",
    age=33,
    big=2**40,
    height=1.75,
    ok=True,
    raw=b"\xff",
    tags=["a", "b"],
    scores={"x": 1},
    address=Address(street="s", zip=1),
    colour=Colour.RED,
)


@pytest.mark.parametrize("person", [FULL, Person(name="Bob")], ids=["full", "empty"])
def test_as_the_official_client(person: Person) -> None:
    theirs = AvroSchema(Person)
    ours = codec_for(schema("AVRO", theirs.schema_info().schema().encode()))
    payload = theirs.encode(person)
    assert ours.encode(ours.decode(payload)) == payload
    assert ours.encode_native(ours.decode_native(payload)) == payload
    assert theirs.decode(ours.encode(ours.decode(payload))) == person
    seen = ours.decode_native(payload)
    assert (seen["name"], seen["age"], seen["raw"]) == (person.name, person.age, person.raw)
