"""Rates of a role: what is refused, what waits, for how long; by a clock that the test turns."""

import asyncio

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols import rates
from penstock.protocols.rates import PAUSE_MS_MAX, Rates, RoleRates
from penstock.testing.clock import ManualClock, settle


def entered(allowance: rates.Allowance, tries: int) -> int:
    """How many of so many requests in a row are let in."""
    let_in = 0
    for _ in range(tries):
        try:
            allowance.enter()
        except PenstockError:
            continue
        let_in += 1
    return let_in


@pytest.mark.parametrize("rate", [1, 3, 7, 10, 1000])
def test_requests_of_a_second(rate: int) -> None:
    clock = ManualClock()
    allowance = Rates(clock, rate, 0, {}).of("shop")
    assert allowance is not None
    assert entered(allowance, 2 * rate + 5) == rate
    clock.turn(500)
    assert entered(allowance, 2 * rate) == rate // 2
    clock.turn(60_000)  # who was silent for a minute has a second's worth, not a minute's
    assert entered(allowance, 2 * rate + 5) == rate
    total = 0
    for _ in range(100):
        clock.turn(100)
        total += entered(allowance, rate)
    assert abs(total - 10 * rate) <= 1


def test_the_time_told_is_when_it_is_welcome() -> None:
    clock = ManualClock()
    allowance = Rates(clock, 10, 1000, {}).of("shop")
    assert allowance is not None
    allowance.enter()
    allowance.take(0, 5500)  # a large body, and its answer
    with pytest.raises(PenstockError, match=r"role 'shop' has limits.max_bytes_per_s = 1000") as caught:
        allowance.enter()
    assert caught.value.kind is ErrorKind.TOO_MANY_REQUESTS
    assert caught.value.retry_after_s == 5  # 4.5 s, one of the 5.5 having been due before
    clock.turn(4499)
    with pytest.raises(PenstockError) as caught:
        allowance.enter()
    assert caught.value.retry_after_s == 1
    clock.turn(1)
    allowance.enter()


def test_a_refusal_costs_nothing() -> None:
    clock = ManualClock()
    allowance = Rates(clock, 2, 0, {}).of("shop")
    assert allowance is not None
    assert entered(allowance, 1000) == 2
    clock.turn(1000)
    assert entered(allowance, 1000) == 2


async def test_who_cannot_be_refused_waits() -> None:
    clock = ManualClock()
    allowance = Rates(clock, 0, 1000, {}).of("shop")
    assert allowance is not None
    await allowance.spend(5, 1000)  # the first second's
    waiting = asyncio.get_running_loop().create_task(allowance.spend(1, 500))
    await settle()
    await clock.advance(499)
    assert not waiting.done()
    await clock.advance(1)
    assert waiting.done()


def test_nobody_waits_for_as_long_as_a_lost_connection_does() -> None:
    allowance = Rates(ManualClock(), 0, 10, {}).of("shop")
    assert allowance is not None
    assert allowance.take(0, 10**9) == PAUSE_MS_MAX


def test_roles_have_their_own() -> None:
    roles = {"spark": RoleRates(max_requests_per_s=0), "slow": RoleRates(max_bytes_per_s=1)}
    made = Rates(ManualClock(), 5, 0, roles)
    assert made.of("spark") is None
    shop, bank, slow = made.of("shop"), made.of("bank"), made.of("slow")
    assert shop is not None
    assert bank is not None
    assert slow is not None
    assert entered(shop, 10) == 5
    assert entered(bank, 10) == 5  # one's haste is not another's
    assert slow.take(0, 3) == 2000
    assert made.of("shop") is shop


def test_memory_does_not_grow_with_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "KNOWN_MAX", 10)
    clock = ManualClock()
    made = Rates(clock, 1, 0, {})
    made._sweep_at = 10
    kept = made.of("a connection's")
    owing = made.of("owing")
    assert kept is not None
    assert owing is not None
    owing.enter()
    del owing
    for number in range(1000):
        assert made.of(f"10.0.0.{number}") is not None
    assert len(made._recent) <= 20
    assert made.of("a connection's") is kept
    again = made.of("owing")
    assert again is not None
    assert entered(again, 1) == 0  # it was not forgotten
