import asyncio

import msgspec

from penstock.protocols.backlog import Backlog
from penstock.testing.clock import settle


class Item(msgspec.Struct):
    size: int = 1
    arrived_ms: int = 0


async def test_everything_that_waits_is_taken_at_once_in_order() -> None:
    backlog: Backlog[Item] = Backlog(10, 100)
    items = [Item() for _ in range(5)]
    for item in items:
        backlog.add(item)
    assert await backlog.take(3) == items[:3]
    assert await backlog.take() == items[3:]


async def test_taking_waits_for_the_first() -> None:
    backlog: Backlog[Item] = Backlog(10, 100)
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(backlog.take())
        await settle()
        assert not taking.done()
        backlog.add(Item())
    assert len(taking.result()) == 1


async def test_number_and_bytes_bound_it() -> None:
    for backlog, fits in ((Backlog[Item](2, 1000), 2), (Backlog[Item](1000, 50), 5)):
        for _ in range(fits):
            assert not backlog.full
            backlog.add(Item(10))
        assert backlog.full
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(backlog.room())
            await settle()
            assert not waiting.done()
            await backlog.take(1)
            await settle()
            assert waiting.done()


async def test_once_closed_the_rest_is_taken_and_then_nothing() -> None:
    backlog: Backlog[Item] = Backlog(10, 100)
    backlog.add(Item())
    backlog.close()
    assert len(await backlog.take()) == 1
    assert await backlog.take() == []


async def test_what_came_too_long_ago_is_taken_out() -> None:
    backlog: Backlog[Item] = Backlog(3, 100)
    assert backlog.oldest_ms is None
    items = [Item(10, at) for at in (1, 5, 9)]
    for item in items:
        backlog.add(item)
    assert backlog.oldest_ms == 1
    assert backlog.expire(5) == items[:2]
    assert not backlog.full
    assert backlog.expire(5) == []
    assert await backlog.take() == items[2:]
