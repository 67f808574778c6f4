"""The client's consumer of entries, before a real broker."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.entry_consumers import Consumers
from tests.support.pulsar_broker import PulsarCluster
from tests.support.waiting import until_async

from penstock.client import errors
from penstock.client.enums import ConsumerType
from penstock.model.message_id import EARLIEST, MessageId


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


async def test_entries_come_numbered_and_acknowledged_ones_do_not_come_again(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c", batch=True)
    await cluster.publish("d", "e")
    consumer, taking = await cluster.consume()
    await taking.come(3)
    assert taking.payloads == ["a", "b", "c", "d", "e"]
    assert [(one.count, one.mask, one.index) for one in taking.entries] == [(3, 7, 2), (1, 1, 3), (1, 1, 4)]
    assert all(one.publish_time > 0 and one.redeliveries == 0 for one in taking.entries)
    assert consumer.permits == 95
    consumer.acknowledge(taking.places[:1] + taking.places[2:])
    await consumer.flush()
    await consumer.close()
    _, again = await cluster.consume()
    await again.come(1)
    assert again.payloads == ["d"]


async def test_permits_bound_what_comes(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c")
    consumer, taking = await cluster.consume(permits=1)
    await taking.come(1)
    await consumer.last_message_id()  # what was sent before its answer has come
    assert taking.payloads == ["a"]
    consumer.flow(1)
    await taking.come(2)
    await consumer.last_message_id()
    assert taking.payloads == ["a", "b"]
    assert consumer.permits == 0


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
    await cluster.publish("a", "b", "c")
    consumer, taking = await cluster.consume(permits=10)
    await taking.come(3)
    consumer.acknowledge(taking.places[:1])  # not flushed: goes on whichever connection there is
    await cluster.admin("PUT", "/unload")
    await until_async(lambda: taking.resets >= 1)
    taking.entries.clear()
    await taking.come(2)
    assert taking.payloads == ["b", "c"]
    assert consumer.permits == 10 - 3 - 2
    await cluster.publish("d")
    await taking.come(3)
    assert taking.payloads == ["b", "c", "d"]
    await consumer.flush()


async def test_acknowledgements_given_without_a_connection_go_before_the_permits(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c")
    consumer, taking = await cluster.consume(permits=10)
    await taking.come(3)
    link = consumer._link
    assert link is not None
    link.abort(errors.ReadError("cut by the test"))
    await until_async(lambda: taking.resets >= 1)
    consumer.acknowledge(taking.places[:2])
    taking.entries.clear()
    await consumer.flush()
    await taking.come(1)
    assert taking.payloads == ["c"]


@pytest.mark.parametrize("inclusive", [False, True])
async def test_seek_goes_on_after_or_with_a_message(cluster: Cluster, inclusive: bool) -> None:
    await cluster.publish("a", "b", "c")
    consumer, taking = await cluster.consume()
    await taking.come(3)
    ledger, entry = taking.places[1]
    consumer.acknowledge(taking.places)
    taking.entries.clear()
    await consumer.seek(MessageId(ledger, entry), inclusive=inclusive)
    await until_async(lambda: taking.resets >= 1)
    wanted = ["b", "c"] if inclusive else ["c"]
    await taking.come(len(wanted))
    assert taking.payloads == wanted
    consumer.acknowledge(taking.places)
    await consumer.flush()
    await consumer.close()
    _, again = await cluster.consume()
    await cluster.publish("d")
    await again.come(1)
    assert again.payloads == ["d"]  # nor is the entry left in the backlog that was passed over


async def test_seek_into_a_batch_and_by_time(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c", batch=True)
    consumer, taking = await cluster.consume()
    await taking.come(1)
    first = taking.entries[0]
    taking.entries.clear()
    await consumer.seek(MessageId(first.ledger, first.entry_id, -1, 0, 3))
    await taking.come(1)
    assert taking.payloads == ["b", "c"]
    taking.entries.clear()
    await consumer.seek(0)
    await taking.come(1)
    assert taking.payloads == ["a", "b", "c"]


async def test_redelivery_of_single_entries_counts(cluster: Cluster) -> None:
    await cluster.publish("a", "b")
    consumer, taking = await cluster.consume(ConsumerType.Shared)
    await taking.come(2)
    consumer.redeliver(taking.places[1:])
    await taking.come(3)
    assert taking.payloads == ["a", "b", "b"]
    assert [one.redeliveries for one in taking.entries] == [0, 0, 1]


async def test_redelivery_of_everything_keeps_the_order(cluster: Cluster) -> None:
    await cluster.publish(*"abc")
    consumer, taking = await cluster.consume(ConsumerType.Exclusive)
    await taking.come(3)
    consumer.acknowledge(taking.places[:1])
    taking.entries.clear()
    consumer.redeliver_all()
    await taking.come(2)
    assert taking.payloads == ["b", "c"]


async def test_cumulative_acknowledgement(cluster: Cluster) -> None:
    await cluster.publish(*"abcd")
    consumer, taking = await cluster.consume(ConsumerType.Failover)
    await taking.come(4)
    consumer.acknowledge_up_to(taking.places[2])
    await consumer.flush()
    last, done = await consumer.last_message_id()
    assert (last.ledger, last.entry) == taking.places[3]
    assert done is not None
    assert (done.ledger, done.entry) == taking.places[2]


async def test_the_active_one_of_a_failover_subscription_changes(cluster: Cluster) -> None:
    await cluster.publish("a")
    one, first = await cluster.consume(ConsumerType.Failover)
    await until_async(lambda: first.actives[-1:] == [True])
    other, second = await cluster.consume(ConsumerType.Failover)
    await one.close()
    await until_async(lambda: second.actives[-1:] == [True])
    await second.come(1)
    await other.close()


async def test_the_end_of_a_terminated_topic(cluster: Cluster) -> None:
    await cluster.publish("a")
    consumer, taking = await cluster.consume()
    await taking.come(1)
    await cluster.admin("POST", "/terminate")
    consumer.acknowledge(taking.places)
    await until_async(lambda: taking.ends >= 1)
    assert taking.payloads == ["a"]


@pytest.mark.parametrize("inclusive", [False, True])
async def test_readers_begin_after_or_with_an_id_and_lose_and_repeat_nothing(
    cluster: Cluster, inclusive: bool
) -> None:
    await cluster.publish("a", "b", "c")
    probe, taking = await cluster.consume()
    await taking.come(3)
    ledger, entry = taking.places[0]
    await probe.close()
    reader, read = await cluster.consume(
        name="reader", durable=False, start=MessageId(ledger, entry), inclusive=inclusive
    )
    wanted = ["a", "b", "c"] if inclusive else ["b", "c"]
    await read.come(len(wanted))
    assert read.payloads == wanted
    await cluster.admin("PUT", "/unload")
    await cluster.publish("d")
    await read.come(len(wanted) + 1)
    assert read.payloads == [*wanted, "d"]
    assert read.resets == 0
    await reader.close()


async def test_a_reader_begins_within_a_batch(cluster: Cluster) -> None:
    await cluster.publish("a", "b", "c", batch=True)
    _, taking = await cluster.consume(name="r1", durable=False, start=EARLIEST)
    await taking.come(1)
    first = taking.entries[0]
    reader, read = await cluster.consume(
        name="r2", durable=False, start=MessageId(first.ledger, first.entry_id, -1, 1, 3)
    )
    await read.come(1)
    assert read.payloads == ["c"]
    await until_async(lambda: reader.permits == 99)


async def test_a_second_exclusive_consumer_is_refused(cluster: Cluster) -> None:
    await cluster.consume()
    with pytest.raises(errors.ConsumerBusy):
        await cluster.consume()


async def test_unsubscribing_deletes_the_subscription(cluster: Cluster) -> None:
    await cluster.publish("a")
    consumer, _ = await cluster.consume()
    await consumer.unsubscribe()
    assert (await cluster.admin("GET", "/subscriptions")).json() == []
