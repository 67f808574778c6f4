"""Connections that are cut: nothing is lost, and nothing is stored twice where deduplication is on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.cutter import Cutter, cutter_before
from tests.support.ports import kept_port
from tests.support.waiting import until_async

import penstock
from penstock.client.http import HttpClient
from penstock.testing.clock import settle
from penstock.testing.server import Address, running

EARLIEST = penstock.InitialPosition.Earliest


@asynccontextmanager
async def cuttable(server: Address) -> AsyncIterator[tuple[Cutter, penstock.aio.Client]]:
    client = penstock.aio.Client(server.pulsar, operation_timeout_seconds=30)
    async with cutter_before(int(server.pulsar.rsplit(":", 1)[1]), client._context._pool) as cutter:
        try:
            yield cutter, client
        finally:
            await client.close()


async def test_a_producer_and_a_consumer_go_on(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic)
        consumer = await client.subscribe(topic, "sub", initial_position=EARLIEST, receiver_queue_size=10)
        seen: set[bytes] = set()
        for number in range(60):
            await producer.send(b"%d" % number)
            message = await consumer.receive(30_000)
            seen.add(message.data())
            await consumer.acknowledge(message)
            if number % 20 == 10:
                cutter.cut()
        while len(seen) < 60:
            seen.add((await consumer.receive(30_000)).data())

        assert seen == {b"%d" % number for number in range(60)}
        assert producer.is_connected()


async def test_what_has_no_receipt_is_sent_again_once(server: Address, topic: str) -> None:
    with HttpClient(server.url) as http:
        http.call("POST", "/admin/v2/namespaces/public/default/deduplication", body=True)
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic, producer_name="once", batching_enabled=False)
        await producer.send(b"first")
        cutter.hold_answers = True  # stored, but the receipts never come
        sends = [asyncio.get_running_loop().create_task(producer.send(b"%d" % n)) for n in range(20)]
        await asyncio.sleep(0.3)  # most are stored by then; right either way, as each is to be there once
        cutter.hold_answers = False
        cutter.cut()
        await asyncio.wait_for(asyncio.gather(*sends), 30)
        reader = await client.create_reader(topic, penstock.MessageId.earliest)
        seen = []
        while await reader.has_message_available():
            seen.append((await reader.read_next(30_000)).data())

        assert seen == [b"first", *(b"%d" % number for number in range(20))]
    with HttpClient(server.url) as http:
        http.call("POST", "/admin/v2/namespaces/public/default/deduplication", body=False)


async def test_a_reader_goes_on_where_it_was(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, client):
        producer = await client.create_producer(topic)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(50)))
        reader = await client.create_reader(topic, penstock.MessageId.earliest)
        seen = [(await reader.read_next(30_000)).data() for _ in range(20)]
        before = set(cutter.ends)
        cutter.cut()
        await until_async(lambda: not before & cutter.ends)
        seen += [(await reader.read_next(30_000)).data() for _ in range(30)]

        assert seen == [b"%d" % number for number in range(50)]


async def test_a_server_that_is_started_again(tmp_path: Path, topic: str) -> None:
    with kept_port() as port:
        with running(tmp_path, pulsar=f"127.0.0.1:{port}") as first:
            client = penstock.aio.Client(first.pulsar, operation_timeout_seconds=30)
            producer = await client.create_producer(topic)
            consumer = await client.subscribe(topic, "sub")
            await producer.send(b"before")
            assert (await consumer.receive(30_000)).data() == b"before"
        sending = asyncio.get_running_loop().create_task(producer.send(b"meanwhile"))
        await settle()
        with running(tmp_path, pulsar=f"127.0.0.1:{port}"):
            await asyncio.wait_for(sending, 30)
            again = {(await consumer.receive(30_000)).data() for _ in range(2)}
            await client.close()

    assert again == {b"before", b"meanwhile"}
