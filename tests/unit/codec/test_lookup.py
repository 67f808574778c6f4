"""Codecs are found by schema, once."""

import subprocess
import sys

import pytest
from tests.unit.codec.vectors import field, record, schema

from penstock.codec import codec_for
from penstock.codec.lookup import CODECS_MAX
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType


def test_the_same_schema_gives_the_same_codec() -> None:
    one = schema("AVRO", record(field("a", "int")))
    again = SchemaInfo(SchemaType.AVRO, bytes(bytearray(one.data)), "other name", {"x": "y"})
    assert codec_for(one) is codec_for(again)
    assert codec_for(one) is not codec_for(one, part="key")
    assert codec_for(one, one) is codec_for(one)


def test_the_cache_is_bounded() -> None:
    first = schema("AVRO", record(field("a", "int"), doc="first"))
    codec = codec_for(first)
    for number in range(CODECS_MAX):
        codec_for(schema("AVRO", b'{"type":"int","n":%d}' % number))
    assert codec_for(first) is not codec


def test_no_codec_for_what_is_no_type_of_values() -> None:
    for kind in (SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH):
        with pytest.raises(PenstockError, match="no encoding") as caught:
            codec_for(schema(kind))
        assert caught.value.kind is ErrorKind.BAD_VALUE_SCHEMA


def test_a_reader_of_another_type_is_refused() -> None:
    one = schema("AVRO", record(field("a", "int")))
    for reader in (schema("STRING"), schema("JSON", one.data)):
        with pytest.raises(PenstockError) as caught:
            codec_for(one, reader)
        assert caught.value.kind is ErrorKind.INCOMPATIBLE_SCHEMA
    assert codec_for(schema("STRING"), schema("STRING")).decode(b"x") == "x"


def test_a_bad_key_schema_is_told_so() -> None:
    with pytest.raises(PenstockError) as caught:
        codec_for(schema("AVRO", b"{"), part="key")
    assert caught.value.kind is ErrorKind.BAD_KEY_SCHEMA


def test_importing_costs_no_protobuf_and_no_fastavro() -> None:
    code = (
        "import penstock.codec, sys; print([m for m in sys.modules if m in ('google.protobuf', 'fastavro')])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
