"""Whole entries to a real Pulsar: receipts, deduplication, moves, and what its broker refuses."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.cutter import Cutter, cutter_before
from tests.support.entry_producers import client_context, entry_producer, outgoing, payloads_of
from tests.support.waiting import until_async

from penstock.client.aio.context import Context
from penstock.client.entries.pending import DUPLICATE, Outcome, Outgoing
from penstock.client.enums import ProducerAccessMode
from penstock.client.errors import (
    NotAllowedError,
    ProducerBusy,
    ProducerFenced,
    PulsarException,
    TopicTerminated,
)
from penstock.client.http import HttpClient
from penstock.wire.contents import seal
from penstock.wire.pulsar_pb2 import MessageMetadata

_NUMBERS = itertools.count()
NAMESPACE = "public/entry-producer"


@pytest.fixture(scope="module")
def namespace(pulsar_cluster: Any) -> str:
    with HttpClient(pulsar_cluster.admin_url) as http:
        if NAMESPACE not in http.call("GET", "/admin/v2/namespaces/public"):
            http.call("PUT", f"/admin/v2/namespaces/{NAMESPACE}")
            http.call("POST", f"/admin/v2/namespaces/{NAMESPACE}/retention", body=KEEP)
            http.call("POST", f"/admin/v2/namespaces/{NAMESPACE}/deduplication", body=True)
    return NAMESPACE


KEEP = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}


@pytest.fixture
def topic(namespace: str) -> str:
    return f"persistent://{namespace}/entries-{next(_NUMBERS)}-{id(object())}"


@asynccontextmanager
async def cuttable(cluster: Any) -> AsyncIterator[tuple[Cutter, Context]]:
    port = int(cluster.service_url.rsplit(":", 1)[1])
    async with client_context(cluster.service_url) as context, cutter_before(port, context._pool) as cutter:
        yield cutter, context


def refused(outcomes: list[Outcome]) -> list[PulsarException]:
    return [one for one in outcomes if isinstance(one, PulsarException)]


async def test_receipts_come_in_order(pulsar_cluster: Any, topic: str) -> None:
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic)
        assert producer.name
        sent = [producer.send_all([outgoing(producer, 2 * n, b"%d" % n, b"and")]) for n in range(200)]
        places = [place for (place,) in await asyncio.gather(*sent)]
        assert places == sorted(places)
        assert len(set(places)) == 200
        assert producer.last_sequence_id == 399
        await producer.close()

        again = await entry_producer(context, topic, producer.name)
        assert again.last_sequence_id == 399
        await again.close()


async def test_connections_that_are_cut_store_everything_once(pulsar_cluster: Any, topic: str) -> None:
    async with cuttable(pulsar_cluster) as (cutter, context):
        producer = await entry_producer(context, topic, "once")
        sent: list[asyncio.Future[list[Outcome]]] = []
        for start in (0, 100, 200):
            for number in range(start, start + 50):
                sent.append(producer.send_all([outgoing(producer, number, b"%d" % number)]))
            await asyncio.wait_for(asyncio.gather(*sent), 60)
            cutter.hold_answers, cutter.lost_answers = True, 0  # stored, but the receipts never come
            for number in range(start + 50, start + 100):
                sent.append(producer.send_all([outgoing(producer, number, b"%d" % number)]))
            await until_async(lambda: cutter.lost_answers > 0)
            cutter.hold_answers = False
            cutter.cut()
        outcomes = await asyncio.wait_for(asyncio.gather(*sent), 60)
        assert not refused([one for (one,) in outcomes])
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 300) == [b"%d" % n for n in range(300)]


async def test_a_connection_that_is_cut_in_the_middle_of_an_entry(pulsar_cluster: Any, topic: str) -> None:
    async with cuttable(pulsar_cluster) as (cutter, context):
        producer = await entry_producer(context, topic, "half")
        cutter.hold_requests = True
        large = [bytes([n]) * 200_000 for n in range(5)]
        sent = [producer.send_all([outgoing(producer, n, data)]) for n, data in enumerate(large)]
        await until_async(lambda: sum(len(data) for _, data in cutter.held) > 900_000)
        end, data = cutter.held[0]
        assert end.transport is not None
        end.transport.write(data[: len(data) // 2])
        cutter.held.clear()
        cutter.hold_requests = False
        cutter.cut()
        assert not refused([one for (one,) in await asyncio.wait_for(asyncio.gather(*sent), 60)])
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 5) == large


async def test_a_producer_that_sends_once_ends_with_its_connection(pulsar_cluster: Any, topic: str) -> None:
    async with cuttable(pulsar_cluster) as (cutter, context):
        ended: list[PulsarException] = []
        producer = await entry_producer(context, topic, once=True, on_ended=ended.append)
        cutter.hold_answers, cutter.lost_answers = True, 0
        sent = producer.send_all([outgoing(producer, 0, b"stored")])
        await until_async(lambda: cutter.lost_answers > 0)
        cutter.hold_answers = False
        cutter.cut()
        (outcome,) = await asyncio.wait_for(sent, 60)
        assert isinstance(outcome, PulsarException)
        assert producer.error is not None
        assert len(ended) == 1
        with pytest.raises(PulsarException):
            producer.send_all([outgoing(producer, 1, b"more")])
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 1) == [b"stored"]


async def test_a_broker_that_stands_still_for_a_while(pulsar_cluster: Any, topic: str) -> None:
    async with cuttable(pulsar_cluster) as (cutter, context):
        producer = await entry_producer(context, topic, "patient", pending_bytes_max=10_000)
        cutter.hold_requests = True
        numbers = itertools.count()

        async def send() -> list[Outcome]:
            await producer.room()
            number = next(numbers)
            return await producer.send_all([outgoing(producer, number, b"%03d" % number + b"x" * 997)])

        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(send()) for _ in range(100)]
            await until_async(lambda: sum(len(data) for _, data in cutter.held) > 10_000)
            assert next(numbers) < 12  # what waits for room is not sent
            cutter.release()
        assert not refused([one for task in sent for one in task.result()])
        await producer.close()
    seen = await payloads_of(pulsar_cluster.service_url, topic, 100)
    assert len(seen) == 100
    assert seen == sorted(seen)


async def test_a_topic_that_moves(pulsar_cluster: Any, topic: str) -> None:
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic, "moved")
        sent = []
        path = topic.replace("://", "/")
        with HttpClient(pulsar_cluster.admin_url) as http:
            for number in range(100):
                sent.append(producer.send_all([outgoing(producer, number, b"%d" % number)]))
                if number == 50:
                    await asyncio.to_thread(http.call, "PUT", f"/admin/v2/{path}/unload")
        assert not refused([one for (one,) in await asyncio.wait_for(asyncio.gather(*sent), 60)])
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 100) == [b"%d" % n for n in range(100)]


async def test_a_repeat_is_a_duplicate(pulsar_cluster: Any, topic: str) -> None:
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic, "twice")
        first = await producer.send(outgoing(producer, 7, b"a"))
        assert first != DUPLICATE
        assert await producer.send(outgoing(producer, 7, b"a")) == DUPLICATE
        assert await producer.send(outgoing(producer, 6, b"b")) == DUPLICATE
        assert await producer.send(outgoing(producer, 8, b"c")) != DUPLICATE
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 2) == [b"a", b"c"]


async def test_a_name_in_use(pulsar_cluster: Any, topic: str) -> None:
    async with (
        client_context(pulsar_cluster.service_url) as one,
        client_context(pulsar_cluster.service_url) as two,
    ):
        first = await entry_producer(one, topic, "mine")
        with pytest.raises(ProducerBusy):
            await entry_producer(two, topic, "mine")
        await first.close()
        second = await entry_producer(two, topic, "mine")
        await second.close()


async def test_what_is_too_large_is_refused(pulsar_cluster: Any, topic: str) -> None:
    path = topic.replace("://", "/")
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic)
        with HttpClient(pulsar_cluster.admin_url) as http:
            await asyncio.to_thread(http.call, "POST", f"/admin/v2/{path}/maxMessageSize", body=1000)

            async def limited() -> bool:
                seen = await asyncio.to_thread(http.call, "GET", f"/admin/v2/{path}/maxMessageSize")
                return bool(seen == 1000)

            while not await limited():
                pass
        numbers = itertools.count()

        def large() -> Outgoing:
            return outgoing(producer, next(numbers), b"x" * 2000)

        while not refused(await producer.send_all([large()])):
            pass  # the topic itself soon knows it
        outcomes = await producer.send_all([large(), outgoing(producer, next(numbers), b"small")])
        assert [type(one) for one in outcomes] == [NotAllowedError, tuple]
        await producer.close()


async def test_a_terminated_topic_ends_the_producer(pulsar_cluster: Any, topic: str) -> None:
    ended: list[PulsarException] = []
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic, on_ended=ended.append)
        await producer.send(outgoing(producer, 0, b"a"))
        with HttpClient(pulsar_cluster.admin_url) as http:
            path = topic.replace("://", "/")
            await asyncio.to_thread(http.call, "POST", f"/admin/v2/{path}/terminate")
        with pytest.raises(TopicTerminated):
            await producer.send(outgoing(producer, 1, b"b"))
        assert [type(error) for error in ended] == [TopicTerminated]


async def test_who_is_fenced_ends(pulsar_cluster: Any, topic: str) -> None:
    ended: list[PulsarException] = []
    url = pulsar_cluster.service_url
    async with client_context(url) as one, client_context(url) as two:
        first = await entry_producer(
            one, topic, access_mode=ProducerAccessMode.Exclusive, on_ended=ended.append
        )
        with pytest.raises(ProducerBusy):
            await entry_producer(two, topic)
        second = await entry_producer(two, topic, access_mode=ProducerAccessMode.ExclusiveWithFencing)
        assert first.topic_epoch is not None
        assert second.topic_epoch is not None
        assert second.topic_epoch > first.topic_epoch
        with pytest.raises(ProducerFenced):  # Pulsar says so when it sends next
            await first.send(outgoing(first, 0, b"late"))
        assert isinstance(ended[0], ProducerFenced)
        await second.send(outgoing(second, 0, b"alone"))
        await second.close()


async def test_who_waits_has_the_topic_next(pulsar_cluster: Any, topic: str) -> None:
    url = pulsar_cluster.service_url
    async with client_context(url) as one, client_context(url) as two:
        first = await entry_producer(one, topic, access_mode=ProducerAccessMode.Exclusive)
        async with asyncio.TaskGroup() as tasks:
            waits = ProducerAccessMode.WaitForExclusive
            left = tasks.create_task(entry_producer(two, topic, access_mode=waits))
            next_one = tasks.create_task(entry_producer(two, topic, access_mode=waits))
            await asyncio.sleep(0.2)  # most likely it waits by then; right either way
            left.cancel()  # the broker is to forget it, or the next one waited for ever
            await first.send(outgoing(first, 0, b"a"))
            await first.close()
            second = await asyncio.wait_for(asyncio.shield(next_one), 30)
        await second.send(outgoing(second, 1, b"b"))
        await second.close()


async def test_chunks_of_a_large_message(pulsar_cluster: Any, topic: str) -> None:
    async with client_context(pulsar_cluster.service_url) as context:
        producer = await entry_producer(context, topic, "chunks")
        metadata = MessageMetadata(
            producer_name="chunks", sequence_id=4, publish_time=1, uuid="chunks-4",
            num_chunks_from_msg=3, total_chunk_msg_size=9,
        )  # fmt: skip
        parts = []
        for number in range(3):
            metadata.chunk_id = number
            head = metadata.SerializeToString()
            data = seal(len(head).to_bytes(4, "big") + head + b"%d--" % number)
            parts.append(Outgoing(data, 4, 4, 1, chunk=True))
        assert not refused(await producer.send_all(parts))
        await producer.close()
    assert await payloads_of(pulsar_cluster.service_url, topic, 1) == [b"0--1--2--"]
