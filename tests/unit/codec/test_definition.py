"""Definitions: what is refused, and which are the same."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.codec.vectors import field, record, schema

from penstock.codec import check, check_definition, codec_for, fingerprint, key_value_schema, same
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import Compatibility, KeyValueEncoding, SchemaInfo, SchemaType


@pytest.mark.parametrize(
    ("kind", "definition", "why"),
    [
        ("AVRO", b"", "not JSON"),
        ("AVRO", b"\xff", "not JSON"),
        ("AVRO", b"[" * 100_000, "not JSON"),
        ("AVRO", "nope", "unknown type 'nope'"),
        ("AVRO", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "nope"}]}, "at a: unknown"),
        ("JSON", "string", "is an Avro record"),
        ("JSON", {"$schema": "x", "type": "object", "properties": {}}, "this is a JSON Schema"),
        ("JSON", {"type": "object", "id": "urn:x", "properties": {"a": {}}}, "this is a JSON Schema"),
        ("PROTOBUF", b"\x01\x02", "not JSON"),
        ("PROTOBUF_NATIVE", b"{}", "fileDescriptorSet"),
        ("AUTO_CONSUME", b"", "no type that can be stored"),
        ("KEY_VALUE", b"", "no key/value schema"),
    ],
)
def test_refused(kind: str, definition: Any, why: str) -> None:
    with pytest.raises(PenstockError) as caught:
        check_definition(schema(kind, definition))
    assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA
    assert why in caught.value.message
    with pytest.raises(PenstockError) as caught:
        check_definition(schema(kind, definition), part="key")
    assert caught.value.kind is ErrorKind.BAD_KEY_SCHEMA


def test_the_size_is_bounded() -> None:
    big = schema("AVRO", record(field("a", "int"), doc="x" * 100))
    check_definition(big)
    with pytest.raises(PenstockError, match="at most 100 are allowed"):
        check_definition(big, max_schema_bytes=100)


def test_long_chains_of_names() -> None:
    fields = [field("f0", record(field("x", "int"), name="R0"))]
    fields += [field(f"f{n + 1}", record(field("x", f"R{n}"), name=f"R{n + 1}")) for n in range(3000)]
    definition = schema("AVRO", record(field("u", record(*fields[::-1], name="All")), name="Top"))
    with pytest.raises(PenstockError, match="unknown type"):
        check_definition(definition)
    definition = schema("AVRO", record(*fields, name="Top"))
    check_definition(definition)
    codec = codec_for(definition)
    value = {"x": 1}
    whole: dict[str, Any] = {}
    for number in range(100):
        whole[f"f{number}"] = value
        value = {"x": value}
    with pytest.raises(PenstockError, match="missing"):
        codec.encode(whole)
    with pytest.raises(PenstockError, match="too deeply"):
        codec.decode(b"\2" * 5000)
    other = schema("AVRO", record(*fields, field("more", "int", 0), name="Top"))
    assert check(other, [definition], Compatibility.FULL) is None


def test_large_unions_are_bounded() -> None:
    def union(count: int) -> SchemaInfo:
        return schema("AVRO", [record(field("x", "int"), name=f"R{n}") for n in range(count)])

    with pytest.raises(PenstockError, match="more than 1000 branches"):
        check_definition(union(1001))
    check_definition(union(1000))
    assert codec_for(union(1000)).decode(b"\xce\x0f\2") == {"x": 1}
    assert check(union(1000), [union(999)], Compatibility.BACKWARD) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [("STRING", "ü"), ("BYTES", "AP8="), ("INT32", -7), ("LOCAL_DATE", "2024-02-29"), ("NONE", "AP8=")],
)
def test_the_primitives_need_none(kind: str, value: Any) -> None:
    check_definition(schema(kind))
    codec = codec_for(schema(kind))
    assert codec.decode(codec.encode(value)) == value


def test_json_needs_none() -> None:
    for definition in (schema("JSON"), schema("JSON", b" ")):
        check_definition(definition)
        codec = codec_for(definition)
        for value in ({"any": [1, None, {"b": "ü"}]}, "text", 7):
            assert codec.decode(codec.encode(value)) == value


A = record(field("a", "int"), name="R", namespace="x")


@pytest.mark.parametrize(
    "other",
    [
        {**A, "doc": "words"},
        {**A, "aliases": ["Q"]},
        {"type": "record", "name": "x.R", "fields": A["fields"]},
        {**A, "fields": [{"name": "a", "type": {"type": "int"}, "doc": "d", "order": "ascending"}]},
        {"fields": A["fields"], "namespace": "x", "name": "R", "type": "record"},
    ],
)
def test_the_same(other: Any) -> None:
    assert same(schema("AVRO", A), schema("AVRO", other))
    assert fingerprint(schema("AVRO", A)) == fingerprint(schema("AVRO", other))


@pytest.mark.parametrize(
    "other",
    [
        {**A, "name": "S"},
        {**A, "namespace": "y"},
        record(field("a", "long"), name="R", namespace="x"),
        record(field("a", "int", 0), name="R", namespace="x"),
        record(field("a", {"type": "int", "logicalType": "date"}), name="R", namespace="x"),
        record(field("a", "int"), field("b", "int"), name="R", namespace="x"),
        {**A, "custom": 1},
    ],
)
def test_not_the_same(other: Any) -> None:
    assert not same(schema("AVRO", A), schema("AVRO", other))


def test_names_inside_count_by_their_full_name() -> None:
    inner = record(field("n", "int"), name="I")
    one = record(field("a", inner), field("b", "I"), name="R", namespace="x")
    two = record(field("a", inner), field("b", "x.I"), name="R", namespace="x")
    assert same(schema("AVRO", one), schema("AVRO", two))


def test_other_types_by_their_bytes() -> None:
    assert same(schema("STRING"), schema("STRING", __charset="UTF-8"))
    assert not same(schema("STRING"), schema("BYTES"))
    assert not same(schema("AVRO", A), schema("JSON", A))
    assert same(schema("STRING"), schema("STRING", b"null"))  # as Python's client sends it
    assert same(schema("INT32"), schema("INT32", b"null"))


def test_what_payloads_depend_on() -> None:
    assert not same(schema("STRING"), schema("STRING", __charset="ISO-8859-1"))
    assert not same(
        schema("PROTOBUF", A, __PARSING_INFO__="[1]"), schema("PROTOBUF", A, __PARSING_INFO__="[2]")
    )


def test_pairs_by_their_parts() -> None:
    one = key_value_schema(schema("STRING"), schema("AVRO", A))
    again = key_value_schema(schema("STRING"), schema("AVRO", {**A, "doc": "d"}))
    assert same(one, again)
    assert not same(one, key_value_schema(schema("BYTES"), schema("AVRO", A)))
    assert not same(one, key_value_schema(schema("STRING"), schema("AVRO", A), KeyValueEncoding.SEPARATED))


@given(st.sampled_from(sorted(SchemaType)), st.binary(max_size=60))
def test_any_bytes(kind: SchemaType, data: bytes) -> None:
    info = SchemaInfo(kind, data)
    assert same(info, info)
    try:
        check_definition(info)
        codec_for(info)
    except PenstockError as error:
        if error.kind not in (ErrorKind.BAD_VALUE_SCHEMA, ErrorKind.BAD_KEY_SCHEMA):
            raise


_TREES = st.recursive(
    st.none()
    | st.integers(-5, 5)
    | st.sampled_from(["record", "int", "string", "R", "", "x.y", "enum", "array", "a b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "default", "size",
                             "namespace", "aliases", "logicalType", "precision"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)  # fmt: skip


@given(_TREES)
def test_any_json(tree: Any) -> None:
    info = schema("AVRO", tree if tree is not None else b"null")
    fingerprint(info)
    try:
        check_definition(info)
    except PenstockError as error:
        if error.kind is not ErrorKind.BAD_VALUE_SCHEMA:
            raise
