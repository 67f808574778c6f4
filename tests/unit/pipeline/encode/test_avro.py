"""Columns are written as the codec writes each row, and what is read is what was written."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codec.avro.schemas import definitions, values

from penstock.codec import codec_for
from penstock.codec.avro.form import NATIVE
from penstock.codec.avro.parse import parse_tree
from penstock.codec.avro.types import Type
from penstock.codec.avro.write import compile_writer
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import AvroDecoder
from penstock.pipeline.decode.payloads import decode
from penstock.pipeline.encode.avro import compile_write
from penstock.pipeline.errors import PipelineError

_RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def decoder(kind: Type) -> AvroDecoder:
    return AvroDecoder(codec_for(SchemaInfo(SchemaType.AVRO, b'"null"')), kind, kind)


def _widened(definition: Any) -> bool:
    """Whether a union is one column of the wider type: then its branch is not kept."""
    if isinstance(definition, list):
        names = {b for b in definition if isinstance(b, str)} - {"null"}
        if len([b for b in definition if b != "null"]) == 2 and names in (
            {"int", "long"},
            {"float", "double"},
        ):
            return True
        return any(map(_widened, definition))
    if isinstance(definition, str):
        return False
    inside = [definition.get("items", "null"), definition.get("values", "null")]
    return any(map(_widened, inside + [f["type"] for f in definition.get("fields", [])]))


@_RELAXED
@given(st.data(), definitions().filter(lambda d: not _widened(d)))
def test_as_the_codec_writes(data: st.DataObject, definition: Any) -> None:
    kind = parse_tree(definition)
    native = data.draw(st.lists(values(definition), max_size=6))
    payloads = [compile_writer(kind, NATIVE)(value) for value in native]
    column, _ = decode(decoder(kind), pa.array(payloads, pa.binary()))
    written = compile_write(kind, column.type)(column)
    assert written.type == pa.binary()
    assert written.to_pylist() == payloads


@pytest.mark.parametrize(
    ("definition", "column", "why"),
    [
        ("int", pa.array([1 << 31]), "value: a number that does not fit 32 bits"),
        ("float", pa.array([1e300]), "value: a number that is too large for a float"),
        ("string", pa.array([1]), "value: int64 cannot be written as string"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.array(["B"]), "'B' is no symbol of enum E"),
        ({"type": "fixed", "name": "F", "size": 2}, pa.array([b"a"]), "bytes that are not 2 long"),
        ({"type": "array", "items": "int"}, pa.array([[1, None]], pa.list_(pa.int32())), r"value\[\]: null"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]},
            pa.array([{"b": 1}]),
            "value.b: record R has no such field",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
            },
            pa.array([{"b": 1}]),
            "value.a: the column is missing",
        ),
        (["int", "string"], pa.array([None], pa.int32()), "value: null, which"),
    ],
)
def test_what_does_not_fit(definition: Any, column: pa.Array, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        compile_write(parse_tree(definition), column.type)(column)


def test_slices_and_defaults() -> None:
    kind = parse_tree(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "tags", "type": {"type": "array", "items": "string"}},
                {"name": "more", "type": {"type": "map", "values": "long"}},
                {"name": "n", "type": "int", "default": 7},
                {"name": "o", "type": ["null", "int"]},
            ],
        }
    )
    arrow = pa.struct([("tags", pa.list_(pa.string())), ("more", pa.map_(pa.string(), pa.int64()))])
    rows = [{"tags": ["a"] * n, "more": [(f"k{i}", i) for i in range(n)]} for n in range(5)]
    written = compile_write(kind, arrow)(pa.array(rows, arrow)[2:4])
    read, wrong = decode(decoder(kind), written)
    assert not wrong
    assert read.to_pylist() == [{**row, "n": 7, "o": None} for row in rows[2:4]]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "-03:00"])
def test_an_instant_is_the_same_in_every_zone(zone: str) -> None:
    kind = parse_tree({"type": "long", "logicalType": "timestamp-micros"})
    utc = pa.array([0, 1_769_911_200_000_000, -1], pa.timestamp("us", "UTC"))
    there = utc.cast(pa.timestamp("us", zone))
    assert compile_write(kind, there.type)(there) == compile_write(kind, utc.type)(utc)
    local = utc.cast(pa.timestamp("us"))
    with pytest.raises(PipelineError, match="cannot be written as timestamp-micros"):
        compile_write(kind, local.type)
