"""Counts by bucket."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.statistics import Histogram


def test_a_value_on_a_bound_is_below_it() -> None:
    histogram = Histogram((1, 5))
    for value in (0, 1, 1.5, 5, 9):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.total == 16.5


@given(st.lists(st.floats(0, 100)), st.lists(st.floats(0, 100)))
def test_sums_count_what_both_counted(one: list[float], other: list[float]) -> None:
    bounds = (1.0, 10.0, 50.0)
    both, first, second = Histogram(bounds), Histogram(bounds), Histogram(bounds)
    for value in one:
        first.observe(value)
        both.observe(value)
    for value in other:
        second.observe(value)
        both.observe(value)
    first.add(second)
    assert first.counts == both.counts
    assert both.count == len(one) + len(other)
