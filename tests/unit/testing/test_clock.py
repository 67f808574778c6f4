"""The clock of tests that runs and can be put forward."""

import asyncio

from penstock.testing.clock import AdvancingClock

HOUR_MS = 3_600_000


async def test_what_is_due_happens_in_its_order_and_nothing_else() -> None:
    clock, called = AdvancingClock(), list[str]()
    clock.call_later(3 * HOUR_MS, lambda: called.append("late"))
    clock.call_later(2 * HOUR_MS, lambda: called.append("second"))
    clock.call_later(HOUR_MS, lambda: called.append("first"))
    clock.call_later(HOUR_MS, lambda: called.append("cancelled")).cancel()
    wall, monotonic = clock.now_ms(), clock.monotonic_ms()
    await clock.advance(2 * HOUR_MS)
    assert called == ["first", "second"]
    assert clock.now_ms() - wall >= 2 * HOUR_MS
    assert clock.monotonic_ms() - monotonic >= 2 * HOUR_MS
    await clock.advance(HOUR_MS)
    assert called == ["first", "second", "late"]


async def test_it_runs_by_itself_too() -> None:
    clock, called = AdvancingClock(), asyncio.Event()
    clock.call_later(1, called.set)
    await called.wait()


async def test_what_a_callback_sets_counts_from_its_own_time() -> None:
    clock, called = AdvancingClock(), list[str]()
    clock.call_later(HOUR_MS, lambda: clock.call_later(HOUR_MS, lambda: called.append("next")))
    await clock.advance(HOUR_MS)
    assert called == []
    await clock.advance(HOUR_MS)
    assert called == ["next"]
