"""Consumers before a real Kafka, in one process: what they get, what stays acknowledged, and what administrators change."""

import asyncio
from collections import Counter

import pytest
from tests.support.kafka_bench import Client, bench
from tests.support.kafka_broker import KafkaCluster
from tests.support.waiting import until_async as until

from penstock.engines.kafka.topic import KafkaTopic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, DeadLetter, SubscriptionType
from penstock.wire import entry as wire

EXCLUSIVE, FAILOVER, SHARED, KEY_SHARED = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.FAILOVER,
    SubscriptionType.SHARED,
    SubscriptionType.KEY_SHARED,
)


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_acknowledged_messages_stay_so_and_the_others_are_redelivered_after_a_restart(
    kafka_cluster: KafkaCluster, kind: SubscriptionType
) -> None:
    async with bench(kafka_cluster) as one:
        first = await one.broker()
        sent = [f"m{number}" for number in range(10)]
        await one.publish(sent)
        client = await one.consume(first, kind)
        assert await client.come(10) == sent
        await client.acknowledge("m0", "m2", "m5", "m6", "m9")
        assert await one.marks() == {0: 1}
        await one.stop(first)  # with the consumer
        assert client.consumer.closed

        second = await one.broker()
        again = await one.consume(second, kind)
        assert await again.come(5) == ["m1", "m3", "m4", "m7", "m8"]
        await again.acknowledge()
        assert await one.marks() == {0: 10}


