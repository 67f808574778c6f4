"""Where consumers go on: by id and by time; and how much they are given: permits and windows."""

import pytest

from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.policy import SubscriptionType

from .bench import Bench, EngineTests

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED


class MovingTests(EngineTests):
    """Tests of seeking, and of what is delivered at a time."""

    @pytest.mark.parametrize("type", [EXCLUSIVE, SHARED])
    async def test_back_to_after_a_message(self, bench: Bench, type: SubscriptionType) -> None:
        client = await bench.consume(type)
        ids = await bench.publish(*"abcd")
        await client.come(4)
        await client.acknowledge()
        await client.consumer.seek(ids[1])

        assert await client.come(6) == list("abcdcd")
        assert client.consumer.figures().unacked == 2

    async def test_into_a_batch(self, bench: Bench) -> None:
        client = await bench.consume()
        ids = await bench.publish(*"abcd", batch=True)
        await client.come(4)
        await client.consumer.seek(ids[1])

        assert await client.come(6) == list("abcdcd")

    async def test_to_the_ends(self, bench: Bench) -> None:
        client = await bench.consume()
        await bench.publish(*"abc")
        await client.come(3)
        await client.acknowledge()
        await client.consumer.seek(EARLIEST)
        assert await client.come(6) == list("abcabc")
        await client.consumer.seek(LATEST)
        await bench.publish("d")

        assert await client.come(7) == list("abcabcd")

    async def test_by_time(self, bench: Bench) -> None:
        client = await bench.consume()
        await bench.publish("a")
        await bench.tick()
        between = await bench.tick()
        await bench.publish("b", "c")
        await client.come(3)
        await client.consumer.seek(between)

        assert await client.come(5) == list("abcbc")
        await client.consumer.seek(0)
        assert await client.come(8) == list("abcbcabc")

    async def test_a_subscription_without_consumers(self, bench: Bench) -> None:
        client = await bench.consume()
        ids = await bench.publish(*"abcd")
        await client.come(4)
        await client.acknowledge()
        await client.leave()
        (source,) = await bench.broker.subscriptions.of(bench.topic, "s")
        await source.seek(ids[1])
        second = await bench.consume()
        assert await second.come(2) == ["c", "d"]
        await second.leave()
        (source,) = await bench.broker.subscriptions.of(bench.topic, "s")
        await source.seek(ids[1], inclusive=True)

        assert await (await bench.consume()).come(3) == ["b", "c", "d"]

    async def test_a_new_subscription_begins_where_it_is_told(self, bench: Bench) -> None:
        ids = await bench.publish(*"abcd")
        after = await bench.consume(subscription="after", start=ids[1])
        with_it = await bench.consume(subscription="with", start=ids[1], start_inclusive=True)

        assert await after.come(2) == ["c", "d"]
        assert await with_it.come(3) == ["b", "c", "d"]

    @pytest.mark.parametrize("type", [EXCLUSIVE, SHARED])
    async def test_permits_bound_what_is_delivered(self, bench: Bench, type: SubscriptionType) -> None:
        client = await bench.consume(type, flow=True)
        await bench.publish(*"abcdef", batch=True)
        client.consumer.flow(2)
        assert await client.come(2) == ["a", "b"]
        assert client.consumer.figures().capacity == 0
        client.consumer.flow(3)
        assert await client.come(5) == list("abcde")
        assert client.consumer.figures().permits == 0

        client.consumer.flow(10)
        assert await client.come(6) == list("abcdef")
        assert client.consumer.figures().permits == 9

    async def test_a_window_bounds_what_is_out(self, bench: Bench) -> None:
        client = await bench.consume(SHARED, window=2)
        await bench.publish(*"abcd")
        assert await client.come(2) == ["a", "b"]
        assert client.consumer.figures().capacity == 0
        await client.acknowledge("a")
        assert await client.come(3) == ["a", "b", "c"]
        assert client.consumer.figures().unacked == 2

    async def test_what_one_may_not_have_goes_to_others(self, bench: Bench) -> None:
        full = await bench.consume(SHARED, flow=True)
        full.consumer.flow(2)
        await bench.publish(*"abcd")
        await full.come(2)
        other = await bench.consume(SHARED)

        assert await other.come(2) == ["c", "d"]
        assert full.texts == ["a", "b"]
