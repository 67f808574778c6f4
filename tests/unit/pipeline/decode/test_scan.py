"""Columns made by scanning many payloads are, row by row, what the codec reads from each."""

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codec.avro.schemas import definitions, readers, values

from penstock.codec import codec_for
from penstock.codec.avro.form import NATIVE
from penstock.codec.avro.parse import parse_tree
from penstock.codec.avro.read import FAILURES, compile_reader
from penstock.codec.avro.resolve import mismatch
from penstock.codec.avro.types import Array, Map, Record, Type, Union
from penstock.codec.avro.write import compile_writer
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.decoders import AvroDecoder
from penstock.pipeline.decode.payloads import decode
from penstock.pipeline.decode.shapes import arrow_type, members, merged, spark_type
from penstock.pipeline.errors import PipelineError

_RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def decoder(writer: Type, reader: Type) -> AvroDecoder:
    return AvroDecoder(codec_for(SchemaInfo(SchemaType.AVRO, b'"null"')), writer, reader)


def same(kind: Type, got: Any, value: Any) -> bool:
    """Whether a column's item is the codec's value of `kind`."""
    if value is None or got is None:
        return got is None and value is None
    if isinstance(kind, Union):
        whole = merged(kind)
        if whole is not None:
            return same(whole, got, value)
        said = [
            same(branch, item, value)
            for branch, item in zip(members(kind), got.values(), strict=True)
            if item is not None
        ]
        return said == [True]
    if isinstance(kind, Record):
        return list(got) == [f.name for f in kind.fields] and all(
            same(f.type, got[f.name], value[f.name]) for f in kind.fields
        )
    if isinstance(kind, Array):
        return len(got) == len(value) and all(same(kind.items, g, v) for g, v in zip(got, value, strict=True))
    if isinstance(kind, Map):
        pairs = dict(got)
        assert len(pairs) == len(got)
        return pairs.keys() == value.keys() and all(same(kind.values, pairs[k], value[k]) for k in value)
    if kind.kind == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return got == value or got != got


def check(column: pa.Array, kind: Type) -> None:
    column.validate(full=True)
    assert column.type == arrow_type(spark_type(kind))


@_RELAXED
@given(st.data(), definitions())
def test_what_was_written(data: st.DataObject, definition: Any) -> None:
    kind = parse_tree(definition)
    native = data.draw(st.lists(values(definition), max_size=8))
    write = compile_writer(kind, NATIVE)
    column, wrong = decode(decoder(kind, kind), pa.array([write(v) for v in native], pa.binary()))
    assert wrong == {}
    check(column, kind)
    for got, value in zip(column.to_pylist(), native, strict=True):
        assert same(kind, got, value)


@_RELAXED
@given(st.data(), definitions())
def test_as_another_definition_sees_it(data: st.DataObject, definition: Any) -> None:
    writer, reader = parse_tree(definition), parse_tree(data.draw(readers(definition)))
    native = data.draw(st.lists(values(definition), max_size=5))
    payloads = [compile_writer(writer, NATIVE)(v) for v in native]
    why = mismatch(reader, writer)
    try:
        made = decoder(writer, reader)
    except PipelineError:
        assert why
        return
    if why:
        return  # an enum read as a string
    read = compile_reader(writer, reader, NATIVE)
    column, wrong = decode(made, pa.array(payloads, pa.binary()))
    check(column, reader)
    for row, (got, payload) in enumerate(zip(column.to_pylist(), payloads, strict=True)):
        try:
            value = read(payload, 0)[0]
        except FAILURES:  # bytes that are no text
            assert row in wrong
        else:
            assert row not in wrong
            assert same(reader, got, value)


@_RELAXED
@given(st.data(), definitions())
def test_broken_payloads_among_good_ones(data: st.DataObject, definition: Any) -> None:
    """Cut, longer, or with bytes changed: refused where the codec refuses, else read as it reads."""
    kind = parse_tree(definition)
    write, read = compile_writer(kind, NATIVE), compile_reader(kind, kind, NATIVE)
    payloads = []
    for value in data.draw(st.lists(values(definition), max_size=6)):
        payload = write(value)
        match data.draw(st.sampled_from(["good", "cut", "long", "changed", "random"])):
            case "cut":
                payload = payload[: data.draw(st.integers(0, len(payload)))]
            case "long":
                payload += data.draw(st.binary(min_size=1, max_size=12))
            case "changed" if payload:
                at = data.draw(st.integers(0, len(payload) - 1))
                payload = payload[:at] + data.draw(st.binary(max_size=3)) + payload[at + 1 :]
            case "random":
                payload = data.draw(st.binary(max_size=20))
        payloads.append(payload)
    column, wrong = decode(decoder(kind, kind), pa.array(payloads, pa.binary()))
    check(column, kind)
    for row, (got, payload) in enumerate(zip(column.to_pylist(), payloads, strict=True)):
        try:
            value, end = read(payload, 0)
            assert end == len(payload)
        except (*FAILURES, AssertionError):
            assert row in wrong
            assert got is None
        else:
            assert row not in wrong
            assert same(kind, got, value)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"\x00", 0),
        (b"\x80\x00", 0),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", -(2**63)),
        (b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", 2**63 - 1),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", None),
        (b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", None),
        (b"\x80", None),
        (b"", None),
    ],
)
def test_integers(payload: bytes, value: int | None) -> None:
    kind = parse_tree("long")
    column, wrong = decode(decoder(kind, kind), pa.array([b"\x02", payload, b"\x04"], pa.binary()))
    assert column.to_pylist() == [1, value, 2]
    assert (1 in wrong) == (value is None)