async def test_a_cursor_of_thousands_of_ranges_survives_a_restart(kafka_cluster: KafkaCluster) -> None:
    """A commit of Kafka's has 4 KB for them."""
    count = 20_000
    sent = [str(number) for number in range(count)]
    odd = set(sent[1::2])
    async with bench(kafka_cluster) as one:
        first = await one.broker()
        await one.publish(sent)
        client = await one.consume(first, window=count)
        await client.come(count)
        await client.consumer.acknowledge_all(client.ids[1::2])
        await client.consumer.flush()
        await one.stop(first)

        again = await one.consume(await one.broker(), window=count)
        await again.come(count // 2)
        assert not odd & set(again.texts)
        assert len(again.texts) == count // 2


async def test_consumers_of_one_partition_share_it(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        clients = [await one.consume(broker, window=2) for _ in range(3)]
        sent = [f"m{number}" for number in range(6)]
        await one.publish(sent)
        await until(lambda: sum(len(client.texts) for client in clients) >= 6)
        assert sorted(text for client in clients for text in client.texts) == sent
        assert [len(client.texts) for client in clients] == [2, 2, 2]

        left, right, _ = clients
        acknowledged, open_one = left.texts
        await left.acknowledge(acknowledged)
        await left.leave()
        await right.acknowledge()
        await until(lambda: any(open_one in client.texts for client in clients[1:]))
        assert not any(acknowledged in client.texts for client in clients[1:])
        with pytest.raises(PenstockError) as refused:
            await left.consumer.acknowledge(left.ids[1])
        assert refused.value.kind is ErrorKind.MESSAGE_NOT_FOUND


async def test_a_key_has_one_consumer_at_a_time(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        clients = [await one.consume(broker, KEY_SHARED) for _ in range(3)]
        await one.publish([f"k{number % 30}:{number // 30}" for number in range(300)], keys=True)
        await until(lambda: sum(len(client.texts) for client in clients) >= 300)
        keys = [{text.partition(":")[0] for text in client.texts} for client in clients]
        assert all(keys)
        assert sum(map(len, keys)) == len(set.union(*keys)) == 30
        for client in clients:
            assert client.texts == sorted(client.texts, key=lambda text: int(text.partition(":")[2]))


async def test_an_exclusive_consumer_is_alone(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker, EXCLUSIVE)
        for kind in (EXCLUSIVE, SHARED):
            with pytest.raises(PenstockError) as busy:
                await one.consume(broker, kind)
            assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await client.leave()
        await one.publish(["a"])
        assert await (await one.consume(broker, EXCLUSIVE)).come(1) == ["a"]


async def test_failover_goes_to_the_next_consumer(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        active, standby = [await one.consume(broker, FAILOVER) for _ in range(2)]
        await one.publish(["a", "b"])
        await until(lambda: len(active.texts) + len(standby.texts) >= 2)
        if not active.texts:
            active, standby = standby, active
        assert (active.texts, standby.texts) == (["a", "b"], [])
        (source,) = active.consumer.attached
        assert source.active is active.consumer
        await active.acknowledge("a")
        await active.leave()
        assert await standby.come(1) == ["b"]
        assert source.active is standby.consumer


@pytest.mark.parametrize("kind", [SHARED, KEY_SHARED, FAILOVER])
async def test_consumers_that_come_and_go_lose_nothing_and_get_nothing_acknowledged(
    kafka_cluster: KafkaCluster, kind: SubscriptionType
) -> None:
    keys, rounds = 12, 15
    async with bench(kafka_cluster, 4) as one:
        broker = await one.broker()
        done: set[str] = set()
        repeated: Counter[str] = Counter()
        order: dict[str, int] = {}
        stopping = asyncio.Event()

        async def work(leave_after: int) -> None:
            """Acknowledge what comes, and leave after so many messages."""
            options = ConsumerOptions(type=kind, start=EARLIEST, window=20)
            consumer = await broker.subscribe([one.topic], one.subscription, options)
            count = 0
            try:
                while count < leave_after and not stopping.is_set():
                    if not consumer.outbox:
                        await asyncio.sleep(0.005)  # other events end the wait, too
                        continue
                    for delivery in consumer.take(1):
                        (message,) = wire.decode(delivery.entry)
                        text = message.payload.decode()
                        if text in done:
                            repeated[text] += 1
                        await consumer.acknowledge(delivery.topic.id_of(delivery.entry, -1))
                        await consumer.flush()
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

        async def member(leave_after: int) -> None:
            while not stopping.is_set():
                await work(leave_after)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(publish())
            for leave_after in (10_000, 30, 7):
                tasks.create_task(member(leave_after))
            await until(lambda: len(done) >= keys * rounds, 200)
            stopping.set()
        assert not repeated, repeated
        assert sum((await one.marks()).values()) == keys * rounds


async def test_redeliveries_are_counted_until_the_message_is_a_dead_letter(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker, dead_letter=DeadLetter(2))
        await one.publish(["bad", "good"])
        await client.come(2)
        await client.acknowledge("good")
        for count in (1, 2, 3):
            client.consumer.negative(client.ids[0])
            if count <= 2:
                await until(lambda count=count: client.redeliveries[-1] == count)  # type: ignore[misc]
        assert client.texts == ["bad", "good", "bad", "bad"]
        letters = TopicName.parse(f"{one.name}-{one.subscription}-DLQ")
        reader = await one.consume(broker, topic=letters, subscription="letters")
        assert await reader.come(1) == ["bad"]
        async with asyncio.timeout(60):
            while await one.marks() != {0: 2}:  # the letter is there before its message is acknowledged
                await client.consumer.flush()


async def test_partitions_and_topics_that_come_later(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        broker = await one.broker()
        client = await one.consume(broker, start=LATEST)
        await broker.subscriptions.grow(one.topic, 3)
        await one.publish(["later"], 2)
        assert await client.come(1) == ["later"]

        options = ConsumerOptions(type=SHARED, start=EARLIEST)
        follower = await broker.subscribe_pattern(
            f"public/default/{one.name}-more.*",
            one.subscription,
            options,
            namespace=one.topic.namespace_name,
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
        await broker.subscriptions.create(one.topic, one.subscription, EARLIEST)
        with pytest.raises(PenstockError) as there:
            await broker.subscriptions.create(one.topic, one.subscription, EARLIEST)
        assert there.value.kind is ErrorKind.ALREADY_EXISTS
        found = await broker.subscriptions.of(one.topic, one.subscription)
        assert [source.backlog for source in found] == [3, 0]
        await found[0].move(2)
        assert (await one.marks())[0] == 2
        client = await one.consume(broker)
        assert await client.come(1) == ["c"]
        await client.consumer.seek(EARLIEST)
        assert await client.come(4) == ["c", "a", "b", "c"]

        with pytest.raises(PenstockError) as busy:
            await broker.subscriptions.delete(one.topic, one.subscription)
        assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await broker.subscriptions.delete(one.topic, one.subscription, force=True)
        assert client.consumer.close_reason is not None
        assert client.consumer.close_reason.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        with pytest.raises(PenstockError) as gone:
            await broker.subscriptions.of(one.topic, one.subscription)
        assert gone.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        assert await one.marks() == {}


async def test_a_subscription_with_consumers_is_moved_and_skipped(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker)
        await one.publish(["a", "b", "c"])
        await client.come(3)
        (source,) = await broker.subscriptions.of(one.topic, one.subscription)
        source.skip(2)
        await source.flush()
        await source.refresh()
        assert (source.cursor.mark, source.unacked, await one.marks()) == (2, 1, {0: 2})
        await source.seek(EARLIEST)
        assert await client.come(6) == ["a", "b", "c"] * 2
        log = await broker.topics.get(one.topic)
        with pytest.raises(PenstockError) as shared:
            await broker.subscriptions.set_mark(log, one.subscription, 1, exact=True)
        assert shared.value.kind is ErrorKind.BAD_PARAMETER
        await broker.subscriptions.delete(one.topic, one.subscription, force=True)
        again = await one.consume(broker, start=LATEST)
        await one.publish(["d"])
        assert await again.come(1) == ["d"]


async def test_a_seek_of_any_consumer_is_one_of_all(kafka_cluster: KafkaCluster) -> None:
    sent = [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
    async with bench(kafka_cluster, 2) as one:
        broker = await one.broker()
        clients = [await one.consume(broker, FAILOVER) for _ in range(2)]
        for partition, texts in enumerate(sent):
            await one.publish(texts, partition)
        await until(lambda: sum(len(client.texts) for client in clients) == 6)
        for client in clients:
            await client.acknowledge()
        left, right = clients
        await left.consumer.seek(EARLIEST)
        await until(lambda: sum(len(client.texts) for client in clients) == 12)
        assert sorted(left.texts + right.texts) == sorted([*sent[0], *sent[1]] * 2)
        of_the_second = next(
            message_id for message_id in [*left.ids, *right.ids] if message_id.partition == 1
        )
        await left.consumer.seek(of_the_second)  # after its first message, whoever has that partition
        await until(lambda: sum(len(client.texts) for client in clients) == 14)
        await right.consumer.seek(0)
        await until(lambda: sum(len(client.texts) for client in clients) == 20)
        await right.consumer.seek(LATEST)
        assert await one.marks() == {0: 3, 1: 3}


async def test_the_same_name_on_another_topic_is_another_subscription(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        other = TopicName.parse(f"{one.name}-other")
        await broker.topics.create(other, 0)
        for topic in (one.topic, other):
            await broker.subscriptions.create(topic, one.subscription, EARLIEST)
        kept = await one.consume(broker, EXCLUSIVE, topic=other)
        await broker.subscriptions.delete(one.topic, one.subscription)
        with pytest.raises(PenstockError):
            await broker.subscriptions.of(one.topic, one.subscription)
        await one.publish(["before"])
        client = await one.consume(broker, start=LATEST)  # of another type, too
        await one.publish(["after"])
        assert await client.come(1) == ["after"]
        assert not kept.texts
        assert not kept.consumer.closed


async def test_consumers_that_come_back_to_a_deleted_subscription_begin_anew(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker)
        await one.publish(["a"])
        await client.come(1)
        await client.acknowledge()

        async def come_back() -> None:
            while await client.consumer.ready():
                client.consumer.take()
            assert await (await one.consume(broker)).come(1) == ["a"]

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(come_back())
            await broker.subscriptions.delete(one.topic, one.subscription, force=True)


async def test_consumers_that_begin_at_the_end_at_once_begin_at_one_place(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        await one.publish(["before"])
        clients: list[Client] = []

        async def begin() -> None:
            clients.append(await one.consume(broker, start=LATEST))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(5):
                tasks.create_task(begin())
        sent = [f"after{number}" for number in range(20)]
        await one.publish(sent)
        await until(lambda: sum(len(client.texts) for client in clients) >= len(sent))
        assert sorted(text for client in clients for text in client.texts) == sorted(sent)


async def test_consumers_of_single_partitions_begin_where_they_say(kafka_cluster: KafkaCluster) -> None:
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
            await source.refresh()
            assert (source.cursor.mark, await one.marks()) == (offset, {0: offset})
        assert (await (await one.consume(broker)).come(2))[:2] == ["b", "c"]


async def test_readers_keep_nothing_and_need_no_owner(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster, 2) as one:
        first, second = await one.broker(), await one.broker()
        await one.publish(["a"], 0)
        await one.publish(["b"], 1)
        for broker in (first, second):
            reader = await one.consume(broker, EXCLUSIVE, durable=False, auto_ack=True)
            await reader.come(2)
            assert sorted(reader.texts) == ["a", "b"]
        assert await one.marks() == {}


async def test_a_deleted_topic_closes_consumers_that_have_no_other(kafka_cluster: KafkaCluster) -> None:
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        other = TopicName.parse(f"{one.name}-other")
        await broker.topics.create(other, 0)
        alone = await one.consume(broker)
        options = ConsumerOptions(type=SHARED, start=EARLIEST)
        both = await broker.subscribe([one.topic, other], one.subscription, options)
        await broker.administration.delete_topic(one.topic, force=True)
        await until(lambda: alone.consumer.closed)
        assert alone.consumer.close_reason is not None
        assert alone.consumer.close_reason.kind is ErrorKind.TOPIC_NOT_FOUND
        assert not both.closed
        one.name = other.local
        await one.publish(["of the other"])
        assert await Client(broker, both).come(1) == ["of the other"]


async def test_subscriptions_and_their_properties_are_known_after_a_restart(
    kafka_cluster: KafkaCluster,
) -> None:
    async with bench(kafka_cluster) as one:
        first = await one.broker()
        await one.publish(["a", "b"])
        client = await one.consume(first, subscription_properties={"team": "a"})
        await client.come(2)
        await client.acknowledge("a")
        (source,) = await first.subscriptions.of(one.topic, one.subscription)
        await source.refresh()
        assert source.properties == {"team": "a"}
        await source.set_properties({"team": "b"})
        await one.stop(first)

        second = await one.broker()
        await second.topics.learn(one.topic, whole=True)
        topic = await second.topics.get(one.topic)
        known = topic.subscriptions[one.subscription]
        assert (known.backlog, known.properties) == (1, {"team": "b"})
        await second.subscriptions.delete(one.topic, one.subscription)
        await second.topics.learn(one.topic, whole=True)
        assert one.subscription not in topic.subscriptions


async def test_the_cluster_is_not_asked_for_a_subscription_with_consumers(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each acknowledgement over REST looks for it."""
    async with bench(kafka_cluster) as one:
        broker = await one.broker()
        client = await one.consume(broker)

        async def asked(*_: object) -> None:
            raise AssertionError("the cluster was asked")

        with monkeypatch.context() as patched:
            patched.setattr(KafkaTopic, "refresh", asked)
            (here,) = await broker.subscriptions.of(one.topic, one.subscription)
            assert len(here.consumers) == 1
        await client.leave()
        with monkeypatch.context() as patched:
            patched.setattr(KafkaTopic, "refresh", asked)
            with pytest.raises(AssertionError, match="asked"):
                await broker.subscriptions.of(one.topic, one.subscription)
