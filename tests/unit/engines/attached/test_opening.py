"""How many consumers a process opens at the same time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import pytest

from penstock.engines.attached import consumers as module
from penstock.engines.attached.consumers import OPENING_MAX, AttachedConsumers
from penstock.model.policy import ConsumerOptions
from penstock.runtime.tasks import Tasks

COUNT: Final = 3 * OPENING_MAX


class Consumer:
    """It opens when the test says so."""

    opening: ClassVar[int]
    opened: ClassVar[int]
    owner: ClassVar[asyncio.Event]

    def __init__(self, *parts: object, **more: object) -> None:
        """Nothing is kept."""

    async def open(self, **options: object) -> None:
        Consumer.opening += 1
        await Consumer.owner.wait()
        Consumer.opening -= 1
        Consumer.opened += 1


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    Consumer.opening = Consumer.opened = 0
    Consumer.owner = asyncio.Event()
    made = Tasks()
    yield made
    await made.close()


def subscribe(tasks: Tasks) -> None:
    unused: Any = None
    kind: Any = Consumer
    attached = AttachedConsumers(
        unused, unused, unused, tasks, unused, unused, new_name=str, give_reply=None, kind=kind
    )
    for _ in range(COUNT):
        tasks.spawn(attached.subscribe(unused, (), "s", ConsumerOptions()), "subscribe")


async def settle() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_few_consumers_open_at_the_same_time(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPENING_WAIT_S", 600.0)
    subscribe(tasks)
    await settle()
    assert Consumer.opening == OPENING_MAX
    Consumer.owner.set()
    await settle()
    assert Consumer.opened == COUNT


async def test_consumers_that_wait_for_an_owner_do_not_hold_up_the_others(
    tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPENING_WAIT_S", 0.0)
    subscribe(tasks)
    await settle()
    assert Consumer.opening == COUNT
    Consumer.owner.set()
    await settle()
    assert Consumer.opened == COUNT
