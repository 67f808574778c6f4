from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.source.offsets import Range
from penstock.pipeline.source.tasks import split

ranges = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 10**9), st.integers(1, 10**6)),
    unique_by=lambda r: r[0],
    max_size=6,
).map(lambda items: [Range("t", number, True, number, start, start + size) for number, start, size in items])


@given(ranges, st.integers(5_000, 10**6), st.integers(1, 300))
def test_pieces_cover_the_ranges_exactly(several: list[Range], rows_max: int, pieces_min: int) -> None:
    pieces = split(several, rows_max=rows_max, pieces_min=pieces_min)
    assert all(0 < piece.size <= rows_max for piece in pieces)
    assert len(pieces) >= min(pieces_min, sum(each.size for each in several))
    for each in several:
        own = [piece for piece in pieces if piece.partition == each.partition]
        assert own[0].start == each.start
        assert own[-1].end == each.end
        assert all(a.end == b.start for a, b in pairwise(own))
        assert max(piece.size for piece in own) - min(piece.size for piece in own) <= 1
    assert split(several, rows_max=rows_max, pieces_min=pieces_min) == pieces


def test_nothing_to_read() -> None:
    assert split([], rows_max=10, pieces_min=4) == []
