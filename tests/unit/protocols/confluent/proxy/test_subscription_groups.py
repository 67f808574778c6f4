"""Groups over subscriptions: positions, commits and partitions of their members, over the embedded broker in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.groups import Committed, Edge, GroupOptions, Since, TopicPartition
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.opening import TRANSIENT_LEDGERS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.protocols.confluent.proxy.subscription_groups import SubscriptionGroups, SubscriptionMember
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

ORDERS = TopicName.parse("orders")
PARTS = TopicName.parse("parts")
FIRST = TopicPartition(ORDERS, 0)
ALL = 1 << 20


class Groups:
    """A broker in memory, and its groups."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.broker = Broker(MemoryStore(), MemoryStore(TRANSIENT_LEDGERS), wire, self.clock)
        self.groups = SubscriptionGroups(self.broker)

    async def member(self, name: str = "a", group: str = "g", **options: object) -> SubscriptionMember:
        given = {"start": Edge.BEGINNING, "auto_commit": False, **options}
        return await self.groups.join(group, GroupOptions(name=name, **given))  # type: ignore[arg-type]

    async def publish(self, *values: str, topic: TopicName = ORDERS, partition: int | None = None) -> None:
        producer = await self.broker.producer(topic)
        await producer.publish([OutMessage(payload=one.encode(), partition=partition) for one in values])
        producer.close()


@pytest.fixture
async def groups() -> AsyncIterator[Groups]:
    async with opened() as found:
        yield found


@asynccontextmanager
async def opened() -> AsyncIterator[Groups]:
    found = Groups()
    await found.broker.start()
    try:
        yield found
    finally:
        await found.broker.close()


async def values(member: SubscriptionMember, wait_ms: int = 0, bytes_max: int = ALL) -> list[bytes | None]:
    return [record.value for record in await member.fetch(wait_ms, bytes_max)]


async def test_a_member_reads_on_where_it_was_and_others_where_the_group_committed(groups: Groups) -> None:
    await groups.publish("a", "b", "c")
    member = await groups.member()
    await member.subscribe([ORDERS])
    assert await values(member, bytes_max=2) == [b"a", b"b"]
    assert await values(member) == [b"c"]
    assert await values(member) == []
    assert await member.committed([FIRST]) == {}
    await member.commit({FIRST: Committed(1, "by hand")})
    assert await member.committed([FIRST]) == {FIRST: Committed(1, "by hand")}
    await member.close()
    other = await groups.member("b")
    await other.subscribe([ORDERS])
    assert await values(other) == [b"b", b"c"]
    await other.commit()
    assert await other.committed([FIRST]) == {FIRST: Committed(3)}


async def test_the_mark_moves_back_too_and_beyond_the_end(groups: Groups) -> None:
    await groups.publish("a", "b")
    member = await groups.member()
    await member.assign([FIRST])
    for offset in (2, 1, 7, 0):
        await member.commit({FIRST: Committed(offset)})
        assert await member.committed([FIRST]) == {FIRST: Committed(offset)}
    await member.commit({FIRST: Committed(7)})
    again = await groups.member("b")
    await again.assign([FIRST])
    assert await values(again) == [b"a", b"b"]  # as with Kafka: out of range, so the start counts


async def test_a_subscription_moves_back_while_its_member_reads_on(groups: Groups) -> None:
    await groups.publish("a", "b", "c")
    member = await groups.member()
    await member.subscribe([ORDERS])
    assert len(await values(member)) == 3
    await member.commit()
    await member.seek({FIRST: 0})
    assert await member.committed([FIRST]) == {FIRST: Committed(3)}  # seeking commits nothing
    assert await values(member, bytes_max=1) == [b"a"]
    await member.commit()
    assert await member.committed([FIRST]) == {FIRST: Committed(1)}
    assert await values(member) == [b"b", b"c"]


async def test_edges_and_times(groups: Groups) -> None:
    await groups.publish("a")
    await groups.clock.advance(1000)
    second = groups.clock.now_ms()
    await groups.publish("b")
    member = await groups.member()
    await member.assign([FIRST])
    for position, expected in ((Edge.END, []), (Edge.BEGINNING, [b"a", b"b"]), (Since(second), [b"b"])):
        await member.seek({FIRST: position})
        assert await values(member) == expected


async def test_a_fetch_waits_for_the_first_record_and_no_longer(groups: Groups) -> None:
    member = await groups.member(start=Edge.END)
    await member.subscribe([ORDERS])
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(values(member, wait_ms=5000))
        await turns()
        await groups.publish("a")
    assert fetching.result() == [b"a"]
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(values(member, wait_ms=5000))
        await turns()
        assert not fetching.done()
        await groups.clock.advance(5000)
    assert fetching.result() == []


async def test_a_fetch_waits_for_bytes_and_takes_the_rest_when_the_time_is_over(groups: Groups) -> None:
    await groups.publish("a")
    member = await groups.member(auto_commit=True)
    await member.subscribe([ORDERS])
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(member.fetch(5000, ALL, 3))
        await turns()
        await groups.publish("b")
        await turns()
        assert not fetching.done()
        assert await member.committed([FIRST]) == {}
        await groups.publish("c")
    assert [record.value for record in fetching.result()] == [b"a", b"b", b"c"]
    await groups.publish("d")
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(member.fetch(5000, ALL, 3))
        await turns()
        assert not fetching.done()
        await groups.clock.advance(5000)
    assert [record.value for record in fetching.result()] == [b"d"]
    await groups.publish("ee", "f")
    assert [record.value for record in await member.fetch(5000, 2, 3)] == [b"ee"], "bytes_max ends the wait"


