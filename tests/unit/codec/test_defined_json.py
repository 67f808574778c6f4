"""JSON values, with and without a definition, and the official client's."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pulsar.schema import Array, Integer, JsonSchema, Record, String
from tests.unit.codec.vectors import field, record, schema

from penstock.codec import codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import ANY_JSON, SchemaInfo

DEFINITION = record(
    field("name", "string"),
    field("age", "int", 7),
    field("nick", ["null", "string"]),
    field("raw", ["null", "bytes"], None),
    field("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}], None),
    field("f", "double", 0.5),
    field("tags", {"type": "array", "items": "string"}, []),
    name="Person",
)
WHOLE = {"name": "é", "age": 1, "nick": None, "raw": "/w==", "at": 5, "f": 1.5, "tags": ["x"]}


def test_stored_as_given() -> None:
    codec = codec_for(schema("JSON", DEFINITION))
    payload = codec.encode(WHOLE)
    assert payload == ('{"name":"é","age":1,"nick":null,"raw":"/w==","at":5,"f":1.5,"tags":["x"]}'.encode())
    assert codec.decode(payload) == WHOLE
    codec.check(payload)


def test_missing_fields_are_filled() -> None:
    codec = codec_for(schema("JSON", DEFINITION))
    assert codec.decode(codec.encode({"name": "x", "at": "2020-01-01T00:00:00Z"})) == {
        "name": "x",
        "age": 7,
        "nick": None,
        "raw": None,
        "at": "2020-01-01T00:00:00Z",
        "f": 0.5,
        "tags": [],
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({}, "value.name: missing"),
        ({"name": 5}, "value.name: 5 is no string"),
        ({"name": "x", "age": 2**31}, "value.age: 2147483648 does not fit 32 bits"),
        ({"name": "x", "more": 1}, "value.more: record Person has no such field"),
        ({"name": "x", "raw": "*"}, "value.raw: '*' is no base64"),
        ({"name": "x", "at": "noon"}, "value.at: 'noon' is no timestamp-millis"),
        ({"name": "x", "f": float("nan")}, "value.f: nan cannot be written as JSON"),
        ([], "value: a list is no record Person"),
    ],
)
def test_errors_name_the_place(value: Any, why: str) -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(schema("JSON", DEFINITION)).encode(value)
    assert caught.value.kind is ErrorKind.BAD_MESSAGE
    assert caught.value.message == why


def test_native_values() -> None:
    codec = codec_for(schema("JSON", DEFINITION))
    at = datetime(2020, 1, 1, tzinfo=UTC)
    value = {"name": "x", "age": 1, "nick": None, "raw": b"\xff", "at": at, "f": 1.0, "tags": []}
    payload = codec.encode_native(value)
    assert codec.decode(payload)["raw"] == "/w=="
    assert codec.decode(payload)["at"] == "2020-01-01T00:00:00.000Z"
    assert codec.decode_native(payload) == value
    assert codec.decode_native(b'{"name":"x","unknown":1}')["age"] == 7


def test_checking_passes_over_unknown_fields() -> None:
    codec = codec_for(schema("JSON", DEFINITION))
    codec.check(b'{"name":"x","unknown":1}')
    for payload in (b"", b"{", b"\xff", b'{"name":1}', b"[" * 100_000):
        with pytest.raises(PenstockError):
            codec.check(payload)


def test_a_readers_schema() -> None:
    new = record(
        field("called", "string", aliases=["name"]),
        field("age", "long", 1),
        field("x", "int", 3),
        name="Person",
    )
    codec = codec_for(schema("JSON", DEFINITION), schema("JSON", new))
    assert codec.decode(b'{"name":"n","age":5}') == {"called": "n", "age": 5, "x": 3}
    assert codec.decode_native(b'{"name":"n"}') == {"called": "n", "age": 7, "x": 3}


@pytest.mark.parametrize("without", [schema("JSON"), schema("JSON", record()), ANY_JSON])
def test_any_json_without_fields(without: SchemaInfo) -> None:
    codec = codec_for(without)
    for value in (None, 1, "x", [1, {"a": [None]}]):
        assert codec.decode(codec.encode(value)) == value
        assert codec.decode_native(codec.encode_native(value)) == value
    for value in ("\ud800", {"x": object()}):
        with pytest.raises(PenstockError):
            codec.encode(value)
    with pytest.raises(PenstockError, match="not JSON"):
        codec.decode(b"nope")


@given(st.binary(max_size=40))
def test_any_bytes(payload: bytes) -> None:
    for codec in (codec_for(schema("JSON")), codec_for(schema("JSON", DEFINITION))):
        for decode in (codec.decode, codec.decode_native, codec.check):
            try:
                decode(payload)
            except PenstockError as error:
                if error.kind is not ErrorKind.BAD_MESSAGE:
                    raise


class Inner(Record):
    n = Integer()


class Outer(Record):
    text = String()
    inner = Inner()
    many = Array(Inner())


def test_as_the_official_client() -> None:
    theirs = JsonSchema(Outer)
    ours = codec_for(schema("JSON", theirs.schema_info().schema().encode()))
    value = Outer(text="ø", inner=Inner(n=1), many=[Inner(n=2)])
    plain = {"text": "ø", "inner": {"n": 1}, "many": [{"n": 2}]}
    ours.check(theirs.encode(value))
    assert ours.decode(theirs.encode(value)) == plain
    assert theirs.decode(ours.encode(plain)) == value
    assert theirs.decode(ours.encode({"text": "x"})).inner is None
