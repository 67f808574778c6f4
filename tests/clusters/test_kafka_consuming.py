"""Subscriptions as consumer groups of a real Kafka: two processes of ours are two brokers in this one."""

import asyncio
from collections import Counter

import pytest
from tests.support.kafka_bench import Bench, Client, bench
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until_async as until

from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.driver.groups import KafkaGroups
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.wire import entry as wire

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
    SubscriptionType.KEY_SHARED,
)


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_what_is_acknowledged_stays_so_and_the_rest_comes_again(
    kafka_cluster: KafkaCluster, kind: SubscriptionType
) -> None:
    async with bench(kafka_cluster) as one:
        first = await one.broker()
        sent = [f"m{number}" for number in range(10)]
        await one.publish(sent)
        client = await one.consume(first, kind)
        assert await client.come(10) == sent
        await client.acknowledge("m0", "m2", "m5", "m6", "m9")
        assert await one.committed() == {0: 1}
        await client.leave()
        await one.no_members()
        await one.stop(first)

        second = await one.broker()
        again = await one.consume(second, kind)
        assert await again.come(5) == ["m1", "m3", "m4", "m7", "m8"]
        await again.acknowledge()
        assert await one.committed() == {0: 10}


async def test_kafkas_own_tool_shows_lag_and_offsets(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker, start=LATEST)
        await one.publish(["a", "b", "c"])
        await client.come(3)
        await client.acknowledge("a")
        shown = await asyncio.to_thread(kafka_cluster.tool, GROUPS, "--describe", "--group", one.group)
        (line,) = [line.split() for line in shown.splitlines() if one.name in line.split()]
        assert line[:6] == [one.group, one.name, "0", "1", "3", "2"]


async def test_two_processes_share_partitions_and_hand_them_over(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 4) as one:
        first, second = await one.broker(), await one.broker()
        left = await one.consume(first)
        right = await one.consume(second)

        def held(client: Client) -> int:
            return sum(not source.suspended for source in client.consumer.attached)

        await until(lambda: held(left) == held(right) == 2)
        for partition in range(4):
            await one.publish([f"{partition}:{number}" for number in range(5)], partition)
        await until(lambda: len(left.texts) + len(right.texts) >= 20)
        assert len(left.texts) == len(right.texts) == 10
        assert not set(left.texts) & set(right.texts)

        acknowledged = left.texts[::2]
        await left.acknowledge(*acknowledged)
        await left.leave()
        await right.come(15)
        assert sorted(right.texts[10:]) == sorted(set(left.texts) - set(acknowledged))
        with pytest.raises(PenstockError) as refused:
            await left.consumer.acknowledge(left.ids[1])
        assert refused.value.kind is ErrorKind.MESSAGE_NOT_FOUND


