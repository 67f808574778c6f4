"""What a producer promises when nobody waits for its answer."""

import asyncio

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.message import OutMessage
from penstock.model.policy import ProducerOptions
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import settle


class SlowStore(MemoryStore):
    """Appends take place at once and are answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[tuple[asyncio.Future[AppendResult], asyncio.Future[AppendResult]]] = []

    def append(self, ledger: int, entries: list[NewEntry]) -> asyncio.Future[AppendResult]:  # type: ignore[override]
        done = super().append(ledger, entries)
        answer: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.answers.append((answer, done))
        return answer

    def answer(self) -> None:
        for answer, done in self.answers:
            answer.set_result(done.result())
        self.answers.clear()


async def test_a_publish_that_is_cancelled_is_stored_once_and_followed() -> None:
    """The requester goes while the commit runs: the message is there, and its repeat is a repeat."""
    store = SlowStore()
    async with bench(BrokerSettings(deduplication=True), store=store) as b:
        consumer = await b.consumer()
        producer = await b.broker.producer(TOPIC, ProducerOptions(name="p"))
        task = Tasks().spawn(producer.publish([OutMessage(payload=b"x", sequence_id=0)]), "publish")
        await settle()
        task.cancel()
        await settle()
        assert not task.done()
        store.answer()
        await settle()
        assert task.cancelled()
        assert await b.payloads(consumer) == [b"x"]
        await producer.publish([OutMessage(payload=b"x", sequence_id=0)])
        assert producer.topics[0].next_offset == 1


async def test_a_timeout_round_a_publish_is_still_a_timeout() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        producer = await b.broker.producer(TOPIC)
        asyncio.get_running_loop().call_later(0.02, store.answer)

        async def in_vain() -> None:
            async with asyncio.timeout(0.001):
                await producer.publish([OutMessage(payload=b"x")])
                await asyncio.sleep(10)  # is cancelled at once

        with pytest.raises(TimeoutError):
            await in_vain()
        assert producer.topics[0].next_offset == 1
