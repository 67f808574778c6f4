"""Schema declarations in all their forms, and PIP-64's codes for bad ones."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from penstock.codec.key_value import key_value_parts
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import ANY_JSON, BYTES_SCHEMA, STRING_SCHEMA, KeyValueEncoding, SchemaType
from penstock.protocols.declarations import Declaration, declared

RECORD: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
TEXT = msgspec.json.encode(RECORD).decode()
AVRO = {"type": "AVRO", "schema": TEXT}


@pytest.mark.parametrize(
    "given",
    [
        Declaration(value_schema=AVRO),
        Declaration(value_schema={"type": "avro", "schema": RECORD}),
        Declaration(value_schema={"type": "Avro", "schema": b64encode(TEXT.encode()).decode()}),
        Declaration(value_schema=msgspec.json.encode(AVRO).decode()),
        Declaration(value_schema=AVRO, schema_type="avro"),
        Declaration(value_schema={"schema": RECORD}, schema_type="AVRO"),
        Declaration(value_schema=RECORD, schema_type="avro"),
        Declaration(value_schema=TEXT, schema_type="avro"),
    ],
)
def test_the_forms_of_an_avro_schema(given: Declaration) -> None:
    schema = declared(given)
    assert schema is not None
    assert schema.type is SchemaType.AVRO
    assert msgspec.json.decode(schema.data) == RECORD


def test_types_that_need_no_definition() -> None:
    assert declared(Declaration()) is None
    assert declared(Declaration(schema_type="string")) == STRING_SCHEMA
    assert declared(Declaration(schema_type="bytes")) == BYTES_SCHEMA
    assert declared(Declaration(schema_type="none")) == BYTES_SCHEMA
    found = declared(Declaration(schema_type="local-date-time"))
    assert found is not None
    assert found.type is SchemaType.LOCAL_DATE_TIME
    assert declared(Declaration(schema_type="json")) == ANY_JSON
    json = declared(Declaration(value_schema={"type": "JSON"}))
    assert json is not None
    assert (json.type, json.data) == (SchemaType.JSON, ANY_JSON.data)


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [(None, KeyValueEncoding.SEPARATED), ("inline", KeyValueEncoding.INLINE)],
)
def test_pairs(encoding: str | None, expected: KeyValueEncoding) -> None:
    schema = declared(
        Declaration(key_schema={"type": "STRING"}, value_schema=AVRO, key_value_encoding=encoding)
    )
    assert schema is not None
    key, value, found = key_value_parts(schema)
    assert (key.type, value.type, found) == (SchemaType.STRING, SchemaType.AVRO, expected)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (Declaration(schema_type="key_value"), ErrorKind.NEEDS_KEY_VALUE_SCHEMA),
        (Declaration(schema_type="key_value", value_schema=AVRO), ErrorKind.NEEDS_KEY_VALUE_SCHEMA),
        (Declaration(key_schema=AVRO), ErrorKind.NEEDS_KEY_VALUE_SCHEMA),
        (Declaration(schema_type="avro"), ErrorKind.NEEDS_VALUE_SCHEMA),
        (Declaration(schema_type="protobuf_native"), ErrorKind.NEEDS_VALUE_SCHEMA),
        (Declaration(key_schema={"type": "x"}, value_schema=AVRO), ErrorKind.BAD_KEY_SCHEMA),
        (Declaration(key_schema=TEXT, value_schema=AVRO), ErrorKind.BAD_KEY_SCHEMA),
        (Declaration(schema_type="avro", key_schema=AVRO, value_schema=AVRO), ErrorKind.BAD_KEY_SCHEMA),
        (Declaration(value_schema={}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema=""), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema="{"), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema=TEXT), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={"type": "AVRO"}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={"type": "AVRO", "schema": 5}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={"type": "AVRO", "schema": "!"}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={"type": "INT32", "schema": "{}"}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={**AVRO, "properties": {"a": 1}}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema={**AVRO, "name": 1}), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(value_schema=AVRO, schema_type="json"), ErrorKind.BAD_VALUE_SCHEMA),
        (Declaration(schema_type="auto_consume"), ErrorKind.BAD_PARAMETER),
        (Declaration(schema_type="avros"), ErrorKind.BAD_PARAMETER),
        (Declaration(key_schema=AVRO, value_schema=AVRO, key_value_encoding="x"), ErrorKind.BAD_PARAMETER),
    ],
)
def test_bad_ones(given: Declaration, kind: ErrorKind) -> None:
    with pytest.raises(PenstockError) as caught:
        declared(given)
    assert caught.value.kind is kind, caught.value