async def test_exclusive_is_for_one_process(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        client = await one.consume(first, EXCLUSIVE)
        for kind in (EXCLUSIVE, SHARED):
            with pytest.raises(PenstockError) as busy:
                await one.consume(second, kind)
            assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await client.leave()
        await one.no_members()
        await one.publish(["a"])
        assert await (await one.consume(second, EXCLUSIVE)).come(1) == ["a"]


async def test_failover_goes_to_the_other_process(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        active, standby = await one.consume(first, FAILOVER), await one.consume(second, FAILOVER)
        await one.publish(["a", "b"])
        await until(lambda: len(active.texts) + len(standby.texts) >= 2)
        if not active.texts:
            active, standby = standby, active
        assert (active.texts, standby.texts) == (["a", "b"], [])
        await until(lambda: (active.consumer.waiting, standby.consumer.waiting) == (False, True))
        await active.acknowledge("a")
        await active.leave()
        assert await standby.come(1) == ["b"]
        await until(lambda: not standby.consumer.waiting)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
async def test_rebalances_under_load_lose_nothing_and_repeat_nothing_acknowledged(
    kafka_cluster: KafkaCluster, kind: SubscriptionType
) -> None:
    keys, rounds = 12, 15
    async with bench(kafka_cluster, 4) as one:
        brokers = [await one.broker() for _ in range(2)]
        done: set[str] = set()
        repeated: Counter[str] = Counter()
        order: dict[str, int] = {}
        stopping = asyncio.Event()

        async def work(broker: KafkaBroker, leave_after: int) -> None:
            """Acknowledge what comes, and leave after so many messages."""
            options = ConsumerOptions(type=kind, start=EARLIEST, window=20)
            consumer = await broker.subscribe([one.topic], one.group, options)
            count = 0
            try:
                while count < leave_after and not stopping.is_set():
                    if not consumer.outbox:
                        await asyncio.sleep(0.005)  # other events end the wait, too
                        continue
                    for delivery in consumer.take(1):  # what waits in the outbox goes as its partition does
                        (message,) = wire.decode(delivery.entry)
                        text = message.payload.decode()
                        if text in done:
                            repeated[text] += 1
                        try:
                            await consumer.acknowledge(delivery.topic.id_of(delivery.entry, -1))
                            await consumer.flush()
                        except PenstockError:
                            continue
                        key, _, number = text.partition(":")
                        if kind is not SHARED:
                            assert order.get(key, -1) < int(number)
                            order[key] = int(number)
                        done.add(text)
                        count += 1
            finally:
                await consumer.leave()

        async def publish() -> None:
            for number in range(rounds):
                await one.publish([f"k{key}:{number}" for key in range(keys)], keys=True)

        async def member(broker: KafkaBroker, leave_after: int) -> None:
            while not stopping.is_set():
                await work(broker, leave_after)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish())
            tasks.create_task(member(brokers[0], 10_000))
            tasks.create_task(member(brokers[1], 30))
            await until(lambda: len(done) >= keys * rounds, 240)
            stopping.set()
        assert not repeated, repeated


async def test_partitions_and_topics_that_come_later(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        broker = await one.broker()
        client = await one.consume(broker, start=LATEST)
        await broker.subscriptions.grow(one.topic, 3)
        await one.publish(["later"], 2)
        assert await client.come(1) == ["later"]

        options = ConsumerOptions(type=SHARED, start=EARLIEST)
        follower = await broker.subscribe_pattern(
            f"public/default/{one.name}-more.*", one.group, options, namespace=one.topic.namespace_name
        )
        more = TopicName.parse(f"{one.name}-more1")
        await broker.topics.create(more, 0)
        one.name += "-more1"
        await one.publish(["of a topic that came"])
        assert await Client(broker, follower).come(1) == ["of a topic that came"]


async def test_administration(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        broker = await one.broker()
        await one.publish(["a", "b", "c"], 0)
        await broker.subscriptions.create(one.topic, one.group, EARLIEST)
        with pytest.raises(PenstockError) as there:
            await broker.subscriptions.create(one.topic, one.group, EARLIEST)
        assert there.value.kind is ErrorKind.ALREADY_EXISTS
        found = await broker.subscriptions.of(one.topic, one.group)
        assert [source.backlog for source in found] == [3, 0]
        await found[0].move(2)
        assert (await one.committed())[0] == 2
        client = await one.consume(broker)
        assert await client.come(1) == ["c"]
        await client.consumer.seek(EARLIEST)
        assert await client.come(4) == ["c", "a", "b", "c"]

        with pytest.raises(PenstockError) as busy:
            await broker.subscriptions.delete(one.topic, one.group)
        assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await broker.subscriptions.delete(one.topic, one.group, force=True)
        assert client.consumer.close_reason is not None
        with pytest.raises(PenstockError) as gone:
            await broker.subscriptions.of(one.topic, one.group)
        assert gone.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        assert await one.committed() == {}


async def test_a_subscription_of_two_topics_is_deleted_of_one(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        other = TopicName.parse(f"{one.name}-other")
        await broker.topics.create(other, 0)
        for topic in (one.topic, other):
            await broker.subscriptions.create(topic, one.group, EARLIEST)
        kept = await one.consume(broker, topic=other)
        await broker.subscriptions.delete(one.topic, one.group)
        with pytest.raises(PenstockError):
            await broker.subscriptions.of(one.topic, one.group)
        await one.publish(["before"])
        client = await one.consume(broker, start=LATEST)
        await one.publish(["after"])
        assert await client.come(1) == ["after"]
        assert not kept.texts


async def test_readers_need_no_group(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        first, second = await one.broker(), await one.broker()
        await one.publish(["a"], 0)
        await one.publish(["b"], 1)
        for broker in (first, second):
            reader = await one.consume(broker, EXCLUSIVE, durable=False, auto_ack=True)
            await reader.come(2)
            assert sorted(reader.texts) == ["a", "b"]
        assert await one.committed() == {}


async def test_a_topic_that_is_deleted_takes_along_who_has_no_other(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        other = TopicName.parse(f"{one.name}-other")
        await broker.topics.create(other, 0)
        alone = await one.consume(broker)
        options = ConsumerOptions(type=SHARED, start=EARLIEST)
        both = await broker.subscribe([one.topic, other], one.group, options)
        await broker.administration.delete_topic(one.topic, force=True)
        await until(lambda: alone.consumer.closed)
        assert alone.consumer.close_reason is not None
        assert alone.consumer.close_reason.kind is ErrorKind.TOPIC_NOT_FOUND
        assert not both.closed
        one.name = other.local
        await one.publish(["of the other"])
        assert await Client(broker, both).come(1) == ["of the other"]


async def test_groups_with_commits_are_the_subscriptions_of_a_topic(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        await one.publish(["a", "b"])
        client = await one.consume(first)
        await client.come(2)
        await client.acknowledge("a")
        await second.topics.learn_whole(one.topic)
        topic = await second.topics.get(one.topic)
        assert topic.subscriptions[one.group].backlog == 1
        assert topic.subscriptions[one.group].type is SHARED
        with pytest.raises(PenstockError) as busy:
            await second.subscriptions.delete(one.topic, one.group)
        assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await client.leave()
        await one.no_members()
        await second.subscriptions.delete(one.topic, one.group)
        await second.topics.learn_whole(one.topic)
        assert one.group not in topic.subscriptions


async def test_properties_of_a_subscription_are_the_same_in_every_process(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        first, second = await one.broker(), await one.broker()
        await one.consume(first, subscription_properties={"team": "a"})
        await shown(second, one, {"team": "a"})
        (there,) = await second.subscriptions.of(one.topic, one.group)
        await there.set_properties({"team": "b"})
        await shown(first, one, {"team": "b"})


async def test_a_subscription_with_consumers_here_is_not_asked_for(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each acknowledgement over REST looks for it."""
    async with bench(kafka_cluster) as one:
        broker, other = await one.broker(), await one.broker()
        await one.consume(broker)
        (there,) = await other.subscriptions.of(one.topic, one.group)

        async def asked(*_: object) -> None:
            raise AssertionError("the cluster was asked")

        with monkeypatch.context() as patched:
            patched.setattr(KafkaGroups, "committed", asked)
            (here,) = await broker.subscriptions.of(one.topic, one.group)
            with pytest.raises(AssertionError, match="asked"):
                await other.subscriptions.of(one.topic, one.group)
        assert (len(here.consumers), len(there.consumers)) == (1, 0)


async def shown(broker: KafkaBroker, one: Bench, properties: dict[str, str]) -> None:
    """Wait until a process has heard of the properties of the test's subscription."""
    async with asyncio.timeout(60):
        while True:
            (source,) = await broker.subscriptions.of(one.topic, one.group)
            if source.properties == properties:
                return
            await asyncio.sleep(0.01)  # documents of other processes come when they come
