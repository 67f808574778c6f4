"""What is done with a subscription through a process that has not its partitions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.kafka_bench import Bench, Client, bench
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until_async as until

from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.driver.record import At
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName


def held(client: Client) -> int:
    """How many partitions the process of a consumer has."""
    return sum(not source.suspended for source in client.consumer.attached)


async def both(one: Bench) -> tuple[Client, Client]:
    """A consumer at each of two processes, which have a partition each."""
    made = [await one.consume(await one.broker()) for _ in range(2)]
    await until(lambda: [held(client) for client in made] == [1, 1])
    return made[0], made[1]


async def test_a_seek_of_any_consumer_moves_the_partitions_of_all_processes(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster, 2) as one:
        left, right = await both(one)
        sent = [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
        for partition, texts in enumerate(sent):
            await one.publish(texts, partition)
        for client in (left, right):
            await client.come(3)
            await client.acknowledge()
        await left.consumer.seek(EARLIEST)
        for client in (left, right):
            first = client.texts[:3]
            assert await client.come(6) == first * 2
        other = right.ids[0]
        await left.consumer.seek(other)  # of the partition that the other process has
        assert await right.come(8) == right.texts[:3] * 2 + right.texts[1:3]
        await right.consumer.seek_time(0)
        assert (await left.come(9))[6:] == left.texts[:3]
        await right.consumer.seek(LATEST)
        assert set((await one.committed()).values()) == {3}


async def test_an_administrator_moves_skips_and_deletes_at_any_process(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        client = await one.consume(first)
        await one.publish(["a", "b", "c"])
        await client.come(3)
        (source,) = await second.subscriptions.of(one.topic, one.group)
        source.skip(2)
        await source.flush()
        assert (source.cursor.mark, await one.committed()) == (2, {0: 2})
        (there,) = client.consumer.attached
        assert (there.cursor.mark, there.unacked) == (2, 1)
        await source.seek(EARLIEST)
        assert source.cursor.mark == 0
        assert await client.come(6) == ["a", "b", "c"] * 2
        log = await second.topics.get(one.topic)
        await second.subscriptions.set_mark(log, one.group, 1, exact=True)
        assert await one.committed() == {0: 1}

        with pytest.raises(PenstockError) as busy:
            await second.subscriptions.delete(one.topic, one.group)
        assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        assert not client.consumer.closed
        await second.subscriptions.delete(one.topic, one.group, force=True)
        assert client.consumer.close_reason is not None
        assert client.consumer.close_reason.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        assert await one.committed() == {}
        again = await one.consume(first, start=LATEST)
        await one.publish(["d"])
        assert await again.come(1) == ["d"]


async def test_who_has_only_other_topics_commits_for_a_group_with_members(
    kafka_cluster: KafkaCluster,
) -> None:
    """Kafka takes commits of a group that has members from those alone, also for a topic that none of them consumes."""
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        other = TopicName.parse(f"{one.name}-other")
        await first.topics.create(other, 0)
        for topic in (one.topic, other):
            await first.subscriptions.create(topic, one.group, EARLIEST)
        await one.publish(["a", "b"])
        client = await one.consume(first, topic=other)
        (source,) = await second.subscriptions.of(one.topic, one.group)
        await source.move(1)
        committed = await first.cluster.groups.committed(one.group, [source.at])
        assert committed[source.at].offset == 1
        await second.subscriptions.delete(one.topic, one.group)
        with pytest.raises(PenstockError) as gone:
            await second.subscriptions.of(one.topic, one.group)
        assert gone.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        assert not client.consumer.closed


async def test_consumers_that_come_back_wait_until_a_subscription_is_deleted(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        client = await one.consume(first)
        await one.publish(["a"])
        await client.come(1)

        async def come_back() -> None:
            while await client.consumer.ready():
                client.consumer.take()
            assert await (await one.consume(first)).come(1) == ["a"]

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(come_back())
            await second.subscriptions.delete(one.topic, one.group, force=True)


async def test_two_processes_that_begin_at_the_end_begin_at_one_place(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have found no cursor, and one has answered its client, before the other one stores where it begins."""
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        await one.publish(["before"])
        found, go_on = asyncio.Event(), asyncio.Event()
        agreed = second.subscriptions._beginnings.agreed

        @asynccontextmanager
        async def later(group: str, wanted: dict[At, int]) -> AsyncIterator[dict[At, int]]:
            async with agreed(group, wanted) as starts:
                found.set()
                await go_on.wait()
                yield starts

        monkeypatch.setattr(second.subscriptions._beginnings, "agreed", later)
        clients: list[Client] = []

        async def begin(broker: KafkaBroker) -> None:
            clients.append(await one.consume(broker, start=LATEST))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(begin(second))
            await found.wait()
            await one.publish(["between"])
            await begin(first)
            await one.publish(["after"])
            go_on.set()
        await until(lambda: {text for one in clients for text in one.texts} >= {"between", "after"})
        assert not any("before" in one.texts for one in clients)


async def test_consumers_of_single_partitions_all_begin_where_they_say(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        broker = await one.broker()
        for partition in range(2):
            await one.publish(["before"], partition)
        names = broker.topics.logs(one.topic)
        clients = [await one.consume(broker, topic=name, start=LATEST) for name in names]
        for partition in range(2):
            await one.publish([f"after{partition}"], partition)
        await until(lambda: all(client.texts for client in clients))
        assert [client.texts for client in clients] == [["after0"], ["after1"]]


async def test_a_cursor_is_moved_while_the_last_consumer_leaves(kafka_cluster: KafkaCluster) -> None:
    """As at a SEEK of Pulsar's protocol, which closes the consumer first."""
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        await one.publish(["a", "b", "c"])
        for offset in (2, 0, 3, 1):
            client = await one.consume(broker)
            (source,) = client.consumer.attached
            await client.leave()
            await source.move(offset)
            assert (source.cursor.mark, await one.committed()) == (offset, {0: offset})
        assert (await (await one.consume(broker)).come(2))[:2] == ["b", "c"]
