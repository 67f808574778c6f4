"""The four types of subscription: who gets what, and in which order."""

import asyncio

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import LATEST
from penstock.model.policy import SubscriptionType

from .bench import Bench, EngineTests, stored, until

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


class ConsumingTests(EngineTests):
    """Tests of `Consumer` and its subscription, by type."""

    @pytest.mark.parametrize("type", list(SubscriptionType))
    async def test_messages_come_in_order_and_acknowledged_ones_not_again(
        self, bench: Bench, type: SubscriptionType
    ) -> None:
        await bench.publish("a", "b", "c", batch=True)
        client = await bench.consume(type)
        assert await client.come(3) == ["a", "b", "c"]
        assert [one.redeliveries for one in client.received] == [0, 0, 0]
        await client.acknowledge()
        await client.leave()
        await bench.publish("d")

        assert await (await bench.consume(type)).come(1) == ["d"]

    @pytest.mark.parametrize("type", list(SubscriptionType))
    async def test_one_that_closes_gives_its_messages_back(
        self, bench: Bench, type: SubscriptionType
    ) -> None:
        first = await bench.consume(type)
        await bench.publish("a", "b", "c")
        await first.come(3)
        await first.acknowledge("a")
        await first.leave()
        assert first.consumer.closed
        again = await bench.consume(type)

        assert await again.come(2) == ["b", "c"]

    async def test_exclusive_is_for_one(self, bench: Bench) -> None:
        first = await bench.consume(EXCLUSIVE)
        for another in (EXCLUSIVE, SHARED):
            assert await bench.refused(another) is ErrorKind.SUBSCRIPTION_BUSY
        await bench.publish("a")
        assert await first.come(1) == ["a"]
        await first.leave()
        assert await (await bench.consume(SHARED)).come(1) == ["a"]

    async def test_a_type_is_that_of_all_consumers(self, bench: Bench) -> None:
        await bench.consume(SHARED)
        for another in (EXCLUSIVE, FAILOVER, KEY_SHARED):
            assert await bench.refused(another) is ErrorKind.SUBSCRIPTION_BUSY

    async def test_failover_goes_to_the_next(self, bench: Bench) -> None:
        active = await bench.consume(FAILOVER, name="a", priority=0)
        other = await bench.consume(FAILOVER, name="b", priority=1)
        await bench.publish(*"012345")
        assert await active.come(6) == list("012345")
        await active.acknowledge("0", "1")
        assert other.received == []
        await active.leave()

        assert await other.come(4) == list("2345")
        await bench.publish("6")
        assert await other.come(5) == list("23456")

    async def test_shared_is_spread_by_permits(self, bench: Bench) -> None:
        clients = [await bench.consume(SHARED, name=name, flow=True) for name in "ab"]
        for client in clients:
            client.consumer.flow(5)
        sent = [f"m{n}" for n in range(10)]
        await bench.publish(*sent)
        for client in clients:
            await client.come(5)

        assert [len(client.received) for client in clients] == [5, 5]
        assert sorted(clients[0].texts + clients[1].texts) == sent

    async def test_shared_is_acknowledged_one_by_one(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        await bench.publish(*"abcdef")
        await client.come(6)
        await client.acknowledge("b", "e", "f")
        await client.leave()
        again = await bench.consume(SHARED)

        assert sorted(await again.come(3)) == list("acd")

    async def test_parts_of_a_batch_are_acknowledged_while_it_is_out(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        await bench.publish(*"abcd", batch=True)
        await client.come(4)
        await client.acknowledge("a", "c")
        assert client.consumer.negative(client.id_of("b"), 0)
        await client.come(5)
        assert client.consumer.negative(client.id_of("d"), 0)

        assert await client.come(6) == list("abcdbd")
        await client.acknowledge("b", "d")
        await client.leave()
        await bench.publish("e")
        assert await (await bench.consume(SHARED)).come(1) == ["e"]

    async def test_key_shared_keeps_the_order_of_each_key(self, bench: Bench) -> None:
        clients = [await bench.consume(KEY_SHARED, name=name) for name in "abc"]
        keys = [f"k{n}" for n in range(30)]
        producer = await bench.producer()
        for number in range(4):
            messages = [OutMessage(payload=f"{key}:{number}".encode(), key=key) for key in keys]
            stored(await producer.publish(messages, batch=False))
        await until(lambda: sum(len(client.received) for client in clients) >= 120)

        owners = [{text.partition(":")[0] for text in client.texts} for client in clients]
        assert sum(len(one) for one in owners) == 30
        assert all(owners)
        for client in clients:
            for key in {text.partition(":")[0] for text in client.texts}:
                of_key = [text for text in client.texts if text.startswith(f"{key}:")]
                assert of_key == [f"{key}:{number}" for number in range(4)]

    async def test_key_shared_gives_the_keys_of_one_that_leaves_to_others(self, bench: Bench) -> None:
        first, second = [await bench.consume(KEY_SHARED, name=name) for name in "ab"]
        producer = await bench.producer()
        sent = [f"k{n}" for n in range(20)]
        stored(await producer.publish([OutMessage(payload=k.encode(), key=k) for k in sent], batch=False))
        await until(lambda: len(first.received) + len(second.received) >= 20)
        left = set(first.texts)
        await second.acknowledge()
        await first.leave()
        await second.come(20)

        assert sorted(second.texts) == sorted(sent)
        assert left <= set(second.texts)

    async def test_subscriptions_do_not_disturb_each_other(self, bench: Bench) -> None:
        await bench.publish("a")
        late = await bench.consume(subscription="late", start=LATEST)
        first, second = [await bench.consume(subscription=name) for name in ("s", "t")]
        await bench.publish("b")

        assert list(await asyncio.gather(first.come(2), second.come(2))) == [["a", "b"]] * 2
        assert await late.come(1) == ["b"]
        await first.acknowledge()
        await first.leave()
        assert await second.come(2) == ["a", "b"]

    async def test_one_that_is_not_durable_leaves_nothing(self, bench: Bench) -> None:
        await bench.publish("a")
        reader = await bench.consume(durable=False, auto_ack=True)
        assert await reader.come(1) == ["a"]
        await reader.leave()
        again = await bench.consume(durable=False, auto_ack=True)

        assert await again.come(1) == ["a"]

    async def test_a_subscription_is_there_before_its_consumers(self, bench: Bench) -> None:
        await bench.broker.topics.get(bench.topic, create=True)
        await bench.broker.subscriptions.create(bench.topic, "s", LATEST)
        await bench.publish("a", "b")
        (source,) = await bench.broker.subscriptions.of(bench.topic, "s")
        await source.refresh()
        assert source.figures().backlog == 2
        client = await bench.consume(start=LATEST)

        assert await client.come(2) == ["a", "b"]
        await client.leave()
        await bench.broker.subscriptions.delete(bench.topic, "s")
        await bench.publish("c")
        later = await bench.consume(start=LATEST)
        await bench.publish("d")
        assert await later.come(1) == ["d"]

    @pytest.mark.parametrize("type", [SHARED, FAILOVER, KEY_SHARED])
    async def test_one_of_several_cannot_unsubscribe(self, bench: Bench, type: SubscriptionType) -> None:
        one, other = await bench.consume(type, name="a"), await bench.consume(type, name="b")
        for client in (one, other):
            with pytest.raises(PenstockError, match="shared consumer attempting to unsubscribe") as caught:
                await client.consumer.unsubscribe()
            assert caught.value.kind is ErrorKind.SUBSCRIPTION_SHARED
        await one.leave()
        await bench.publish(*"abc")
        assert sorted(await other.come(3)) == list("abc")  # all of them: the subscription is still there
        await other.acknowledge()

        await other.consumer.unsubscribe()
        assert other.consumer.closed
        assert (await (await bench.consume(type)).come(3))[:1] == ["a"]  # a new one
