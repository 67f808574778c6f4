"""One timer for many deadlines, in memory that follows what is still wanted."""

import pytest

from penstock.runtime.clock import SWEEP_MIN, Timers
from penstock.testing.clock import ManualClock


async def test_deadlines_fire_in_their_order() -> None:
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)
    for due in (30, 10, 20):
        timers.at(clock.monotonic_ms() + due, seen.append, due)
    await clock.advance(20)
    assert seen == [10, 20]
    assert len(timers) == 1


async def test_what_is_no_longer_wanted_does_not_pile_up() -> None:
    clock, wanted, seen = ManualClock(), {5}, list[int]()
    timers = Timers(clock, wanted.__contains__)
    for number in range(10 * SWEEP_MIN):
        timers.at(clock.monotonic_ms() + 1000, seen.append, number)
    assert len(timers) <= SWEEP_MIN + 1
    await clock.advance(1000)
    assert 5 in seen


async def test_a_call_that_fails_is_not_the_end_of_the_others() -> None:
    clock, seen = ManualClock(), list[int]()
    timers = Timers(clock)

    def fail(number: int) -> None:
        raise ValueError(number)

    timers.at(10, fail, 0)
    timers.at(10, seen.append, 1)
    timers.at(20, seen.append, 2)
    with pytest.raises(ValueError, match="0"):
        clock.turn(10)
    await clock.advance(10)
    assert seen == [1, 2]
