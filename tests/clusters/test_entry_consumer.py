"""The client's consumer of entries, before a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.entry_consumer_stories import EntryConsumerStories
from tests.support.entry_consumers import Consumers
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until, until_async

from penstock.model.message_id import EARLIEST


class Cluster(Consumers):
    """Those of a broker that can be administrated."""

    def __init__(self, at: PulsarCluster, namespace: str) -> None:
        super().__init__(at.service_url, namespace)
        self.at = at

    async def admin(self, method: str, path: str, **more: Any) -> Any:
        return await asyncio.to_thread(self.at.admin, method, f"persistent/{self.local}{path}", **more)


@pytest.fixture
async def cluster(pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> AsyncIterator[Cluster]:
    made = Cluster(pulsar_cluster, pulsar_namespace)
    yield made
    await made.close()


@pytest.fixture
def consumers(cluster: Cluster) -> Consumers:
    return cluster


class TestStories(EntryConsumerStories):
    """Those that any broker passes."""


async def test_what_a_batch_overdrew_is_paid_before_more_comes(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c", batch=True)
    await cluster.publish("d")
    consumer, taking = await cluster.consume(permits=1)
    await taking.come(1)
    assert consumer.permits == -2
    await cluster.admin("PUT", "/unload")
    await until_async(lambda: taking.resets >= 1)
    await until_async(lambda: consumer.connected)
    taking.entries.clear()
    consumer.flow(2)
    await consumer.last_message_id()
    assert taking.payloads == []
    consumer.flow(1)
    await taking.come(1)
    assert taking.payloads == ["a", "b", "c"]


async def test_what_was_out_comes_again_after_an_unload_and_permits_are_given_again(cluster: Cluster) -> None:
    await cluster.publish("first", "a", "b", "c")
    consumer, taking = await cluster.consume(permits=10)
    await taking.come(4)
    consumer.acknowledge(taking.places[:1])
    await asyncio.to_thread(until, lambda: cluster.at.keeps_cursor(cluster.local, "s"))
    consumer.acknowledge(taking.places[1:2])  # not flushed: goes on whichever connection there is
    taking.forgets = True
    await cluster.admin("PUT", "/unload")
    await until_async(lambda: taking.resets >= 1)
    taking.forgets = False
    await taking.come(2)
    assert taking.payloads == ["b", "c"]
    assert consumer.permits == 10 - 4 - 2
    await cluster.publish("d")
    await taking.come(3)
    assert taking.payloads == ["b", "c", "d"]
    await consumer.flush()


async def test_the_end_of_a_terminated_topic(cluster: Cluster) -> None:
    await cluster.publish("a")
    consumer, taking = await cluster.consume()
    await taking.come(1)
    await cluster.admin("POST", "/terminate")
    consumer.acknowledge(taking.places)
    await until_async(lambda: taking.ends >= 1)
    assert taking.payloads == ["a"]


async def test_a_reader_loses_and_repeats_nothing_when_its_topic_moves(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c")
    reader, read = await cluster.consume(name="reader", durable=False, start=EARLIEST)
    await read.come(3)
    await cluster.admin("PUT", "/unload")
    await cluster.publish("d")
    await read.come(4)
    assert read.payloads == ["a", "b", "c", "d"]
    assert read.resets == 0
    await reader.close()


async def test_unsubscribing_deletes_the_subscription(cluster: Cluster) -> None:
    await cluster.publish("a")
    consumer, _ = await cluster.consume()
    await consumer.unsubscribe()
    assert (await cluster.admin("GET", "/subscriptions")).json() == []
