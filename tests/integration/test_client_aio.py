"""The asyncio client against a real server; what the blocking one does not show."""

import asyncio

import pytest

import penstock
from penstock.testing.clock import settle
from penstock.testing.server import Address

EARLIEST = penstock.InitialPosition.Earliest


async def test_sends_that_are_awaited_together_share_batches(server: Address, topic: str) -> None:
    async with penstock.aio.Client(server.pulsar) as client:
        producer = await client.create_producer(topic)
        ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(100)))

        assert ids == sorted(ids)
        assert ids[0].batch_size() == 100


async def test_a_single_send_does_not_wait_for_the_batch_delay(server: Address, topic: str) -> None:
    async with penstock.aio.Client(server.pulsar) as client:
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=10_000)
        async with asyncio.timeout(30):
            for number in range(10):
                await producer.send(b"%d" % number)


async def test_a_consumer_is_iterated_until_it_is_closed(server: Address, topic: str) -> None:
    async with penstock.aio.Client(server.pulsar) as client:
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        for number in range(5):
            await producer.send(b"%d" % number)
        seen = []
        async for message in consumer:
            seen.append(message.data())
            await consumer.acknowledge(message)
            if len(seen) == 5:
                await consumer.close()

        assert seen == [b"%d" % number for number in range(5)]
        with pytest.raises(penstock.AlreadyClosed):
            await consumer.receive()


async def test_a_receive_that_is_cancelled_loses_nothing(server: Address, topic: str) -> None:
    async with penstock.aio.Client(server.pulsar) as client:
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "sub")
        waits = [asyncio.get_running_loop().create_task(consumer.receive()) for _ in range(3)]
        await settle()
        await producer.send(b"one")
        waits[0].cancel()
        await producer.send(b"two")
        results = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 30)

        kept = {r.data() for r in results if isinstance(r, penstock.Message)}
        assert kept == {b"one", b"two"}


async def test_listeners_may_be_coroutines(server: Address, topic: str) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listener(consumer: penstock.aio.Consumer, message: penstock.Message) -> None:
        await heard.put(message.data())
        await consumer.acknowledge(message)

    async with penstock.aio.Client(server.pulsar) as client:
        await client.subscribe(topic, "sub", message_listener=listener)
        producer = await client.create_producer(topic)
        await producer.send(b"heard")

        assert await asyncio.wait_for(heard.get(), 30) == b"heard"


async def test_a_full_queue_blocks_or_fails(server: Address, topic: str) -> None:
    async with penstock.aio.Client(server.pulsar) as client:
        blocking = await client.create_producer(topic, max_pending_messages=2, block_if_queue_full=True)
        ids = await asyncio.gather(*(blocking.send(b"x") for _ in range(20)))
        assert len(set(ids)) == 20
        failing = await client.create_producer(topic, max_pending_messages=2)
        results = await asyncio.gather(*(failing.send(b"x") for _ in range(20)), return_exceptions=True)

        assert sum(isinstance(result, penstock.ProducerQueueIsFull) for result in results) == 18


async def test_interceptors_see_what_they_find_eligible(server: Address, topic: str) -> None:
    seen: list[str] = []

    class Stamp(penstock.ProducerInterceptor):
        def eligible(self, message: penstock.Draft) -> bool:
            return isinstance(message.value, str)

        def before_send(self, producer: object, message: penstock.Draft) -> penstock.Draft:
            message.properties = {"stamped": "yes"}
            return message

        def on_send_acknowledgement(
            self, producer: object, message: penstock.Draft, message_id: object, error: object
        ) -> None:
            seen.append(f"{message.value} {message_id is not None} {error}")

    class Broken(penstock.ProducerInterceptor):
        def before_send(self, producer: object, message: penstock.Draft) -> penstock.Draft:
            raise RuntimeError("broken")

    async with penstock.aio.Client(server.pulsar) as client:
        producer = await client.create_producer(topic, interceptors=[Broken(), Stamp()])
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST)
        await producer.new_message("text", schema=penstock.StringSchema()).send()
        await producer.send(b"bytes")

        assert (await consumer.receive(30_000)).properties() == {"stamped": "yes"}
        assert (await consumer.receive(30_000)).properties() == {}
        assert seen == ["text True None"]


async def test_nobody_there(topic: str) -> None:
    client = penstock.aio.Client("pulsar://127.0.0.1:1", operation_timeout_seconds=0.3)
    with pytest.raises(penstock.ConnectError):
        await client.create_producer(topic)
    await client.close()
