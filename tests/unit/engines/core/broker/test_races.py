"""What happens while the store is at work: a topic is deleted, grows, a consumer goes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.engines.core.ports import CursorChange
from penstock.engines.memory import MemoryStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import settle

T = TypeVar("T")
SHARED = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST)


def start(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)


class SlowStore(MemoryStore):
    """Deletes logs and saves cursors only while the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.open_gate = asyncio.Event()
        self.open_gate.set()

    def delete(self, ledger: int) -> asyncio.Future[None]:
        return start(self._later(lambda: super(SlowStore, self).delete(ledger)))

    def save_cursors(self, changes: Sequence[CursorChange]) -> asyncio.Future[None]:
        return start(self._later(lambda: super(SlowStore, self).save_cursors(changes)))

    async def _later(self, work: Callable[[], Awaitable[None]]) -> None:
        await self.open_gate.wait()
        await work()


async def test_who_comes_while_a_topic_is_deleted_gets_a_new_one() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        await b.publish(b"old")
        store.open_gate.clear()
        deleting = start(b.broker.administration.delete_topic(TOPIC))
        await settle()
        publishing = start(b.publish(b"new"))
        await settle()
        assert not publishing.done()
        store.open_gate.set()
        await deleting
        await publishing
        assert await b.payloads(await b.consumer()) == [b"new"]
        assert b.broker.topics.exists(TOPIC)
        await b.broker.administration.delete_topic(TOPIC, force=True)
        assert not b.broker.topics.exists(TOPIC)


async def test_partitions_grow_one_after_the_other() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 2)
        results = await asyncio.gather(
            b.broker.topics.set_partitions(TOPIC, 8),
            b.broker.topics.set_partitions(TOPIC, 6),
            return_exceptions=True,
        )
        assert b.broker.topics.partitions(TOPIC) == 8
        assert isinstance(results[1], PenstockError)


async def test_a_consumer_that_went_is_not_attached_to_what_appears() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        gone = await b.broker.subscribe_pattern(
            "public/default/.*",
            "s",
            ConsumerOptions(type=SubscriptionType.EXCLUSIVE),
            namespace=DEFAULT_NAMESPACE,
        )
        store.open_gate.clear()
        await b.publish(b"a")
        await settle()
        await gone.leave()
        store.open_gate.set()
        await settle()
        assert await b.payloads(await b.consumer(SubscriptionType.EXCLUSIVE)) == [b"a"]


async def test_a_topic_that_grows_twice_at_once_attaches_a_consumer_once() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        await b.broker.topics.create(TOPIC, 1)
        consumer = await b.broker.subscribe([TOPIC], "s", SHARED)
        store.open_gate.clear()
        await b.broker.topics.set_partitions(TOPIC, 2)
        await b.broker.topics.set_partitions(TOPIC, 3)
        await settle()
        store.open_gate.set()
        await settle()
        assert [len(s.consumers) for s in consumer.attached] == [1, 1, 1]


async def test_a_topic_that_appears_during_a_pattern_s_subscribe_is_not_missed() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        await b.publish(b"first", topic=TopicName.parse("a"))
        store.open_gate.clear()
        subscribing = start(
            b.broker.subscribe_pattern("public/default/.*", "s", SHARED, namespace=DEFAULT_NAMESPACE)
        )
        await settle()
        await b.publish(b"second", topic=TopicName.parse("b"))
        store.open_gate.set()
        assert sorted(await b.payloads(await subscribing)) == [b"first", b"second"]


async def test_nobody_is_attached_to_a_topic_that_went_meanwhile() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        await b.publish(b"a")
        store.open_gate.clear()
        subscribing = start(b.broker.subscribe([TOPIC], "s", SHARED))
        await settle()
        deleting = start(b.broker.administration.delete_topic(TOPIC, force=True))
        await settle()
        store.open_gate.set()
        with pytest.raises(PenstockError) as caught:
            await subscribing
        assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
        await deleting


async def test_a_reader_does_not_take_the_name_of_a_subscription_that_is_being_created() -> None:
    store = SlowStore()
    async with bench(store=store) as b:
        await b.publish(b"a")
        store.open_gate.clear()
        subscribing = start(b.broker.subscribe([TOPIC], "s", SHARED))
        await settle()
        with pytest.raises(PenstockError) as caught:
            await b.consumer(durable=False)
        assert caught.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        store.open_gate.set()
        assert await b.payloads(await subscribing) == [b"a"]


async def test_names_that_were_only_asked_for_leave_nothing() -> None:
    async with bench() as b:
        for number in range(10):
            with pytest.raises(PenstockError):
                await b.broker.topics.get(TopicName.parse(f"none-{number}"), create=False)
        assert len(b.broker.topics._locks) == 0
