"""Long work lets the loop serve others: a list of many topics by a pattern that takes long."""

import asyncio
from itertools import count

import pytest
from tests.unit.engines.core.brokers import bench

from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions
from penstock.runtime import tasks

pytestmark = pytest.mark.anyio

TOPICS = 100


async def test_others_have_their_turn_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a slice whenever it is read: as if each name took that long."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with bench() as made:
        for number in range(TOPICS):
            await made.broker.topics.create(TopicName.parse(f"topic-{number}"), 0)
        ticks = count()
        monkeypatch.setattr(tasks, "monotonic", lambda: next(ticks) * tasks.SLICE_S)
        working = asyncio.get_running_loop().create_task(other())
        await asyncio.sleep(0)
        turns = 0
        consumer = await made.broker.subscribe_pattern(
            "public/default/none-.*",
            "s",
            ConsumerOptions(),
            namespace=TopicName.parse("t").namespace_name,
        )
        working.cancel()
        assert turns >= TOPICS // 2
        await consumer.leave()


async def test_short_work_goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "monotonic", lambda: 0.0)
    made = tasks.Slices()
    for _ in range(1000):
        step = made.step()
        with pytest.raises(StopIteration):  # it is done without waiting
            step.send(None)
