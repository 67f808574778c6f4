"""Avro's integers, by the specification's words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.codec.avro.varint import encode_long, read_more

EDGES = [sign * 2**bits + near for bits in range(63) for sign in (1, -1) for near in (-1, 0, 1)]


def plainly(value: int) -> bytes:
    n = value << 1 if value >= 0 else -(value << 1) - 1
    out = []
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def check(value: int) -> None:
    encoded = encode_long(value)
    assert encoded == plainly(value)
    n, end = (encoded[0], 1) if encoded[0] < 128 else read_more(encoded, 1, encoded[0])
    assert (n >> 1 ^ -(n & 1), end) == (value, len(encoded))


@pytest.mark.parametrize("value", [*EDGES, 2**63 - 1, -(2**63)])
def test_edges(value: int) -> None:
    check(value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_any(value: int) -> None:
    check(value)