async def test_a_fetch_that_waits_for_bytes_gives_up_partitions_that_it_lost(groups: Groups) -> None:
    await groups.broker.topics.create(PARTS, 2)
    member = await groups.member("b")
    await member.subscribe([PARTS])
    await groups.publish("a", topic=PARTS, partition=0)
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(member.fetch(5000, ALL, 3))
        await turns()
        other = await groups.member("a")  # it gets partition 0, as its name comes first
        await other.subscribe([PARTS])
        await groups.publish("bb", topic=PARTS, partition=1)
        await turns()
        assert not fetching.done()
        await groups.publish("c", topic=PARTS, partition=1)
    assert [record.value for record in fetching.result()] == [b"bb", b"c"]
    assert await values(other) == [b"a"]


async def test_a_subscription_that_fails_in_part_leaves_nothing(groups: Groups) -> None:
    await groups.publish("a")
    await groups.broker.subscribe([PARTS], "g", ConsumerOptions(type=SubscriptionType.SHARED))
    member, other = await groups.member("a"), await groups.member("b")
    with pytest.raises(PenstockError):
        await member.subscribe([ORDERS, PARTS])
    assert (member.topics, member.assignment) == ([], [])
    await other.subscribe([ORDERS])
    assert await values(other) == [b"a"]


async def test_a_cancelled_fetch_moves_nothing(groups: Groups) -> None:
    member = await groups.member()
    await member.subscribe([ORDERS])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await values(member, wait_ms=5000)
    await groups.publish("a")
    assert await values(member) == [b"a"]


async def turns() -> None:
    """Let the loop run what is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_pattern_finds_topics_that_come_later_and_only_allowed_ones(groups: Groups) -> None:
    member = await groups.member()
    await member.subscribe_pattern("or.*", lambda name: name.local != "orphans")
    assert member.topics == []
    await groups.publish("x", topic=TopicName.parse("orphans"))
    await groups.publish("y", topic=TopicName.parse("horde"))
    async with asyncio.TaskGroup() as tasks:
        fetching = tasks.create_task(values(member, wait_ms=5000))
        await turns()
        await groups.publish("a")
    assert fetching.result() == [b"a"], "without a wait for the next look"
    assert member.topics == [ORDERS]


async def test_members_share_the_partitions(groups: Groups) -> None:
    await groups.broker.topics.create(PARTS, 4)
    one, two = await groups.member("a"), await groups.member("b")
    await one.subscribe([PARTS])
    assert [each.partition for each in one.assignment] == [0, 1, 2, 3]
    for partition in range(4):
        await groups.publish(str(partition), topic=PARTS, partition=partition)
    assert sorted(await values(one)) == [b"0", b"1", b"2", b"3"]
    await one.commit()
    await two.subscribe([PARTS])
    assert [each.partition for each in one.assignment] == [0, 2]
    assert [each.partition for each in two.assignment] == [1, 3]
    assert await values(two) == []
    await one.close()
    assert len(two.assignment) == 4
    assert await values(two) == []


async def test_what_was_fetched_is_committed_with_the_next_fetch_with_a_lost_partition_and_at_the_end(
    groups: Groups,
) -> None:
    await groups.broker.topics.create(PARTS, 2)
    for partition in range(2):
        await groups.publish("a", "b", topic=PARTS, partition=partition)
    one = await groups.member("b", auto_commit=True)
    parts = [TopicPartition(PARTS, 0), TopicPartition(PARTS, 1)]
    await one.subscribe([PARTS])
    assert len(await values(one)) == 4
    assert await one.committed(parts) == {}
    two = await groups.member("a", auto_commit=True)  # it gets partition 0, as its name comes first
    await two.subscribe([PARTS])
    await turns()  # the commit of the lost partition
    assert await values(two) == []
    await groups.publish("c", topic=PARTS, partition=1)
    assert await values(one) == [b"c"]
    assert await two.committed(parts) == {parts[0]: Committed(2), parts[1]: Committed(2)}
    await one.close()
    assert await two.committed(parts) == {parts[0]: Committed(2), parts[1]: Committed(3)}


async def test_a_large_record_comes_alone(groups: Groups) -> None:
    await groups.publish("a", "b" * 100, "c")
    member = await groups.member()
    await member.subscribe([ORDERS])
    assert [len(one or b"") for one in await values(member, bytes_max=10)] == [1]
    assert [len(one or b"") for one in await values(member, bytes_max=10)] == [100]
    assert [len(one or b"") for one in await values(member, bytes_max=10)] == [1]


async def test_a_subscription_of_another_type_is_busy(groups: Groups) -> None:
    await groups.broker.subscribe([ORDERS], "g", ConsumerOptions(type=SubscriptionType.SHARED))
    member = await groups.member()
    with pytest.raises(PenstockError) as caught:
        await member.subscribe([ORDERS])
    assert caught.value.kind is ErrorKind.SUBSCRIPTION_BUSY


async def test_a_deleted_topic_is_joined_again(groups: Groups) -> None:
    await groups.publish("a")
    member = await groups.member()
    await member.subscribe([ORDERS])
    assert await values(member) == [b"a"]
    await groups.broker.administration.delete_topic(ORDERS, force=True)
    await groups.publish("b")
    assert await values(member) == [b"b"]


async def test_what_was_fetched_of_a_deleted_topic_is_not_committed(groups: Groups) -> None:
    for way in ("subscribe", "assign"):
        await groups.publish("a")
        member = await groups.member(auto_commit=True)
        await (member.subscribe([ORDERS]) if way == "subscribe" else member.assign([FIRST]))
        assert await values(member) == [b"a"]
        await groups.broker.administration.delete_topic(ORDERS, force=True)
        await member.close()
        assert member.assignment == []
