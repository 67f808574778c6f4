"""Members of Kafka's own consumer groups: they share partitions and offsets with Kafka's clients, in both directions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.kafka_broker import KafkaCluster
from tests.support.registry_clients import Foreign, avro, broker_before, encoded, framed, new_name
from tests.support.waiting import until_async

from penstock.broker.groups import Committed, Edge, GroupMember, GroupOptions, GroupRecord, Since
from penstock.broker.groups import TopicPartition as Partition
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.kafka.broker import KafkaBroker
from penstock.engines.kafka.internal import owner_group
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.runtime.clock import LoopClock

BYTES_MAX = 64 * 1024 * 1024
ALL = Edge.BEGINNING


class World:
    """One process before the broker, with topics and groups that no other test has."""

    def __init__(self, cluster: KafkaCluster, broker: KafkaBroker, prefix: str) -> None:
        self.cluster = cluster
        self.broker = broker
        self.prefix = prefix
        self.group = f"{prefix}group"
        self.producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    async def topic(self, name: str = "orders", partitions: int = 4) -> TopicName:
        made = TopicName.parse(f"{self.prefix}{name}")
        await self.broker.topics.create(made, partitions)
        return made

    def fill(self, topic: TopicName, partitions: int, count: int, first: int = 0) -> None:
        """Records `partition:offset`."""
        for offset in range(first, first + count):
            for partition in range(partitions):
                self.producer.produce(topic.local, f"{partition}:{offset}", partition=partition)
        assert self.producer.flush(60) == 0

    async def join(self, group: str = "", *, start: Edge = ALL, auto_commit: bool = False) -> GroupMember:
        return await self.broker.groups.join(
            group or self.group, GroupOptions(name="tests", start=start, auto_commit=auto_commit)
        )

    @contextlib.contextmanager
    def client(self, *topics: TopicName, group: str = "", **own: object) -> Iterator[Consumer]:
        """Kafka's own client, as a member of the group."""
        made = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": group or self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **own,
            }
        )
        if topics:
            made.subscribe([topic.local for topic in topics])
        try:
            yield made
        finally:
            made.close()


@pytest.fixture
async def world(kafka_cluster: KafkaCluster) -> AsyncIterator[World]:
    prefix = f"t{uuid4().hex[:10]}."
    settings = ClusterSettings(
        url=kafka_cluster.service_url, learned_ms=0, documents_topic=f"__{prefix}documents"
    )
    broker = KafkaBroker(settings, BrokerSettings(), LoopClock())
    await broker.start()
    try:
        yield World(kafka_cluster, broker, prefix)
    finally:
        await broker.close()


async def fetched(member: GroupMember, count: int, wait_ms: int = 60_000) -> list[GroupRecord]:
    """The next records, so many at least."""
    found: list[GroupRecord] = []
    while len(found) < count:
        some = await member.fetch(wait_ms, BYTES_MAX)
        assert some, f"{len(found)} of {count} records came"
        found += some
    return found


async def test_a_fetch_waits_for_bytes(world: World) -> None:
    topic = await world.topic(partitions=1)
    world.fill(topic, 1, 1)
    member = await world.join()
    await member.assign([Partition(topic, 0)])
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(member.fetch(60_000, BYTES_MAX, 9))
        await asyncio.sleep(0.3)
        assert not fetching.done()
        world.fill(topic, 1, 2, first=1)
    assert [record.value for record in fetching.result()] == [b"0:0", b"0:1", b"0:2"]
    world.fill(topic, 1, 1, first=3)
    assert [record.value for record in await member.fetch(2000, BYTES_MAX, 9)] == [b"0:3"], "the time is over"
    headers = [("h", b"x" * 1000)]
    for number in range(3):
        world.producer.produce(topic.local, str(number), headers=headers)
    assert world.producer.flush(60) == 0
    assert len(await member.fetch(60_000, 500)) == 1, "headers count"
    await member.close()


async def polled(client: Consumer, holds: Callable[[], object]) -> None:
    """Have Kafka's own client take part until `holds()` is true; no records come."""
    async with asyncio.timeout(60):
        while not holds():
            assert await asyncio.to_thread(client.poll, 0.1) is None


def texts(records: Sequence[GroupRecord]) -> list[str]:
    return [(one.value or b"").decode() for one in records]


