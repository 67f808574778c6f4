"""Objects of a body that is cut anywhere."""

import json
import tracemalloc
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.confluent.proxy.v3.json_values import (
    BrokenJsonError,
    JsonValues,
    ShapeError,
    TooLongError,
)

ANY = msgspec.json.Decoder(dict[str, Any])

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ['"', "\\", '\\"', "{", "}}", "[", "\n", '{"a": 1}', "\u2028", "é\\u0000"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)


def spelled(draw: st.DrawFn, value: Any) -> str:
    """A value as one of the texts that it may have."""
    return json.dumps(
        value,
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, None, 1])),
        separators=draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " :\r\n")])),
    )


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[Any], bytes]:
    objects = draw(st.lists(OBJECTS, max_size=6))
    body = draw(st.sampled_from(["", " ", "\n"]))
    for one in objects:
        body += spelled(draw, one) + draw(st.sampled_from(["", "\n", "\r\n", " ", "\n\n \t"]))
    return objects, body.encode()


def pieces(body: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[start:end] for start, end in pairwise(places)]


def feed(values: JsonValues[Any], *parts: bytes) -> list[Any]:
    return [value for part in parts for value, _ in values.feed(part)]


@given(bodies(), st.lists(st.integers(0, 10_000), max_size=12))
def test_every_cut_gives_the_same_values(made: tuple[list[Any], bytes], cuts: list[int]) -> None:
    objects, body = made
    values = JsonValues(ANY, 1 << 20)
    assert feed(values, *pieces(body, cuts)) == objects
    assert values.complete


@given(bodies())
def test_every_byte_by_itself_gives_the_same_values(made: tuple[list[Any], bytes]) -> None:
    objects, body = made
    values = JsonValues(ANY, 1 << 20)
    assert feed(values, *(bytes([byte]) for byte in body)) == objects


@given(bodies(), st.lists(st.integers(0, 10_000), max_size=4))
def test_sizes_are_those_of_the_values(made: tuple[list[Any], bytes], cuts: list[int]) -> None:
    _, body = made
    values = JsonValues(ANY, 1 << 20)
    sizes = [size for piece in pieces(body, cuts) for _, size in values.feed(piece)]
    assert sum(sizes) <= len(body)
    assert all(size >= 2 for size in sizes)


@pytest.mark.parametrize(
    "body", [b"1", b'"a"', b"[1]", b"]", b"nul", b"{]}", b'{"a"}', b"{'a': 1}", b'{"a": \xff}']
)
def test_what_is_no_object_is_broken_wherever_it_is_cut(body: bytes) -> None:
    for cut in range(len(body) + 1):
        values = JsonValues(ANY, 1 << 20)
        with pytest.raises(BrokenJsonError):
            feed(values, b'{"a": 1}\n' + body[:cut], body[cut:] + b"}", b" ")


def test_what_precedes_something_broken_is_read_first() -> None:
    found = JsonValues(ANY, 1 << 20).feed(b'{"a": 1} {"b": 2} x {"c": 3}')
    assert [next(found)[0], next(found)[0]] == [{"a": 1}, {"b": 2}]
    with pytest.raises(BrokenJsonError, match="b'x'"):
        next(found)


def test_values_are_decoded_when_they_are_asked_for() -> None:
    """So that a part of many small ones does not take memory for all of them at once."""
    decoded: list[bytes] = []

    class Decoder:
        def decode(self, text: bytes) -> Any:
            decoded.append(text)
            return ANY.decode(text)

    found = JsonValues(cast(Any, Decoder()), 1 << 20).feed(b"{}" * 1000)
    assert [next(found), next(found)] == [({}, 2)] * 2
    assert decoded[-2:] == [b"{}", b"{}"]
    assert len(decoded) <= 3  # that it is not alone on its line is known once


def test_a_value_of_another_shape_is_followed_by_the_next() -> None:
    class Shape(msgspec.Struct):
        a: int

    values = JsonValues(msgspec.json.Decoder(Shape), 1 << 20)
    found = [value for value, _ in values.feed(b'{"a": "x", "b": {\n}} {"a": 1}\n{}\n{"a": 2}')]
    assert [type(value) for value in found] == [ShapeError, Shape, ShapeError, Shape]


def test_a_value_that_is_nested_too_deeply_is_followed_by_the_next() -> None:
    values = JsonValues(ANY, 1 << 20)
    deep = b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    found = [value for value, _ in values.feed(deep + b'{"a": 1}')]
    assert isinstance(found[0], ShapeError)
    assert found[1:] == [{"a": 1}]


@pytest.mark.parametrize("end", [b"", b"\n", b"}"])
def test_a_value_that_is_too_long_ends_it(end: bytes) -> None:
    values = JsonValues(ANY, 100)
    assert feed(values, b'{"a": "' + b"x" * 80 + b'"}') != []
    with pytest.raises(TooLongError):
        feed(values, b'{"a": "' + b"x" * 100 + b'"}' + end)
    with pytest.raises(TooLongError):
        feed(JsonValues(ANY, 100), b'{"a":"', *[b"x" * 10] * 12)


def test_half_a_value_is_known() -> None:
    values = JsonValues(ANY, 100)
    assert feed(values, b'{"a": "\\') == []
    assert not values.complete
    assert list(values.feed(b'""}')) == [({"a": '"'}, 11)]
    assert values.complete


def test_a_value_in_many_small_parts_takes_little_more_than_its_bytes() -> None:
    values = JsonValues(ANY, 1 << 20)
    tracemalloc.start()
    try:
        assert feed(values, b'{"a": "') == []
        for number in range(50_000):
            assert list(values.feed(b"%02d" % (number % 100))) == []
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert values.size == 100_007
    assert held < 2 * values.size
