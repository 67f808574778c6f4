"""Varints, one at a time and many."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message_id import read_positive, read_varint, run_varints, varint, varints

RUNS = st.tuples(
    st.integers(0, 300) | st.integers(2**14 - 200, 2**14 + 200) | st.integers(0, 2**62), st.integers(0, 300)
)


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_varint_round_trip(value: int, rest: bytes) -> None:
    data = varint(value)
    assert read_varint(data + rest, 0) == (value, len(data))
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="varint"):
            read_varint(data[:cut], 0)


def test_a_varint_of_eleven_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="varint"):
        read_varint(b"\xff" * 10 + b"\x01", 0)


@given(st.integers(0, 2**64 - 1) | st.integers(0, 2**21), st.binary(max_size=3))
def test_a_positive_number_reads_the_same(value: int, rest: bytes) -> None:
    data = varint(value) + rest
    if value < 2**63:
        assert read_positive(data, 0) == read_varint(data, 0)
    else:
        with pytest.raises(ValueError, match="not for here"):
            read_positive(data, 0)


@given(st.binary(max_size=12))
def test_any_bytes_read_the_same_or_not_at_all(data: bytes) -> None:
    try:
        found = read_positive(data, 0)
    except (IndexError, ValueError):
        return
    assert found == read_varint(data, 0)


@given(RUNS)
def test_varints_of_a_run(run: tuple[int, int]) -> None:
    first, count = run
    assert run_varints(first, count) == [varint(first + at) for at in range(count)]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 300), max_size=20))
def test_varints_of_many(numbers: list[int]) -> None:
    assert varints(numbers) == [varint(number) for number in numbers]
