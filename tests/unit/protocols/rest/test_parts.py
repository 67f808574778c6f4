"""How many messages an answer has room for."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.rest.parts import Bounds


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(1, 40),
)
def test_messages_are_taken_one_by_one(
    parts: list[list[int]], messages_max: int | None, bytes_max: int | None
) -> None:
    bounds = Bounds(messages_max, bytes_max)
    count = size = 0
    full = False
    for sizes in parts:
        expected = 0
        for one in sizes:
            if full or (count and bytes_max is not None and size + one > bytes_max):
                full = True
                break
            expected += 1
            count += 1
            size += one
            full = count == messages_max or (bytes_max is not None and size >= bytes_max)
        assert bounds.take(sizes) == expected
        assert (bounds.count, bounds.size, bounds.full) == (count, size, full)
