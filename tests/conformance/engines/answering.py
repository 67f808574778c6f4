"""What consumers say of their messages: up to one, not now, too often; and messages that wait for their time."""

import asyncio

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import DeadLetter, SubscriptionType

from .bench import BOUND_S, LOOK_S, Bench, EngineTests, until

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


class AnsweringTests(EngineTests):
    """Tests of acknowledgements, redelivery, dead letters and delays."""

    @pytest.mark.parametrize("type", [EXCLUSIVE, FAILOVER])
    async def test_acknowledging_up_to_a_message(self, bench: Bench, type: SubscriptionType) -> None:
        client = await bench.consume(type)
        ids = await bench.publish(*"abcdef")
        await client.come(6)
        await client.consumer.acknowledge_cumulative(ids[3])
        await client.consumer.flush()
        await client.leave()

        assert await (await bench.consume(type)).come(2) == ["e", "f"]

    @pytest.mark.parametrize("type", [SHARED, KEY_SHARED])
    async def test_shared_is_not_acknowledged_up_to_a_message(
        self, bench: Bench, type: SubscriptionType
    ) -> None:
        client = await bench.consume(type)
        (one,) = await bench.publish("a")
        await client.come(1)
        with pytest.raises(PenstockError) as caught:
            await client.consumer.acknowledge_cumulative(one)
        assert caught.value.kind is ErrorKind.BAD_PARAMETER

    async def test_many_at_once(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        ids = await bench.publish(*"abcd")
        await client.come(4)
        elsewhere = MessageId(ids[0].ledger + (1 << 50), 0, 99)

        assert await client.consumer.acknowledge_all([ids[0], ids[2]]) == 2
        with pytest.raises(PenstockError) as caught:
            client.consumer.source_of(elsewhere)
        assert caught.value.kind is ErrorKind.MESSAGE_NOT_FOUND
        assert client.consumer.source_of(ids[1]) is client.consumer.attached[0]
        await client.consumer.flush()
        await client.leave()
        assert await (await bench.consume(SHARED)).come(2) == ["b", "d"]

    @pytest.mark.parametrize("type", [SHARED, EXCLUSIVE])
    async def test_a_message_that_is_given_back_comes_after_its_delay(
        self, bench: Bench, type: SubscriptionType
    ) -> None:
        client = await bench.consume(type)
        await bench.publish("a")
        await client.come(1)
        said = bench.broker.clock.now_ms()
        assert client.consumer.negative(client.id_of("a"), 300)
        assert await client.come(2) == ["a", "a"]

        first, second = client.received
        assert second.id == first.id
        assert second.at_ms - said >= 299  # the clocks that wait and that tell are two
        await client.acknowledge()

    async def test_redeliveries_are_counted(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        await bench.publish("a", "b")
        for times in range(4):
            await client.come(2 + times)
            assert client.consumer.negative(client.id_of("a"))
        await client.come(6)

        assert [one.redeliveries for one in client.received if one.text == "a"] == [0, 1, 2, 3, 4]
        assert [one.redeliveries for one in client.received if one.text == "b"] == [0]

    async def test_what_was_not_handed_on_is_no_redelivery(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        await bench.publish("a")
        await client.come(1)
        client.consumer.give_back([client.received[0].delivery])
        assert await client.come(2) == ["a", "a"]

        assert [one.redeliveries for one in client.received] == [0, 0]

    async def test_what_is_not_acknowledged_in_time_comes_again(self, bench: Bench) -> None:
        client = await bench.consume(SHARED, ack_timeout_ms=200)
        await bench.publish("a", "b")
        await client.come(2)
        await client.acknowledge("a")
        before, more = client.texts.count("a"), client.texts.count("b") + 2
        await until(lambda: client.texts.count("b") >= more, lambda: client.texts)

        found = [one.redeliveries for one in client.received if one.text == "b"]
        assert found == list(range(len(found)))
        assert client.texts.count("a") <= before + 1  # one was on its way, where the machine stood still
        await client.acknowledge("b")

    @pytest.mark.parametrize("type", [SHARED, KEY_SHARED])
    async def test_what_fails_too_often_becomes_a_dead_letter(
        self, bench: Bench, type: SubscriptionType
    ) -> None:
        target = TopicName.parse(f"{bench.topic}-dead")
        letters = await bench.consume(topic=target)
        client = await bench.consume(type, dead_letter=DeadLetter(1, str(target)))
        ids = await bench.publish("bad", "good", key="k", properties={"a": "1"})
        await client.come(2)
        await client.acknowledge("good")
        for come in (3, None):
            assert client.consumer.negative(ids[0])
            if come:
                await client.come(come)

        assert await letters.come(1) == ["bad"]
        message = letters.received[0].message
        assert (message.key, message.properties["a"]) == ("k", "1")
        assert message.properties["REAL_TOPIC"] == str(bench.topic)
        assert message.properties["REAL_SUBSCRIPTION"] == "s"
        assert message.properties["ORIGIN_MESSAGE_ID"] == str(ids[0])
        source = client.consumer.attached[0]
        await client.consumer.flush()

        async with asyncio.timeout(BOUND_S):
            while True:  # the letter is durable before its original counts as done
                await source.refresh()
                if not source.figures().backlog:
                    break
                await asyncio.sleep(LOOK_S)
        assert [one.redeliveries for one in client.received] == [0, 0, 1]

    async def test_dead_letters_go_to_the_subscriptions_own_topic(self, bench: Bench) -> None:
        letters = await bench.consume(topic=TopicName.parse(f"{bench.topic}-s-DLQ"))
        client = await bench.consume(SHARED, dead_letter=DeadLetter(0))
        await bench.publish("bad", "too", batch=True)
        await client.come(2)
        assert client.consumer.negative(client.id_of("too"))

        assert await letters.come(1) == ["too"]
        await client.acknowledge("bad")

    async def test_delayed_messages_wait_for_their_time(self, bench: Bench) -> None:
        client = await bench.consume(SHARED)
        due = bench.broker.clock.now_ms() + 2500
        await bench.publish("late", deliver_at=due)
        await bench.publish("soon")
        # In this order, if publishing takes less than the delay.
        assert sorted(await client.come(2)) == ["late", "soon"]

        late = next(one for one in client.received if one.message.payload == b"late")
        assert late.at_ms >= due - self.early_ms
        assert late.message.deliver_at == due
        assert late.redeliveries == 0

    async def test_one_consumer_alone_does_not_wait_for_delays(self, bench: Bench) -> None:
        client = await bench.consume(EXCLUSIVE)
        await bench.publish("late", deliver_at=bench.broker.clock.now_ms() + 3_600_000)

        assert await client.come(1) == ["late"]

    async def test_an_id_that_cannot_be(self, bench: Bench) -> None:
        client = await bench.consume(EXCLUSIVE)
        await bench.publish("a")
        await client.come(1)
        with pytest.raises(PenstockError):
            await client.consumer.acknowledge_cumulative(EARLIEST)
        assert not client.consumer.negative(MessageId(client.id_of("a").ledger, 1_000_000))
        await client.acknowledge()
        await until(lambda: client.consumer.figures().unacked == 0)
