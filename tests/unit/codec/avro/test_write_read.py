"""What is written is Avro, what is read is what was written, and fastavro agrees on both."""

import io
import math
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.codec.avro.schemas import definitions, readers, records, values

from penstock.codec.avro.fit import misfit
from penstock.codec.avro.form import NATIVE, PLAIN
from penstock.codec.avro.parse import parse_tree
from penstock.codec.avro.read import FAILURES as READ_FAILURES
from penstock.codec.avro.read import compile_reader
from penstock.codec.avro.resolve import mismatch
from penstock.codec.avro.write import FAILURES as WRITE_FAILURES
from penstock.codec.avro.write import compile_writer

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from("AB"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=8,
)
_RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def _has_choice(definition: Any) -> bool:
    """Whether a union leaves a choice that fastavro may make otherwise."""
    if isinstance(definition, list):
        return len(definition) > 2 or any(map(_has_choice, definition)) or "null" not in definition
    if isinstance(definition, str):
        return False
    inside = [definition.get("items", "null"), definition.get("values", "null")]
    inside += [field["type"] for field in definition.get("fields", [])]
    return any(map(_has_choice, inside))


@_RELAXED
@given(st.data(), definitions())
def test_written_as_fastavro_writes(data: st.DataObject, definition: Any) -> None:
    kind = parse_tree(definition)
    value = data.draw(values(definition))
    written = compile_writer(kind, NATIVE)(value)
    parsed = fastavro.parse_schema(definition)
    if not _has_choice(definition):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        assert written == buffer.getvalue()
    read, end = compile_reader(kind, kind, NATIVE)(written, 0)
    assert end == len(written)
    assert read == value
    assert fastavro.schemaless_reader(io.BytesIO(written), parsed, None) == value
    assert misfit(kind, value, "value", NATIVE) == ""


@_RELAXED
@given(st.data(), definitions())
def test_plain_values_come_back(data: st.DataObject, definition: Any) -> None:
    kind = parse_tree(definition)
    written = compile_writer(kind, NATIVE)(data.draw(values(definition)))
    plain, _ = compile_reader(kind, kind, PLAIN)(written, 0)
    again = compile_writer(kind, PLAIN)(plain)
    assert compile_reader(kind, kind, PLAIN)(again, 0)[0] == plain


@_RELAXED
@given(definitions(), _JSON)
def test_what_the_writer_refuses_is_explained(definition: Any, value: Any) -> None:
    kind = parse_tree(definition)
    why = misfit(kind, value, "value", PLAIN)
    try:
        compile_writer(kind, PLAIN)(value)
    except WRITE_FAILURES:
        assert why.startswith("value")
    else:
        assert why == ""


@_RELAXED
@given(st.data(), definitions(), st.binary(max_size=60))
def test_foreign_bytes_are_refused_or_read(data: st.DataObject, definition: Any, payload: bytes) -> None:
    kind = parse_tree(definition)
    for form in (PLAIN, NATIVE):
        try:
            compile_reader(kind, kind, form)(payload, 0)
        except READ_FAILURES:
            pass


@_RELAXED
@given(st.data(), records())
def test_cut_short_is_refused(data: st.DataObject, definition: Any) -> None:
    kind = parse_tree(definition)
    written = compile_writer(kind, NATIVE)(data.draw(values(definition)))
    read = compile_reader(kind, kind, PLAIN)
    for end in range(len(written)):
        try:
            _, at = read(written[:end], 0)
        except READ_FAILURES:
            continue
        assert at != end  # nor would the codec take it: a value ends where its payload does


def _float_near(a: Any, b: Any) -> bool:
    """Equal, but for the rounding to 32 bits that promotions to float may and need not do."""
    if isinstance(a, float) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-6) or a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_float_near, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_float_near(a[k], b[k]) for k in a)
    return bool(a == b)


@settings(_RELAXED, max_examples=4 * _RELAXED.max_examples)
@given(st.data(), records())
def test_what_the_checker_accepts_decodes_as_fastavro_resolves(data: st.DataObject, definition: Any) -> None:
    reader_definition = data.draw(readers(definition))
    writer, reader = parse_tree(definition), parse_tree(reader_definition)
    payload = compile_writer(writer, NATIVE)(data.draw(values(definition)))
    if mismatch(reader, writer):
        return
    try:
        value, end = compile_reader(writer, reader, NATIVE)(payload, 0)
    except UnicodeDecodeError:
        return  # bytes promoted to a string that they are not
    assert end == len(payload)
    if _has_choice(reader_definition) or _has_choice(definition):
        return  # fastavro takes another branch of the reader's union, or none
    try:
        theirs = fastavro.schemaless_reader(
            io.BytesIO(payload), fastavro.parse_schema(definition), fastavro.parse_schema(reader_definition)
        )
    except UnicodeDecodeError:
        return
    assert _float_near(value, theirs)


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def test_endless_nesting_ends_no_process(size: int) -> None:
    kind = parse_tree({"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]})
    with pytest.raises(RecursionError):
        compile_reader(kind, kind, PLAIN)(b"\x02" * size, 0)


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "E", "fields": []}])
def test_items_of_nothing_are_bounded(items: Any) -> None:
    kind = parse_tree({"type": "array", "items": items})
    with pytest.raises(ValueError, match="too many"):
        compile_reader(kind, kind, PLAIN)(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\0", 0)


def test_blocks_with_sizes_are_read() -> None:
    kind = parse_tree({"type": "array", "items": "long"})
    # two items in 2 bytes, told beforehand (count negative), then one more, then the end
    assert compile_reader(kind, kind, PLAIN)(b"\x03\x04\x02\x04\x02\x06\x00", 0) == ([1, 2, 3], 7)


def test_a_default_is_new_for_every_value() -> None:
    writer = parse_tree({"type": "record", "name": "R", "fields": []})
    reader = parse_tree(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "l", "type": {"type": "array", "items": "int"}, "default": []}],
        }
    )
    read = compile_reader(writer, reader, PLAIN)
    first = read(b"", 0)[0]
    first["l"].append(1)
    assert read(b"", 0)[0] == {"l": []}


def test_one_field_may_become_two() -> None:
    writer = parse_tree({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    reader = parse_tree(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "y", "type": "long", "aliases": ["x"]},
                {"name": "z", "type": "double", "aliases": ["x"]},
            ],
        }
    )
    assert compile_reader(writer, reader, PLAIN)(b"\x06", 0) == ({"y": 3, "z": 3.0}, 1)


def test_no_definition_writes_code() -> None:
    kind = parse_tree({"type": "enum", "name": "E", "symbols": ["A"]})
    assert "__import__" not in repr(compile_writer(kind, PLAIN)("A"))
    weird = {"type": "record", "name": "R", "fields": [{"name": "class", "type": "int", "default": 1}]}
    kind = parse_tree(weird)
    assert compile_writer(kind, PLAIN)({"class": 2}) == b"\x04"
    assert compile_reader(kind, kind, PLAIN)(b"\x04", 0) == ({"class": 2}, 1)