def offsets(partitions: Sequence[int | None], topic: TopicName) -> dict[Partition, Committed]:
    return {
        Partition(topic, number): Committed(offset)
        for number, offset in enumerate(partitions)
        if offset is not None
    }


async def test_offsets_are_those_of_kafkas_own_clients(world: World) -> None:
    topic = await world.topic()
    world.fill(topic, 4, 5)
    everything = [Partition(topic, number) for number in range(4)]
    member = await world.join()
    await member.subscribe([topic])
    found = await fetched(member, 20)
    assert sorted(texts(found)) == sorted(f"{p}:{n}" for p in range(4) for n in range(5))
    assert [one.offset for one in found if one.partition == 2] == [0, 1, 2, 3, 4]
    assert member.assignment == everything
    assert await member.committed(everything) == {}
    await member.commit({Partition(topic, 0): Committed(2, "who"), Partition(topic, 3): Committed(5)})
    with world.client() as client:
        theirs = client.committed([TopicPartition(topic.local, number) for number in range(4)], timeout=60)
        assert [one.offset for one in theirs] == [2, -1001, -1001, 5]
        assert theirs[0].metadata == "who"
    await member.commit()
    assert await member.committed(everything) == offsets([5, 5, 5, 5], topic)
    await member.close()
    with world.client() as client:  # the group has no members now
        client.commit(offsets=[TopicPartition(topic.local, 1, 3)], asynchronous=False)
    again = await world.join()
    assert (await again.committed(everything))[everything[1]] == Committed(3)
    await again.subscribe([topic])
    assert texts(await fetched(again, 2)) == ["1:3", "1:4"]


async def test_members_share_partitions_with_kafkas_own_clients(world: World) -> None:
    topic = await world.topic()
    world.fill(topic, 4, 3)
    member = await world.join()
    await member.subscribe([topic])
    await fetched(member, 12)
    await member.commit()
    with world.client(topic) as client:
        # The member takes part although it fetches nothing: the group does not wait for it.
        await polled(client, lambda: len(client.assignment()) == 2)
        await until_async(lambda: len(member.assignment) == 2)
        theirs = {one.partition for one in client.assignment()}
        mine = {one.partition for one in member.assignment}
        assert theirs | mine == {0, 1, 2, 3}
        world.fill(topic, 4, 1, first=3)
        assert {one.partition for one in await fetched(member, 2)} == mine
        got = await asyncio.to_thread(client.consume, 2, 60)
        assert {one.partition() for one in got} == theirs
        client.commit(asynchronous=False)
        await member.commit()
    await until_async(lambda: len(member.assignment) == 4)
    world.fill(topic, 4, 1, first=4)
    assert sorted(texts(await fetched(member, 4))) == ["0:4", "1:4", "2:4", "3:4"]
    other = await world.join()
    await other.subscribe([topic])
    await until_async(lambda: len(member.assignment) == len(other.assignment) == 2)
    await member.close()
    await until_async(lambda: len(other.assignment) == 4)


async def test_positions_of_an_assignment(world: World) -> None:
    topic = await world.topic(partitions=2)
    world.fill(topic, 2, 10)
    first, second = Partition(topic, 0), Partition(topic, 1)
    member = await world.join()
    await member.commit({second: Committed(8)})
    await member.assign([first, second])
    assert member.assignment == [first, second]
    assert sorted(texts(await fetched(member, 12))) == sorted([*(f"0:{n}" for n in range(10)), "1:8", "1:9"])
    await member.seek({first: 7, second: Edge.BEGINNING})
    assert sorted(texts(await fetched(member, 13))) == sorted(
        ["0:7", "0:8", "0:9", *(f"1:{n}" for n in range(10))]
    )
    await member.seek({first: Edge.END, second: Since(2**50)})
    world.fill(topic, 2, 1, first=10)
    assert sorted(texts(await fetched(member, 2))) == ["0:10", "1:10"]
    await member.seek({second: Since(0)})
    assert texts(await fetched(member, 11))[0] == "1:0"
    await member.commit()
    assert await member.committed([first, second]) == offsets([11, 11], topic)
    with pytest.raises(PenstockError) as refused:
        await member.assign([Partition(topic, 2)])
    assert refused.value.kind is ErrorKind.PARTITION_NOT_FOUND
    with pytest.raises(PenstockError) as refused:
        await member.assign([Partition(TopicName.parse(f"{world.prefix}none"), 0)])
    assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND
    # The group shares its partitions now: offsets of others are refused.
    with world.client(topic) as client:
        await polled(client, lambda: len(client.assignment()) == 2)
        with pytest.raises(PenstockError) as refused:
            await member.commit({first: Committed(1)})
        assert refused.value.kind is ErrorKind.SUBSCRIPTION_BUSY
        await member.subscribe([topic])
        await polled(client, lambda: len(member.assignment) == 1)
        await member.commit({first: Committed(1)})
    await member.unsubscribe()
    assert member.assignment == member.topics == []


