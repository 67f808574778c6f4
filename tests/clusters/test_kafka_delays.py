"""Delayed messages before a real Kafka: refused where retention would delete them, and read again from the log."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support.kafka_bench import Client, bench
from tests.support.kafka_broker import KafkaCluster

from penstock.broker.producer import Item
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.subscription import delayed
from penstock.model.entry import NewEntry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.wire import entry as wire

MANY = 300


async def publish(broker: KafkaBroker, topic: TopicName, delay_ms: int) -> MessageId | PenstockError:
    """Publish a delayed message; its id, or why it was refused."""
    producer = await broker.producer(topic)
    try:
        message = OutMessage(payload=b"later", deliver_at=broker.clock.now_ms() + delay_ms)
        (result,) = await producer.publish([message])
    finally:
        producer.close()
    return result


async def publish_entry(broker: KafkaBroker, topic: TopicName, delay_ms: int) -> MessageId | PenstockError:
    """The same as a client of Pulsar's protocol does it."""
    producer, now = await broker.producer(topic), broker.clock.now_ms()
    message = OutMessage(payload=b"later", deliver_at=now + delay_ms)
    made = wire.encode([message], producer="p", sequence_id=0, publish_time=now, schema_version=None)
    items: list[Item[NewEntry]] = [Item(made)]
    try:
        (result,) = await producer.publish_entries(items)
    finally:
        producer.close()
    return result


Publish = Callable[[KafkaBroker, TopicName, int], Coroutine[Any, Any, MessageId | PenstockError]]


@pytest.mark.parametrize("how", [publish, publish_entry])
async def test_a_delay_beyond_the_retention_is_refused(kafka_cluster: KafkaCluster, how: Publish) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        configured = broker.kafka.admin.set_configs

        async def until_it_is(outcome: type) -> MessageId | PenstockError:
            async with asyncio.timeout(60):
                while not isinstance(result := await how(broker, one.topic, 120_000), outcome):
                    await asyncio.sleep(0.05)  # a broker tells nobody that it has heard of a configuration
            return result

        await configured(one.name, {"retention.ms": "60000"})
        result = await until_it_is(PenstockError)
        assert isinstance(result, PenstockError)
        assert result.kind is ErrorKind.BAD_PARAMETER
        assert "60000 ms (retention.ms)" in result.message
        assert isinstance(await how(broker, one.topic, 30_000), MessageId)
        await configured(one.name, {"retention.ms": "-1"})
        await until_it_is(MessageId)


async def test_delayed_messages_are_read_again_from_the_log(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are held in memory: an ordinary one behind them comes at once, and each of them once, in its order."""
    monkeypatch.setattr(delayed, "HELD_MAX", 16)
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client: Client = await one.consume(broker)
        producer = await broker.producer(one.topic)
        due = broker.clock.now_ms() + 8_000
        late = [OutMessage(payload=b"%d" % number, deliver_at=due) for number in range(MANY)]
        await producer.publish(late)
        await producer.publish([OutMessage(payload=b"ordinary")])
        assert await client.come(1) == ["ordinary"]
        assert (await client.come(MANY + 1))[1:] == [str(number) for number in range(MANY)]
        assert broker.clock.now_ms() >= due
        await client.acknowledge()
        assert await one.marks() == {0: MANY + 1}


async def test_what_was_acknowledged_among_delayed_messages_stays_so(kafka_cluster: KafkaCluster) -> None:
    count = 1_000
    ordinary = {str(number) for number in range(count) if number % 10}
    acknowledged = {text for text in ordinary if int(text) % 3}
    async with bench(kafka_cluster) as one:
        first = await one.broker()
        producer = await first.producer(one.topic)
        due = first.clock.now_ms() + 3_600_000
        await producer.publish(
            [
                OutMessage(payload=b"%d" % number, deliver_at=0 if str(number) in ordinary else due)
                for number in range(count)
            ]
        )
        client = await one.consume(first)
        assert set(await client.come(len(ordinary))) == ordinary
        await client.acknowledge(*acknowledged)
        await one.stop(first)

        second = await one.broker()
        again = await one.consume(second)
        left = ordinary - acknowledged
        assert set(await again.come(len(left))) == left
        (source,) = again.consumer.attached
        await source.refresh()
        assert source.backlog == count - len(acknowledged)
        assert source.delayed == count - len(ordinary)
