"""What a principal may hold: most of the room alone, less beside others, and what follows for those who wait."""

import asyncio

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.holding import Holding
from penstock.protocols.load import Load
from penstock.testing.clock import settle

MAX = 64_000


def loads(share: float = 0.75) -> Load:
    return Load(100, 100, MAX, share)


def taken(load: Load, address: str, piece: int = 100) -> int:
    """How much an address gets, in pieces."""
    holding = Holding(load, address)
    while holding.reserve(piece):
        pass
    return holding.unwritten


@pytest.mark.parametrize(("share", "most"), [(0.5, 32_000), (0.75, 48_000), (1, MAX)])
def test_one_alone_has_most_of_it(share: float, most: int) -> None:
    assert taken(loads(share), "a") == pytest.approx(most, abs=100)


def test_who_comes_later_finds_room() -> None:
    load = loads()
    had = [taken(load, f"10.0.0.{number}") for number in range(5)]
    assert all(had)
    assert load.free > 0
    assert not Holding(load, "somebody else").over


def test_connections_of_one_address_have_one_share() -> None:
    load = loads()
    first, second = Holding(load, "a"), Holding(load, "a")
    first.receive(40_000)
    assert not second.over
    second.receive(20_000)
    assert first.over
    assert second.over
    assert not Holding(load, "b").over
    kind, why = first.refuse()
    assert kind is ErrorKind.TOO_MANY_REQUESTS
    assert "a has its share (limits.max_bytes_in_flight_share = 0.75)" in why
    assert (load.refused_share, load.refused_full) == (1, 0)


def test_beyond_the_bound_of_all() -> None:
    load = loads()
    first, small = Holding(load, "a"), Holding(load, "b")
    first.receive(MAX + 1)
    small.receive(10)
    assert not small.over  # it holds next to nothing
    first.receive(MAX // 5)
    assert small.over
    assert small.refuse()[0] is ErrorKind.UNAVAILABLE


def test_a_role_takes_over_what_its_connection_held() -> None:
    load = loads()
    holding, others = Holding(load, "a"), Holding(load, "a")
    holding.receive(60_000)
    assert others.over
    holding.belong("spark")
    assert holding.over
    assert not others.over
    holding.close()
    others.close()
    assert (load.held, load.unwritten, load.principals) == (0, 0, 0)


async def test_who_waits_goes_on_in_order() -> None:
    load = loads()
    full, first, second = Holding(load, "a"), Holding(load, "a"), Holding(load, "a")
    full.send(45_000)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(first.reserved(8000))
        later = group.create_task(second.reserved(1000))
        await settle(10)
        assert not waiting.done()
        assert not later.done()  # though there is room for it
        full.send(-45_000)
    assert (first.unwritten, second.unwritten, load.unwritten) == (8000, 1000, 9000)
    assert load.slowed == 2


async def test_who_waits_and_goes_away_holds_nothing() -> None:
    load = loads()
    full, first, second = Holding(load, "a"), Holding(load, "a"), Holding(load, "a")
    full.send(45_000)
    waiting = asyncio.get_running_loop().create_task(first.reserved(8000))
    gone = asyncio.get_running_loop().create_task(second.reserved(8000))
    await settle(10)
    gone.cancel()
    first.close()  # its connection is lost
    await settle(10)
    assert waiting.done()
    full.close()
    second.close()
    assert (load.held, load.unwritten, load.principals) == (0, 0, 0)


async def test_many_that_wait_and_go_away_at_once_are_not_counted_for_a_moment() -> None:
    load = loads()
    full, canary = Holding(load, "a"), Holding(load, "b")
    full.send(48_000)
    many = [Holding(load, "a") for _ in range(20)]
    async with asyncio.TaskGroup() as group:
        for one in many:
            group.create_task(one.reserved(8000))
        await settle(10)
        for one in many:
            one.close()
            assert load.unwritten == 48_000
            assert not canary.over
    full.close()
    canary.close()
    assert (load.held, load.unwritten, load.principals) == (0, 0, 0)


async def test_a_request_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.protocols.holding.ROOM_S", 0.01)
    load = loads()
    Holding(load, "a").send(48_000)
    with pytest.raises(PenstockError, match="max_bytes_in_flight_share"):
        await Holding(load, "a").reserved_soon(8000)
    await Holding(load, "b").reserved_soon(1000)


async def test_a_single_piece_larger_than_the_bound_goes_through() -> None:
    load = loads()
    holding = Holding(load, "a")
    await holding.reserved(10 * MAX)
    assert not holding.reserve(1)
    holding.send(-10 * MAX)
    assert holding.reserve(1)
