from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.run.redrive import merged


@given(st.lists(st.sets(st.integers(0, 60))))
def test_offsets_become_as_few_ranges_as_there_can_be(rounds: list[set[int]]) -> None:
    done: dict[int, list[tuple[int, int]]] = {}
    for offsets in rounds:
        done = merged(done, [(0, offset) for offset in offsets])
    held = [offset for start, end in done.get(0, []) for offset in range(start, end)]
    assert held == sorted(set().union(*rounds))
    ranges = done.get(0, [])
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
