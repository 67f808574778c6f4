"""Whole entries to the binary endpoint: receipts, connections that are cut, and topics that take no more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.cutter import Cutter, cutter_before
from tests.support.entry_producers import client_context, entry_producer, outgoing, payloads_of
from tests.support.waiting import until_async

from penstock.client.aio.context import Context
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import AlreadyClosed, ProducerFenced, PulsarException, Timeout, TopicTerminated
from penstock.client.http import HttpClient
from penstock.testing.server import Address


@asynccontextmanager
async def cuttable(server: Address) -> AsyncIterator[tuple[Cutter, Context]]:
    port = int(server.pulsar.rsplit(":", 1)[1])
    async with client_context(server.pulsar) as context, cutter_before(port, context._pool) as cutter:
        yield cutter, context


async def test_receipts_come_in_order(server: Address, topic: str) -> None:
    async with client_context(server.pulsar) as context:
        producer = await entry_producer(context, topic)
        both = producer.send_all([outgoing(producer, 0, b"a", b"b"), outgoing(producer, 2, b"c")])
        third = producer.send_all([outgoing(producer, 3, b"d")])
        assert not producer.idle
        places = [*(await both), *(await third)]
        assert [entry for _, entry in places] == [0, 1, 2]
        assert (producer.idle, producer.last_sequence_id) == (True, 3)
        await producer.close()
    assert await payloads_of(server.pulsar, topic, 4) == [b"a", b"b", b"c", b"d"]


async def test_what_is_sent_without_a_connection_goes_on_the_next(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, context):
        producer = await entry_producer(context, topic)
        cutter.hold_requests = True
        sent = [producer.send_all([outgoing(producer, n, b"%d" % n)]) for n in range(20)]
        await until_async(lambda: bool(cutter.held))
        cutter.held.clear()
        cutter.hold_requests = False
        cutter.cut()
        await until_async(lambda: not producer.connected)
        sent += [producer.send_all([outgoing(producer, n, b"%d" % n)]) for n in range(20, 40)]
        await asyncio.wait_for(asyncio.gather(*sent), 30)
        await producer.close()
    assert await payloads_of(server.pulsar, topic, 40) == [b"%d" % n for n in range(40)]


async def test_room_is_for_those_who_came_first(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, context):
        producer = await entry_producer(context, topic, pending_bytes_max=100)
        cutter.hold_requests = True
        went: list[int] = []

        async def send(number: int) -> None:
            await producer.room()
            went.append(number)
            await producer.send_all([outgoing(producer, number, b"x" * 80)])

        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(send(number))
            await until_async(lambda: bool(cutter.held))
            assert went == [0]
            cutter.release()
        assert went == list(range(10))
        await producer.close()


async def test_what_has_no_receipt_in_time_fails(server: Address, topic: str) -> None:
    async with cuttable(server) as (cutter, context):
        producer = await entry_producer(context, topic, timeout_s=0.05)
        cutter.hold_requests = True
        (late,) = await producer.send_all([outgoing(producer, 0, b"late")])
        assert isinstance(late, Timeout)
        cutter.release()
        await producer.close()


async def test_a_closed_producer_takes_nothing(server: Address, topic: str) -> None:
    async with client_context(server.pulsar) as context:
        producer = await entry_producer(context, topic)
        last = producer.send_all([outgoing(producer, 0, b"last")])
        await producer.close()
        assert last.done()
        assert not isinstance((await last)[0], PulsarException)
        with pytest.raises(AlreadyClosed):
            producer.send_all([outgoing(producer, 1, b"more")])


async def test_a_terminated_topic_ends_the_producer(server: Address, topic: str) -> None:
    ended: list[PulsarException] = []
    async with client_context(server.pulsar) as context:
        producer = await entry_producer(context, topic, on_ended=ended.append)
        await producer.send(outgoing(producer, 0, b"a"))
        with HttpClient(server.url) as http:
            http.call("POST", f"/admin/v2/{topic.replace('://', '/')}/terminate")
        with pytest.raises(TopicTerminated):
            await producer.send(outgoing(producer, 1, b"b"))
        assert [type(error) for error in ended] == [TopicTerminated]
        with pytest.raises(TopicTerminated):
            await producer.room()


async def test_who_is_fenced_ends(server: Address, topic: str) -> None:
    ended: list[PulsarException] = []
    async with client_context(server.pulsar) as context:
        first = await entry_producer(
            context, topic, access_mode=ProducerAccessMode.Exclusive, on_ended=ended.append
        )
        second = await entry_producer(context, topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
        assert (first.topic_epoch, second.topic_epoch) == (0, 1)
        await until_async(lambda: bool(ended))
        assert isinstance(ended[0], ProducerFenced)
        await second.send(outgoing(second, 0, b"alone"))
        await second.close()
