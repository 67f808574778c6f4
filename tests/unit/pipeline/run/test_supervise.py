from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.run.supervise import FIRST_S, HEALTHY_S, MOST_S, Backoff


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_waits_grow_to_a_cap_and_never_vanish(dice: list[float]) -> None:
    rolls = iter(dice)
    backoff = Backoff(lambda: next(rolls))
    for failure in range(len(dice)):
        most = min(MOST_S, FIRST_S * 2**failure)
        assert most / 2 <= backoff.next_s(0.0) <= most


def test_health_begins_anew() -> None:
    backoff = Backoff(lambda: 1.0)
    assert [backoff.next_s(1.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert backoff.next_s(HEALTHY_S) == FIRST_S
    assert backoff.next_s(1.0) == 2