async def test_topics_by_a_pattern(world: World) -> None:
    first, other = await world.topic("seen-a", 1), await world.topic("hidden", 1)
    await world.topic("seen-secret", 1)
    member = await world.join()
    await member.subscribe_pattern(f"^{world.prefix}seen-.*", lambda name: not name.local.endswith("secret"))
    assert member.topics == [first]
    world.fill(first, 1, 1)
    world.fill(other, 1, 1)
    assert texts(await fetched(member, 1)) == ["0:0"]
    later = await world.topic("seen-b", 1)
    world.fill(later, 1, 1)
    # The partitions are shared out again: the record that was not committed does not come again.
    assert [one.topic for one in await fetched(member, 1)] == [later]
    assert member.topics == [first, later]
    with pytest.raises(PenstockError) as refused:
        await member.subscribe_pattern("(", lambda name: True)
    assert refused.value.kind is ErrorKind.BAD_PARAMETER
    assert member.topics == [first, later]


async def test_what_a_fetch_returns(world: World) -> None:
    topic = await world.topic(partitions=1)
    member = await world.join()
    await member.subscribe([topic])
    assert await member.fetch(500, BYTES_MAX) == []
    values = [b"x" * 100, b"y" * 1000, b"z" * 100, None]
    for value in values:
        world.producer.produce(
            topic.local, value, key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1234
        )
    assert world.producer.flush(60) == 0
    await until_async(lambda: member._consumer._held)  # type: ignore[attr-defined]
    (one,) = await member.fetch(60_000, 150)
    assert (one.key, one.value, one.headers, one.timestamp) == (
        b"k",
        values[0],
        [("h", b"1"), ("h", None)],
        1234,
    )
    (one,) = await member.fetch(60_000, 150)
    assert one.value == values[1], "a record larger than the bound comes alone"
    # A fetch that is cancelled moves nothing.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await member.fetch(60_000, 1)
    assert [one.value for one in await fetched(member, 2)] == values[2:]
    await member.commit()
    assert await member.committed([Partition(topic, 0)]) == offsets([4], topic)


async def test_an_idle_member_holds_few_records_and_goes_on(world: World) -> None:
    topic = await world.topic(partitions=2)
    for _ in range(5000):
        world.producer.produce(topic.local, b"x" * 1000)
        world.producer.poll(0)
    assert world.producer.flush(60) == 0
    member = await world.join()
    await member.subscribe([topic])
    await until_async(lambda: member._consumer._paused)  # type: ignore[attr-defined]
    held = len(member._consumer._held)  # type: ignore[attr-defined]
    assert 0 < held <= 4000
    found = await fetched(member, 5000)
    assert len({(one.partition, one.offset) for one in found}) == len(found) == 5000
    for partition in (0, 1):
        mine = [one.offset for one in found if one.partition == partition]
        assert mine == sorted(mine)


async def test_what_is_returned_is_committed_by_the_next_fetch_and_at_the_end(world: World) -> None:
    topic = await world.topic(partitions=1)
    world.fill(topic, 1, 3)
    place = Partition(topic, 0)
    member, reader = await world.join(auto_commit=True), await world.join(f"{world.group}-other")
    await member.subscribe([topic])
    await fetched(member, 3)
    await member.close()
    again = await world.join(auto_commit=True)
    assert await again.committed([place]) == offsets([3], topic)
    await again.subscribe([topic])
    world.fill(topic, 1, 1, first=3)
    await fetched(again, 1)
    assert await again.fetch(0, BYTES_MAX) == []
    async with asyncio.timeout(60):
        while await again.committed([place]) != offsets([4], topic):
            await asyncio.sleep(0.1)  # librdkafka commits every 5 s
    assert await reader.committed([place]) == {}


