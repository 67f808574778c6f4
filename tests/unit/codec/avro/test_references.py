"""Avro schemas that use types of other subjects become definitions that stand for themselves."""

import io

import fastavro
import msgspec
import pytest

from penstock.codec.avro.references import with_references
from penstock.codec.lookup import codec_for
from penstock.model.schema import SchemaInfo, SchemaType

CITY = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
ADDRESS = {
    "type": "record",
    "name": "geo.Address",
    "fields": [{"name": "city", "type": "City"}, {"name": "kind", "type": "other.Kind"}],
}
KIND = {"type": "enum", "name": "Kind", "namespace": "other", "symbols": ["A", "B"]}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "shop",
    "fields": [
        {"name": "home", "type": "geo.Address"},
        {"name": "work", "type": ["null", "geo.Address"]},
        {"name": "kinds", "type": {"type": "array", "items": "other.Kind"}},
        {"name": "cities", "type": {"type": "map", "values": "geo.City"}},
        {"name": "next", "type": ["null", "Person"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    ],
}
VALUE = {
    "home": {"city": {"name": "x"}, "kind": "A"},
    "work": {"city": {"name": "y"}, "kind": "B"},
    "kinds": ["B"],
    "cities": {"z": {"name": "z"}},
    "next": None,
    "day": 1,
}


def text(avro: object) -> str:
    return msgspec.json.encode(avro).decode()


def test_types_are_put_where_they_are_used_first() -> None:
    references = {"geo.Address": text(ADDRESS), "geo.City": text(CITY), "other.Kind": text(KIND)}
    made = with_references(text(PERSON), references)
    writer = fastavro.parse_schema(msgspec.json.decode(made))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, writer, VALUE)
    decoded = codec_for(SchemaInfo(SchemaType.AVRO, made.encode())).decode(out.getvalue())
    assert decoded == {**VALUE, "day": "1970-01-02"}


def test_a_choice_of_other_subjects() -> None:
    made = with_references(
        text(["geo.City", "other.Kind"]), {"geo.City": text(CITY), "other.Kind": text(KIND)}
    )
    assert [one["name"] for one in msgspec.json.decode(made)] == ["City", "Kind"]


def test_a_schema_without_references_is_left_as_it_is() -> None:
    assert with_references(" {odd", {}) == " {odd"


@pytest.mark.parametrize("odd", ["{", "1", '{"type": "record"}', '{"no": 1}', "[" * 5000])
def test_what_is_no_schema(odd: str) -> None:
    with pytest.raises(ValueError, match="no Avro schema"):
        with_references(odd, {"geo.City": text(CITY)})


def test_references_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.codec.avro.references.BYTES_MAX", 1000)
    references = {"a": text(["a", "a"])}
    with pytest.raises(ValueError, match="1000"):
        with_references(text(["a"]), references)
