"""Subscriptions as consumers, readers and administrators find and create them."""

import pytest
from tests.unit.engines.core.brokers import TOPIC, bench

from penstock.broker.settings import BrokerSettings
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.policy import SubscriptionType

EXCLUSIVE = SubscriptionType.EXCLUSIVE


async def test_readers_and_durable_consumers_share_no_subscription() -> None:
    async with bench() as b:
        await b.publish(b"1")
        await b.consumer()
        reader = await b.consumer(subscription="r", durable=False)
        assert await b.payloads(reader) == [b"1"]
        for subscription, durable in (("s", False), ("r", True)):
            with pytest.raises(PenstockError) as busy:
                await b.consumer(subscription=subscription, durable=durable)
            assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await reader.leave()
        assert await b.payloads(await b.consumer(subscription="r")) == [b"1"]


async def test_a_reader_counts_among_the_subscriptions_of_a_topic() -> None:
    async with bench(BrokerSettings(max_subscriptions_per_topic=2)) as b:
        await b.consumer()
        await b.consumer(subscription="r", durable=False)
        with pytest.raises(PenstockError) as full:
            await b.consumer(subscription="more", durable=False)
        assert full.value.kind is ErrorKind.TOO_MANY_SUBSCRIPTIONS
        await b.consumer(), await b.consumer(subscription="r", durable=False)


async def test_a_reader_that_is_refused_leaves_no_subscription() -> None:
    async with bench(BrokerSettings(max_consumers_per_topic=2)) as b:
        topic = await b.broker.topics.get(TOPIC)
        with pytest.raises(PenstockError):
            await b.consumer(EXCLUSIVE, subscription="r", durable=False, key_ranges=((5, 1),))
        first = await b.consumer(EXCLUSIVE, subscription="first", durable=False)
        await b.consumer(EXCLUSIVE, subscription="s")
        for subscription in ("r", "first"):
            with pytest.raises(PenstockError) as refused:
                await b.consumer(EXCLUSIVE, subscription=subscription, durable=False)
            assert refused.value.kind is ErrorKind.CONSUMER_BUSY
        assert set(topic.served) == {"first", "s"}
        assert first.attached[0] is topic.served["first"]


async def test_a_refused_reader_does_not_end_what_another_one_comes_back_to() -> None:
    async with bench() as b:
        topic = await b.broker.topics.get(TOPIC)
        await (await b.consumer(EXCLUSIVE, durable=False)).leave(keep_ms=1000)
        kept = topic.served["s"]
        with pytest.raises(PenstockError):
            await b.consumer(EXCLUSIVE, durable=False, key_ranges=((5, 1),))
        assert (await b.consumer(EXCLUSIVE, durable=False)).attached == [kept]


async def test_a_subscription_that_some_partitions_lack_is_created_there() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 2)
        subscriptions = b.broker.subscriptions
        await subscriptions.create(TOPIC.of_partition(0), "s", EARLIEST)
        assert len(await subscriptions.of(TOPIC, "s")) == 1
        await subscriptions.create(TOPIC, "s", EARLIEST)
        assert len(await subscriptions.of(TOPIC, "s")) == 2
        with pytest.raises(PenstockError) as exists:
            await subscriptions.create(TOPIC, "s", EARLIEST)
        assert exists.value.kind is ErrorKind.ALREADY_EXISTS
        await subscriptions.delete(TOPIC, "s")
        with pytest.raises(PenstockError) as missing:
            await subscriptions.of(TOPIC, "s")
        assert missing.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