async def test_a_topic_that_comes_later_and_grows(world: World) -> None:
    topic = TopicName.parse(f"public/default/{world.prefix}later")
    member = await world.join()
    await member.subscribe([topic])  # creates it, as configured
    assert world.broker.topics.exists(topic)
    world.fill(topic, 1, 1)
    assert texts(await fetched(member, 1)) == ["0:0"]
    admin = AdminClient({"bootstrap.servers": world.cluster.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic.local, 2)])[topic.local].result(60)
    await until_async(lambda: len(member.assignment) == 2)


async def test_groups_that_cannot_be_joined(world: World) -> None:
    with pytest.raises(PenstockError) as refused:
        await world.join(owner_group(world.broker.kafka.settings))
    assert refused.value.kind is ErrorKind.FORBIDDEN
    member = await world.join()
    with pytest.raises(PenstockError) as refused:
        await member.subscribe([TopicName.parse("__consumer_offsets")])
    assert refused.value.kind is ErrorKind.BAD_PARAMETER


@pytest.mark.parametrize(
    "own", [{"partition.assignment.strategy": "cooperative-sticky"}, {"group.protocol": "consumer"}]
)
async def test_groups_of_other_protocols(world: World, own: dict[str, str]) -> None:
    topic = await world.topic()
    with world.client(topic, **own) as client:
        await polled(client, lambda: len(client.assignment()) == 4)
        member = await world.join()
        await member.subscribe([topic])
        await polled(client, lambda: len(member.assignment) == 2)
        world.fill(topic, 4, 1)
        found = await fetched(member, 2)
        assert {one.partition for one in found} == {one.partition for one in member.assignment}
    await until_async(lambda: len(member.assignment) == 4)


async def test_transactions_and_gaps(world: World) -> None:
    topic = await world.topic(partitions=1)
    producer = Producer(
        {
            "bootstrap.servers": world.cluster.bootstrap,
            "transactional.id": f"{world.prefix}tx",
            "log_level": 0,
        }
    )
    await asyncio.to_thread(producer.init_transactions, 60)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic.local, f"{number}", partition=0)
        assert await asyncio.to_thread(producer.flush, 60) == 0  # else an abort takes it from the queue
        await asyncio.to_thread(producer.commit_transaction if number % 2 else producer.abort_transaction, 60)
    member = await world.join()
    await member.subscribe([topic])
    found = await fetched(member, 2)
    # A marker ends each transaction, and has an offset.
    assert [(one.offset, one.value) for one in found] == [(2, b"1"), (6, b"3")]
    await member.commit()
    assert await member.committed([Partition(topic, 0)]) == offsets([7], topic)
    await member.seek({Partition(topic, 0): 3})
    assert [one.offset for one in await fetched(member, 1)] == [6]


async def test_values_have_the_schema_that_they_name(kafka_cluster: KafkaCluster, registry_url: str) -> None:
    foreign = Foreign(kafka_cluster, registry_url)
    async with broker_before(kafka_cluster, registry_url) as broker:
        name = new_name()
        await broker.topics.create(name, 0)
        schema = avro("a")
        number = foreign.register(f"{name.local}-value", schema.data.decode())
        value = framed(number, encoded(schema, a="x"))
        foreign.produce(name.local, value, b"plain", None)
        producer = await broker.producer(name)
        results = await producer.publish(
            [
                OutMessage(payload=encoded(schema, a="y"), schema_version=1, properties={"p": "q"}),
                OutMessage(payload=b"\0\0\0\0\1looks framed", event_time=1234, sequence_id=7),
            ]
        )
        assert not [one for one in results if isinstance(one, PenstockError)]
        member = await broker.groups.join(new_name().local, GroupOptions(name="tests", start=ALL))
        await member.subscribe([name])
        found = await fetched(member, 5)
        assert [one.schema_version for one in found] == [1, None, None, 1, None]
        assert [one.value_frame for one in found] == [5, 0, 0, 5, 0]
        assert found[0].value == value
        assert [(one.value or b"")[one.value_frame :] for one in found] == [
            encoded(schema, a="x"),
            b"plain",
            b"",
            encoded(schema, a="y"),
            b"\0\0\0\0\1looks framed",
        ]
        assert [list(one.headers) for one in found] == [[], [], [], [("p", b"q")], []]
        assert found[4].timestamp == 1234
