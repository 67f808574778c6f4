"""Rates of a topic: what may go now, and when the next may."""

import pytest

from penstock.model.policy import TopicRate
from penstock.runtime.throttle import Throttle
from penstock.testing.clock import ManualClock


def test_a_period_s_share_goes_at_once_and_comes_back_with_time() -> None:
    clock = ManualClock()
    throttle = Throttle(TopicRate(messages=10, period_s=2), clock)
    throttle.take(10, 1_000_000)
    assert throttle.wait_ms() > 0
    clock.turn(throttle.wait_ms())
    assert throttle.wait_ms() == 0
    throttle.take(1, 0)
    clock.turn(100_000)
    throttle.take(10, 0)  # no more than a period's share was saved up
    assert throttle.wait_ms() > 0


def test_who_overdraws_makes_the_next_wait_as_long_as_it_costs() -> None:
    clock = ManualClock()
    throttle = Throttle(TopicRate(bytes=1000), clock)
    throttle.take(1, 5000)
    assert throttle.wait_ms() == pytest.approx(4000, abs=2)
    clock.turn(3900)
    assert throttle.wait_ms() == pytest.approx(100, abs=3)
    clock.turn(throttle.wait_ms())
    assert throttle.wait_ms() == 0


def test_both_bounds_hold() -> None:
    clock = ManualClock()
    throttle = Throttle(TopicRate(messages=100, bytes=1000), clock)
    throttle.take(1, 3000)
    assert throttle.wait_ms() == pytest.approx(2000, abs=2)
    throttle.take(499, 0)
    assert throttle.wait_ms() == pytest.approx(4000, abs=2)


@pytest.mark.parametrize(
    ("rate", "bounded"),
    [(TopicRate(), False), (TopicRate(0, 0), False), (TopicRate(1), True), (TopicRate(bytes=1), True)],
)
def test_what_bounds_nothing(rate: TopicRate, bounded: bool) -> None:
    assert rate.bounded is bounded
