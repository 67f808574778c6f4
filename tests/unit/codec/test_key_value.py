"""Pairs: the layout of schemas and payloads, and the key in the message's key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.codec.vectors import field, load, record, schema

from penstock.codec import KeyValueCodec, codec_for, key_value_parts, key_value_schema
from penstock.codec.key_value import join, split
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType

INLINE, SEPARATED = KeyValueEncoding.INLINE, KeyValueEncoding.SEPARATED


def pair_codec(pair: SchemaInfo) -> KeyValueCodec:
    codec = codec_for(pair)
    assert isinstance(codec, KeyValueCodec)
    return codec


@pytest.mark.parametrize("vector", load("key_value"), ids=lambda v: v["inline"])
def test_vectors(vector: dict[str, Any]) -> None:
    key, value = schema(vector["key"]), schema(vector["value"])
    plain = tuple(vector["plain"])

    inline = pair_codec(key_value_schema(key, value))
    payload = bytes.fromhex(vector["inline"])
    assert inline.encode_pair(*plain) == (None, payload)
    assert inline.decode_pair(None, payload) == plain
    assert inline.encode({"key": plain[0], "value": plain[1]}) == payload
    assert inline.decode(payload) == {"key": plain[0], "value": plain[1]}
    inline.check(payload)

    separated = pair_codec(key_value_schema(key, value, SEPARATED))
    message_key, rest = vector["separated"]
    payload_or_null = None if rest is None else bytes.fromhex(rest)
    assert separated.encode_pair(*plain) == (message_key, payload_or_null)
    assert separated.decode_pair(message_key, payload_or_null) == plain


def test_the_schema_is_as_java_writes_it() -> None:
    key = SchemaInfo(SchemaType.STRING, b"", "K", {"__charset": "UTF-8"})
    value = schema("AVRO", b'"int"')
    pair = key_value_schema(key, value, SEPARATED)
    assert pair.type is SchemaType.KEY_VALUE
    assert pair.data == b'\0\0\0\0\0\0\0\5"int"'
    assert pair.properties == {
        "key.schema.name": "K",
        "key.schema.type": "STRING",
        "key.schema.properties": '{"__charset":"UTF-8"}',
        "value.schema.name": "",
        "value.schema.type": "AVRO",
        "value.schema.properties": "{}",
        "kv.encoding.type": "SEPARATED",
    }
    assert key_value_parts(pair) == (key, value, SEPARATED)


def test_parts_without_properties_are_bytes_inline() -> None:
    key, value, encoding = key_value_parts(schema("KEY_VALUE", join(None, b"")))
    assert (key.type, value.type, encoding) == (SchemaType.BYTES, SchemaType.BYTES, INLINE)


@pytest.mark.parametrize(
    ("data", "properties", "kind"),
    [
        (b"", {}, ErrorKind.BAD_VALUE_SCHEMA),
        (b"\0\0\0\5a", {}, ErrorKind.BAD_VALUE_SCHEMA),
        (b"\0\0\0\0\0\0\0\0x", {}, ErrorKind.BAD_VALUE_SCHEMA),
        (b"\x80\0\0\0\0\0\0\0", {}, ErrorKind.BAD_VALUE_SCHEMA),
        (join(b"", b""), {"kv.encoding.type": "BOTH"}, ErrorKind.BAD_VALUE_SCHEMA),
        (join(b"", b""), {"key.schema.type": "KEY_VALUE"}, ErrorKind.BAD_KEY_SCHEMA),
        (join(b"", b""), {"key.schema.type": "NOPE"}, ErrorKind.BAD_KEY_SCHEMA),
        (join(b"", b""), {"value.schema.type": "AUTO_CONSUME"}, ErrorKind.BAD_VALUE_SCHEMA),
        (join(b"", b""), {"value.schema.properties": "[]"}, ErrorKind.BAD_VALUE_SCHEMA),
        (join(b"{", b""), {"key.schema.type": "AVRO"}, ErrorKind.BAD_KEY_SCHEMA),
        (join(b"", b"{"), {"value.schema.type": "AVRO"}, ErrorKind.BAD_VALUE_SCHEMA),
    ],
)
def test_bad_schemas(data: bytes, properties: dict[str, str], kind: ErrorKind) -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(SchemaInfo(SchemaType.KEY_VALUE, data, "", properties))
    assert caught.value.kind is kind


def test_errors_name_the_part() -> None:
    person = schema("AVRO", record(field("age", "int")))
    codec = pair_codec(key_value_schema(person, person))
    with pytest.raises(PenstockError, match=r"^key\.age: 'x' is no int$"):
        codec.encode_pair({"age": "x"}, {"age": 1})
    with pytest.raises(PenstockError, match=r"^value\.age: missing$"):
        codec.encode_pair({"age": 1}, {})
    with pytest.raises(PenstockError, match="a pair is an object"):
        codec.encode([1, 2])


def test_native_pairs() -> None:
    codec = pair_codec(key_value_schema(schema("BYTES"), schema("STRING"), SEPARATED))
    assert codec.encode_pair_native(b"\xff", "v") == ("/w==", b"v")
    assert codec.decode_pair_native("/w==", b"v") == (b"\xff", "v")
    with pytest.raises(PenstockError, match="not base64"):
        codec.decode_pair("/w", b"v")


@given(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))
def test_join_and_split(key: bytes | None, value: bytes | None) -> None:
    assert split(join(key, value)) == (key, value)


@given(st.binary(max_size=30))
def test_any_bytes(payload: bytes) -> None:
    codec = codec_for(key_value_schema(schema("STRING"), schema("INT32")))
    try:
        codec.decode(payload)
    except PenstockError as error:
        if error.kind is not ErrorKind.BAD_MESSAGE:
            raise


def test_a_reader_reads_both_parts() -> None:
    old, new = record(field("a", "int")), record(field("a", "long"), field("b", "string", "x"))
    written = key_value_schema(schema("AVRO", old), schema("AVRO", old))
    seen = key_value_schema(schema("AVRO", new), schema("AVRO", old))
    codec = codec_for(written, seen)
    assert codec.decode(codec_for(written).encode({"key": {"a": 1}, "value": {"a": 2}})) == {
        "key": {"a": 1, "b": "x"},
        "value": {"a": 2},
    }
