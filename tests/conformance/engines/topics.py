"""Topics: which there are, partitions and their growth, patterns, and topics that end."""

import asyncio
from collections import defaultdict

import pytest

from penstock.broker.capability import Capability
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType

from .bench import Bench, EngineTests, kinds, refused, stored, texts, until


class TopicTests(EngineTests):
    """Tests of `Topics`, of partitions, and of termination."""

    async def test_a_topic_is_there_once_it_is_used(self, bench: Bench) -> None:
        topics = bench.broker.topics
        await topics.learn(bench.topic)
        assert not topics.exists(bench.topic)
        with pytest.raises(PenstockError) as caught:
            await topics.get(bench.topic, create=False)
        assert caught.value.kind is ErrorKind.TOPIC_NOT_FOUND
        await bench.publish("a")
        await topics.learn(bench.topic)

        assert topics.exists(bench.topic)
        assert topics.partitions(bench.topic) == 0
        await topics.learn_names(bench.topic.namespace_name)
        assert bench.topic in topics.names(bench.topic.namespace_name)

    async def test_partitions_are_logs_of_their_own(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 3)
        assert bench.broker.topics.partitions(bench.topic) == 3
        names = [bench.topic.of_partition(number) for number in range(3)]
        assert bench.broker.topics.logs(bench.topic) == names
        producer = await bench.producer()
        results = await producer.publish(
            [OutMessage(payload=b"%d" % number, partition=number) for number in (0, 1, 2, 1)]
        )
        ids = stored(results)

        assert [one.partition for one in ids] == [0, 1, 2, 1]
        assert [await bench.contents(name) for name in names] == [["0"], ["1", "1"], ["2"]]
        with pytest.raises(PenstockError) as caught:
            await bench.broker.topics.get(bench.topic)
        assert caught.value.kind is ErrorKind.BAD_PARAMETER
        with pytest.raises(PenstockError) as caught:
            await bench.producer(bench.topic.of_partition(3))
        assert caught.value.kind is ErrorKind.PARTITION_NOT_FOUND
        bad = kinds(await producer.publish([OutMessage(payload=b"x", partition=3)]))
        assert bad == [ErrorKind.PARTITION_NOT_FOUND]

    async def test_a_key_has_one_partition_and_its_order(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 3)
        producer = await bench.producer()
        client = await bench.consume()
        for number in range(5):
            keys = [OutMessage(payload=f"k{n}:{number}".encode(), key=f"k{n}") for n in range(12)]
            stored(await producer.publish(keys))
        await client.come(60)

        by_key: dict[str, list[str]] = defaultdict(list)
        places: dict[str, set[int]] = defaultdict(set)
        for one in client.received:
            key, _, number_text = one.text.partition(":")
            by_key[key].append(number_text)
            places[key].add(one.id.partition)
        assert all(numbers == list("01234") for numbers in by_key.values())
        assert all(len(one) == 1 for one in places.values())
        assert {one for found in places.values() for one in found} == {0, 1, 2}

    async def test_ids_find_their_partition(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 3)
        client = await bench.consume(SubscriptionType.SHARED)
        producer = await bench.producer()
        stored(await producer.publish([OutMessage(payload=b"%d" % n, partition=n) for n in (0, 1, 2)]))
        await client.come(3)

        assert len(client.consumer.attached) == 3
        for one in client.received:
            assert client.consumer.source_of(one.id).topic.name.partition == one.id.partition == int(one.text)
        await client.acknowledge("0", "2")
        assert client.consumer.negative(client.id_of("1"), 0)
        assert (await client.come(4))[3] == "1"
        await client.acknowledge("1")
        assert client.consumer.figures().unacked == 0

    async def test_a_topic_grows_under_its_clients(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 1)
        producer = await bench.producer()
        client = await bench.consume(SubscriptionType.SHARED)
        await bench.broker.subscriptions.grow(bench.topic, 3)
        await until(lambda: len(producer.topics) == 3)
        stored(await producer.publish([OutMessage(payload=b"%d" % n, partition=n) for n in (0, 1, 2)]))

        assert sorted(await client.come(3)) == ["0", "1", "2"]
        assert bench.broker.topics.partitions(bench.topic) == 3
        with pytest.raises(PenstockError):
            await bench.broker.subscriptions.grow(bench.topic, 2)

    async def test_a_pattern_gets_topics_that_come_later(self, bench: Bench) -> None:
        first, second = [TopicName.parse(f"{bench.topic}-{number}") for number in (1, 2)]
        await bench.publish("a", topic=first)
        consumer = await bench.broker.subscribe_pattern(
            f"{bench.topic.tenant}/{bench.topic.namespace}/{bench.topic.local}-[0-9]",
            "s",
            ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST),
            namespace=bench.topic.namespace_name,
        )
        client = bench.client(consumer)
        assert await client.come(1) == ["a"]
        await bench.publish("b", topic=second)
        await bench.publish("no", topic=TopicName.parse(f"{bench.topic}-x"))

        assert await client.come(2) == ["a", "b"]
        assert {one.topic.name for one in consumer.attached} == {first, second}

    async def test_a_topic_that_is_terminated(self, bench: Bench) -> None:
        producer = await bench.producer()
        stored(await producer.publish(texts("a", "b")))
        client = await bench.consume()
        ended = asyncio.Event()
        client.consumer.end_reached = ended.set
        await client.come(2)
        if not bench.can(Capability.TERMINATION):
            await refused(bench.broker.topics.terminate(bench.topic))
            return
        await bench.broker.topics.terminate(bench.topic)

        assert kinds(await producer.publish(texts("c"))) == [ErrorKind.TOPIC_TERMINATED]
        with pytest.raises(PenstockError) as caught:
            await bench.producer()
        assert caught.value.kind is ErrorKind.TOPIC_TERMINATED
        assert await bench.contents() == ["a", "b"]
        assert (await bench.log()).bounds.terminated
        await client.acknowledge()
        await asyncio.wait_for(ended.wait(), 60)
        assert client.consumer.drained
        late = await bench.consume(subscription="late")
        assert await late.come(2) == ["a", "b"]
        await late.acknowledge()
        await until(lambda: late.consumer.drained)

    async def test_a_terminated_topic_with_partitions(self, bench: Bench) -> None:
        await bench.broker.topics.create(bench.topic, 2)
        producer = await bench.producer()
        stored(await producer.publish([OutMessage(payload=b"%d" % n, partition=n) for n in (0, 1)]))
        client = await bench.consume()
        await client.come(2)
        if not bench.can(Capability.TERMINATION):
            await refused(bench.broker.topics.terminate(bench.topic))
            return
        assert len(await bench.broker.topics.terminate(bench.topic)) == 2
        await client.acknowledge()

        await until(lambda: client.consumer.drained)
        results = await producer.publish([OutMessage(payload=b"x", partition=n) for n in (0, 1)])
        assert kinds(results) == [ErrorKind.TOPIC_TERMINATED] * 2

    async def test_a_namespace_that_is_not_there(self, bench: Bench) -> None:
        nowhere = TopicName.parse(f"persistent://{bench.topic.tenant}/nowhere-at-all/t")
        with pytest.raises(PenstockError) as caught:
            await bench.producer(nowhere)
        assert caught.value.kind in (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND)
