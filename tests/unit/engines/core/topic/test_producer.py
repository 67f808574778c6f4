"""What a producer promises when nobody waits for its answer."""

import asyncio

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.settings import BrokerSettings
from penstock.engines.memory import MemoryStore
from penstock.model.entry import AppendResult, NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
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


SEQUENCE_ID_MAX = 2**63 - 1


@pytest.mark.parametrize("deduplication", [False, True])
async def test_no_sequence_id_of_one_producer_keeps_others_of_its_name_from_publishing(
    deduplication: bool,
) -> None:
    shared = ProducerOptions(name="x", shared_name=True)
    async with bench(BrokerSettings(deduplication=deduplication)) as b:
        one, other = await b.broker.producer(TOPIC, shared), await b.broker.producer(TOPIC, shared)
        (first,) = await other.publish([OutMessage(payload=b"a", sequence_id=SEQUENCE_ID_MAX)])
        again = ProducerOptions(name="x", shared_name=True, initial_sequence_id=SEQUENCE_ID_MAX)
        starting = await b.broker.producer(TOPIC, again)
        consumer = await b.consumer()
        assert isinstance(first, MessageId)
        for producer in (one, other, starting, await b.broker.producer(TOPIC, shared)):
            plain = await producer.publish_plain([b"b"], None)
            results = await producer.publish([OutMessage(payload=b"c"), OutMessage(payload=b"d")])
            each = await producer.publish([OutMessage(payload=b"e")], batch=False)
            assert plain
            assert all(isinstance(one, MessageId) for one in results + each)
        assert await b.payloads(consumer) == [b"a", *[b"b", b"c", b"d", b"e"] * 4]


async def test_the_first_sequence_id_of_a_producer_is_its_own_business() -> None:
    async with bench() as b:
        consumer = await b.consumer()
        one = await b.broker.producer(TOPIC, ProducerOptions(name="x", shared_name=True))
        starting = ProducerOptions(name="x", shared_name=True, initial_sequence_id=100)
        other = await b.broker.producer(TOPIC, starting)
        for producer in (one, other, one):
            await producer.publish([OutMessage(payload=b"x")])
        assert [message.sequence_id for _, message, _ in await b.taken(consumer)] == [0, 101, 1]


async def test_producers_that_do_not_share_the_name_number_for_themselves() -> None:
    """Nor does one that is refused raise the numbers of those that are there."""
    async with bench() as b:
        consumer = await b.consumer()
        unnamed = await b.broker.producer(TOPIC)
        taker = await b.broker.producer(TOPIC, ProducerOptions(name=unnamed.name, shared_name=True))
        with pytest.raises(PenstockError) as refused:
            await b.broker.producer(TOPIC, ProducerOptions(name=unnamed.name, initial_sequence_id=100))
        assert refused.value.kind is ErrorKind.PRODUCER_BUSY
        await taker.publish([OutMessage(payload=b"x", sequence_id=1000)])
        await unnamed.publish([OutMessage(payload=b"x")])
        assert [message.sequence_id for _, message, _ in await b.taken(consumer)] == [1000, 0]
