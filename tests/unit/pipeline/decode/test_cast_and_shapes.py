"""Columns of other types, and types that become columns."""

import json
from typing import Any

import pyarrow as pa
import pytest

from penstock.codec import codec_for
from penstock.codec.avro.parse import parse_tree
from penstock.model.schema import ANY_JSON, SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import column_type, compile_cast, decoder_for
from penstock.pipeline.decode.options import parse_ddl
from penstock.pipeline.decode.payloads import decode
from penstock.pipeline.decode.raw import BadRows
from penstock.pipeline.decode.shapes import arrow_type, spark_type
from penstock.pipeline.encode.plan import avro_schema, plain_schema
from penstock.pipeline.errors import PipelineError


def arrow(ddl: str) -> pa.DataType:
    return arrow_type(parse_ddl(ddl))


@pytest.mark.parametrize(
    ("source", "target", "value", "expected"),
    [
        ("int", "bigint", 5, 5),
        ("bigint", "double", 5, 5.0),
        ("float", "double", 0.5, 0.5),
        ("string", "binary", "é", "é".encode()),
        ("binary", "string", "é".encode(), "é"),
        ("decimal(5,2)", "decimal(10,3)", None, None),
        ("array<int>", "array<bigint>", [1, None], [1, None]),
        ("map<string,int>", "map<string,double>", [("a", 1)], [("a", 1.0)]),
        ("a int, b string", "b string, c double", {"a": 1, "b": "x"}, {"b": "x", "c": None}),
        ("a struct<x int>", "a struct<x bigint, y array<date>>", {"a": None}, {"a": None}),
    ],
)
def test_what_loses_nothing(source: str, target: str, value: Any, expected: Any) -> None:
    column = pa.array([value, None, value], arrow(source))
    found = compile_cast(column.type, arrow(target))(column[1:])
    found.validate(full=True)
    assert found.type == arrow(target)
    assert found.to_pylist() == [None, expected]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("bigint", "int"),
        ("double", "float"),
        ("string", "int"),
        ("decimal(10,2)", "decimal(10,1)"),
        ("timestamp", "timestamp_ntz"),
        ("array<bigint>", "array<int>"),
    ],
)
def test_what_would(source: str, target: str) -> None:
    with pytest.raises(PipelineError, match=r"was written, which .* cannot hold"):
        compile_cast(arrow(source), arrow(target))


def test_bytes_that_are_no_text_break_their_row() -> None:
    column = pa.array([[b"a", b"b"], [], None, [b"c", b"\xff"]], arrow("array<binary>"))
    with pytest.raises(BadRows) as error:
        compile_cast(column.type, arrow("array<string>"))(column)
    assert error.value.flags.tolist() == [False, False, False, True]


def test_a_type_that_contains_itself_is_refused() -> None:
    tree = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    with pytest.raises(PipelineError, match=r"value.next: record N contains itself"):
        spark_type(parse_tree(tree))


def test_a_type_that_grows_without_end_is_refused() -> None:
    kind: Any = "int"
    definitions = [{"type": "record", "name": "R0", "fields": [{"name": "a", "type": kind}]}]
    tree: Any = definitions[0]
    for n in range(1, 20):
        fields = [{"name": "a", "type": tree}, {"name": "b", "type": f"R{n - 1}"}]
        tree = {"type": "record", "name": f"R{n}", "fields": fields}
    with pytest.raises(PipelineError, match="more than 10000 columns"):
        spark_type(parse_tree(tree))


LOGICAL = {
    "type": "record",
    "name": "L",
    "fields": [
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "w", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 1}},
        {"name": "u", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
        {"name": "n", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "l", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "t", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "y", "type": {"type": "int", "logicalType": "date"}},
    ],
}


def test_logical_types() -> None:
    schema = SchemaInfo(SchemaType.AVRO, json.dumps(LOGICAL).encode())
    codec = codec_for(schema)
    value = {
        "d": "-1234.56",
        "w": "1" * 40 + ".5",
        "u": "12345678-1234-5678-1234-567812345678",
        "n": -1,
        "l": "2024-02-29T01:02:03.004",
        "t": 5,
        "y": "1969-12-31",
    }
    payloads = [codec.encode(value), codec.encode(value | {"l": 2**62}), codec.encode(value | {"t": 6})]
    found, wrong = decode(decoder_for(schema, schema, column_type(schema)), pa.array(payloads))
    assert wrong == {1: "value: a time beyond what Spark's timestamps hold"}
    first, second, third = found.to_pylist()
    assert second is None
    assert {k: str(v) for k, v in first.items()} == {
        "d": "-1234.56",
        "w": "1" * 40 + ".5",
        "u": "12345678-1234-5678-1234-567812345678",
        "n": "1969-12-31 23:59:59.999999+00:00",
        "l": "2024-02-29 01:02:03.004000",
        "t": "5",
        "y": "1969-12-31",
    }
    assert third["t"] == 6


def test_a_decimal_of_more_digits_than_its_type() -> None:
    tree = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    schema = SchemaInfo(SchemaType.AVRO, json.dumps(tree).encode())
    payloads = pa.array([b"\x04\x03\xe7", b"\x04\x03\xe8"])
    found, wrong = decode(decoder_for(schema, schema, column_type(schema)), payloads)
    assert (str(found[0]), found[1].as_py()) == ("999", None)
    assert wrong == {1: "value: a decimal of more than 3 digits"}


def test_schemas_made_of_columns() -> None:
    value = parse_ddl(
        "id bigint, tags array<string>, m map<string,double>, s struct<d decimal(9,2), t timestamp>"
    )
    for kind in (SchemaType.AVRO, SchemaType.JSON):
        assert column_type(avro_schema(kind, value)) == value
    for ddl in (
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "date",
        "timestamp",
        "string",
    ):
        schema = plain_schema(parse_ddl(ddl))
        assert schema is not None
        assert column_type(schema) == parse_ddl(ddl)
    assert plain_schema(value) is None
    with pytest.raises(PipelineError, match="column 'a b' has a name that Avro does not allow"):
        avro_schema(SchemaType.AVRO, parse_ddl("`a b` int, c int"))
    with pytest.raises(PipelineError, match=r"value.m: map<int,int> has no type of Avro's"):
        avro_schema(SchemaType.AVRO, parse_ddl("m map<int,int>, c int"))


def test_json_of_any_shape_is_read_by_a_definition_that_came_later() -> None:
    tree = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    later = SchemaInfo(SchemaType.JSON, json.dumps(tree).encode())
    payloads = pa.array([b'{"a":1}', b'{"a":2,"b":0}', b'["a"]'])
    found, wrong = decode(decoder_for(ANY_JSON, later, column_type(later)), payloads)
    assert (found.to_pylist()[:2], list(wrong)) == ([{"a": 1}, {"a": 2}], [2])


def test_any_json_is_text_where_the_newest_schema_has_no_fields() -> None:
    tree = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    earlier = SchemaInfo(SchemaType.JSON, json.dumps(tree).encode())
    found, wrong = decode(decoder_for(earlier, ANY_JSON, column_type(ANY_JSON)), pa.array([b'{"a":1}']))
    assert (found.to_pylist(), wrong) == (['{"a":1}'], {})
