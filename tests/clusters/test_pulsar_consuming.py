"""Consumers of the Pulsar engine, before a real broker."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any, cast
from uuid import uuid4

import pytest
from tests.support.budgets import StubBudget
from tests.support.cutter import cutter_before
from tests.support.pulsar_broker import EARLY_MS, PulsarCluster
from tests.support.waiting import until, until_async

import penstock.client.aio as aio
from penstock.broker.delivery import Delivery
from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.topic_listeners import TopicListeners
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.errors import ReadError
from penstock.engines.attached import consumer as module
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.moving_link import MovingLink
from penstock.engines.attached.positions import opaque
from penstock.engines.attached.subscription import Subscription
from penstock.engines.attached.topic_consumer import Means, TopicConsumer
from penstock.engines.pulsar.broker import PulsarBroker
from penstock.engines.pulsar.cluster import PulsarCluster as Connection
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, DeadLetter, SubscriptionType
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks
from penstock.wire import entry as wire

CLOCK = LoopClock()
SHARED, EXCLUSIVE = SubscriptionType.SHARED, SubscriptionType.EXCLUSIVE
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


class Log:
    """What consumers need to know of a log."""

    clock = CLOCK

    def __init__(self, name: TopicName) -> None:
        self.name = name
        self.subscriptions: dict[str, Subscription] = {}

    def id_of(self, entry: Entry, index: int) -> MessageId:
        size = entry.count if index >= 0 else 0
        return MessageId(entry.ledger, entry.entry_id, self.name.partition, index, size)

    async def offset_after(self, message_id: MessageId, *, inclusive: bool = False) -> int:
        if message_id == EARLIEST:
            return 0
        return opaque((message_id.ledger, message_id.entry)) + (not inclusive)


class Topics:
    """The topics of the cluster."""

    def __init__(self, cluster: Connection) -> None:
        self._cluster = cluster
        self._logs: dict[TopicName, Log] = {}
        self.listeners = TopicListeners()

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[Log]:
        count = await self._cluster.context.lookup.partitions(str(name))
        names = [TopicName.parse(f"{name}-partition-{n}") for n in range(count)] or [name]
        return [self._logs.setdefault(one, Log(one)) for one in names]

    async def learn(self, name: TopicName) -> None:
        pass


class Schemas:
    """Knows versions once they were fetched."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        self.failures = 0

    def knows(self, topic: TopicName, version: int) -> bool:
        return version in self.fetched

    async def fetch(self, topic: TopicName, version: int) -> None:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")
        self.fetched.append(version)


class Client:
    """An endpoint's side of a consumer: takes what comes, as messages."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.deliveries: list[Delivery] = []
        self.got: list[tuple[str, MessageId]] = []
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while await self.consumer.ready():
            for delivery in self.consumer.take(16):
                self.deliveries.append(delivery)
                self.got += messages_of(delivery)

    @property
    def payloads(self) -> list[str]:
        return [payload for payload, _ in self.got]

    def id_of(self, payload: str) -> MessageId:
        return next(message_id for one, message_id in self.got if one == payload)

    async def come(self, count: int) -> list[str]:
        await until_async(lambda: len(self.got) >= count)
        return self.payloads

    async def stop(self) -> None:
        await self.consumer.leave()
        await self._task


def messages_of(delivery: Delivery) -> list[tuple[str, MessageId]]:
    return [
        (message.payload.decode(), delivery.topic.id_of(delivery.entry, message.index))
        for at, message in enumerate(wire.decode(delivery.entry))
        if delivery.mask >> at & 1
    ]


def entries_of(part: TopicConsumer) -> EntryConsumer:
    """The cluster's consumer that a partition is attached by."""
    found = cast(MovingLink, part.link)._link
    assert isinstance(found, EntryConsumer)
    return found


class World:
    """The engine's parts, and clients of the broker."""

    def __init__(self, at: PulsarCluster, namespace: str, tasks: Tasks) -> None:
        self.at = at
        self.cluster = Connection(ClusterSettings(url=at.service_url, admin_url=at.admin_url))
        self.topics = Topics(self.cluster)
        self.schemas = Schemas()
        self.tasks = tasks
        self.client = aio.Client(at.service_url)
        self.local = f"{namespace}/t{uuid4().hex[:8]}"
        self.topic = f"persistent://{self.local}"
        self.buried: list[tuple[int, int]] = []
        self.bury_failures = 0
        self.failures = Failures(CLOCK)
        self._clients: list[Client] = []

    async def admin(self, method: str, path: str, **more: Any) -> Any:
        return await asyncio.to_thread(self.at.admin, method, f"persistent/{self.local}{path}", **more)

    async def publish(self, *payloads: str, batch: bool = False, keys: Sequence[str] = ()) -> None:
        producer = await self.client.create_producer(
            self.topic,
            batching_enabled=batch,
            batching_max_publish_delay_ms=300,
            batching_max_messages=len(payloads),
        )
        await asyncio.gather(
            *(
                producer.send(one.encode(), partition_key=keys[at] if keys else None)
                for at, one in enumerate(payloads)
            )
        )
        await producer.close()

    async def bury(
        self, source: Subscription, entry: Entry, index: int, letter: DeadLetter, redeliveries: int
    ) -> None:
        if self.bury_failures:
            self.bury_failures -= 1
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")
        self.buried.append((index, redeliveries))

    async def open(
        self, kind: SubscriptionType = SHARED, subscription: str = "s", **options: Any
    ) -> Consumer:
        names = options.pop("names", None) or [TopicName.parse(self.topic)]
        options.setdefault("start", EARLIEST)
        budget, unique = options.pop("budget", None), options.pop("unique_name", False)
        topics: Any = self.topics  # what consumers use of it
        consumer = Consumer(
            Means(topics, self.schemas, CLOCK, self.tasks, self.bury, self.failures),
            self.cluster,
            names,
            subscription,
            ConsumerOptions(type=kind, **options),
            budget,
            f"c-{uuid4().hex[:6]}",
        )
        await consumer.open(unique_name=unique)
        return consumer

    async def consume(
        self, kind: SubscriptionType = SHARED, subscription: str = "s", **options: Any
    ) -> Client:
        client = Client(await self.open(kind, subscription, **options))
        self._clients.append(client)
        return client

    def cut(self, client: Client) -> None:
        """Cut the connection of a consumer."""
        for part in client.consumer.parts.values():
            link = entries_of(part)._link
            if link is not None:
                link.abort(ReadError("cut by the test"))

    async def backlog(self, subscription: str = "s") -> int:
        stats = (await self.admin("GET", "/stats")).json()
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    async def close(self) -> None:
        for client in self._clients:
            await client.stop()
        await self.tasks.close()
        await self.client.close()
        await self.cluster.close()


@pytest.fixture
async def world(pulsar_cluster: PulsarCluster, pulsar_namespace: str) -> AsyncIterator[World]:
    made = World(pulsar_cluster, pulsar_namespace, Tasks())
    yield made
    await made.close()


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_messages_come_in_order_and_acknowledged_ones_not_again(
    world: World, kind: SubscriptionType
) -> None:
    await world.publish("a", "b")
    await world.publish("c", "d", "e", batch=True)
    client = await world.consume(kind)
    assert await client.come(5) == ["a", "b", "c", "d", "e"]
    assert client.consumer.unacked == 5
    ids = [one for _, one in client.got]
    assert await client.consumer.acknowledge_all(ids[:4]) == 4
    await client.consumer.flush()
    assert client.consumer.unacked == 1
    await client.stop()
    again = await world.consume(kind)
    # The cluster keeps acknowledgements by entry: the batch comes whole.
    assert await again.come(3) == ["c", "d", "e"]
    await again.consumer.acknowledge_all([one for _, one in again.got])
    await again.consumer.flush()
    assert await world.backlog() == 0


async def test_what_is_acknowledged_of_a_batch_does_not_come_again_to_its_consumer(world: World) -> None:
    await world.publish("a", "b", "c", "d", batch=True)
    client = await world.consume(SHARED, nack_delay_ms=0)
    await client.come(4)
    assert client.deliveries[0].entry.count == 4
    await client.consumer.acknowledge(client.id_of("a"))
    assert client.consumer.negative(client.id_of("c"))
    assert await client.come(5) == ["a", "b", "c", "d", "c"]
    assert client.deliveries[-1].redeliveries == 1
    await client.consumer.acknowledge_all([one for _, one in client.got[1:4]])
    await client.consumer.flush()
    assert client.consumer.unacked == 0
    assert await world.backlog() == 0


async def test_parts_of_batches_are_acknowledged_to_clusters_that_keep_them(world: World) -> None:
    """Others get the batch again, whole: the engine learns from the brokers which they are."""
    await world.cluster.start()
    kept = world.cluster.flag("acknowledgmentAtBatchIndexLevelEnabled")
    await world.publish("a", "b", "c", "d", batch=True)
    client = await world.consume(SHARED)
    await client.come(4)
    await client.consumer.acknowledge_all([client.id_of("a"), client.id_of("c")])
    await client.consumer.flush()
    await client.stop()
    again = await world.consume(SHARED)
    if kept:
        assert await again.come(2) == ["b", "d"]
        # Of another consumer's, and one that is not out here any more.
        await again.consumer.acknowledge_all([one for _, one in again.got] + [client.id_of("a")])
    else:
        assert await again.come(4) == ["a", "b", "c", "d"]
        await again.consumer.acknowledge_all([one for _, one in again.got])
    await again.consumer.flush()
    assert again.consumer.unacked == 0
    assert await world.backlog() == 0


async def test_a_cut_connection_in_the_middle_of_a_batch_loses_and_repeats_nothing(world: World) -> None:
    payloads = [f"m{n}" for n in range(40)]
    await world.publish(*payloads[:20], batch=True)
    await world.publish(*payloads[20:], batch=True)
    client = await world.consume(SHARED)
    await client.come(40)
    done = [one for _, one in client.got[:30]]
    await client.consumer.acknowledge_all(done)
    world.cut(client)
    await world.publish("last")
    assert (await client.come(41))[-1] == "last"
    assert client.payloads == [*payloads, "last"]
    await client.consumer.acknowledge_all([one for _, one in client.got[30:]])
    await client.consumer.flush()
    assert client.consumer.unacked == 0
    assert await world.backlog() == 0


@pytest.mark.parametrize("kind", list(SubscriptionType))
async def test_messages_that_suddenly_become_large_are_bounded_and_not_lost(
    world: World, kind: SubscriptionType
) -> None:
    most = 100_000
    consumer = await world.open(kind, window=1000, outbox_bytes_max=most)
    await world.publish(*[f"m{n}" for n in range(60)])
    taken: list[Delivery] = []
    while len(taken) < 60:
        await consumer.ready()
        taken += consumer.take(1)
    (part,) = consumer.parts.values()
    assert entries_of(part).permits > 500
    held: list[int] = []
    deliver = consumer.deliver

    def watched(deliveries: list[Delivery]) -> None:
        deliver(deliveries)
        held.append(sum(len(one.entry.data) for one in consumer.outbox))

    consumer.deliver = watched  # type: ignore[method-assign]
    large = [f"{n:03}".ljust(20_000, "x") for n in range(100)]
    await world.publish(*large)
    await until_async(lambda: len(consumer.outbox) >= 1 and entries_of(part).permits < 50)
    client = Client(consumer)
    world._clients.append(client)
    for count in range(100):
        await until_async(lambda: len(client.got) > count)  # noqa: B023  # awaited before it changes
        await consumer.acknowledge(client.got[count][1])
    assert client.payloads == large
    assert [one.redeliveries for one in client.deliveries] == [0] * 100
    # One read of a socket comes whole, of 256 KiB at most, and a message that is split waits in both.
    assert max(held) < 2 * most + 300_000


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
async def test_what_was_not_taken_comes_again_after_a_cut(world: World, kind: SubscriptionType) -> None:
    await world.publish(*"abcd")
    consumer = await world.open(kind)
    await until_async(lambda: len(consumer.outbox) == 4)
    taken = consumer.take(1)
    entries_of(next(iter(consumer.parts.values())))._link.abort(ReadError("cut by the test"))  # type: ignore[union-attr]
    await until_async(lambda: not consumer.outbox)
    assert consumer.unacked == 1
    client = Client(consumer)
    world._clients.append(client)
    assert await client.come(3) == ["b", "c", "d"]
    assert [one.redeliveries for one in client.deliveries] == [0, 0, 0]
    assert await consumer.acknowledge_all([messages_of(taken[0])[0][1]]) == 1
    await consumer.flush()
    assert await world.backlog() == 3


async def test_a_window_that_was_full_of_what_was_not_taken_is_filled_again(world: World) -> None:
    await world.publish(*"abcdef")
    consumer = await world.open(SHARED, window=4)
    await until_async(lambda: len(consumer.outbox) == 4)
    part = next(iter(consumer.parts.values()))
    await until_async(lambda: entries_of(part).permits == 0)
    entries_of(part)._link.abort(ReadError("cut by the test"))  # type: ignore[union-attr]
    client = Client(consumer)
    world._clients.append(client)
    assert await client.come(4) == ["a", "b", "c", "d"]
    await consumer.acknowledge_all([one for _, one in client.got])
    assert await client.come(6) == ["a", "b", "c", "d", "e", "f"]


async def test_a_topic_that_is_deleted_ends_its_consumer(world: World) -> None:
    await world.publish("a")
    client = await world.consume(SHARED)
    await client.come(1)
    await world.admin("DELETE", "?force=true")
    await until_async(lambda: client.consumer.closed)
    assert client.consumer.close_reason is not None
    assert client.consumer.close_reason.kind is ErrorKind.TOPIC_NOT_FOUND


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_a_refused_message_comes_again_alone_where_one_gets_all(
    world: World, kind: SubscriptionType
) -> None:
    await world.publish(*"abc")
    client = await world.consume(kind, nack_delay_ms=100)
    await client.come(3)
    assert client.consumer.negative(client.id_of("b"))
    assert not client.consumer.negative(client.id_of("b"))
    assert client.consumer.unacked == 2
    assert await client.come(4) == ["a", "b", "c", "b"]
    assert client.deliveries[-1].redeliveries == 1
    await world.publish("d")
    assert (await client.come(5))[-1] == "d"
    assert client.consumer.unacked == 4


async def test_refused_messages_wait_for_their_delay(world: World) -> None:
    await world.publish(*"ab")
    client = await world.consume(SHARED, nack_delay_ms=600_000)
    await client.come(2)
    client.consumer.negative(client.id_of("a"))
    client.consumer.negative(client.id_of("b"), 0)
    assert await client.come(3) == ["a", "b", "b"]
    world.cut(client)  # the cluster sends it at once: its time has not come
    await world.publish("c")
    assert await client.come(4) == ["a", "b", "b", "c"]


async def test_messages_that_are_not_acknowledged_in_time_come_again(world: World) -> None:
    await world.publish(*"ab")
    consumer = await world.open(SHARED, ack_timeout_ms=1000)
    await until_async(lambda: len(consumer.outbox) == 2)
    (first,) = consumer.take(1)
    ((payload, message_id),) = messages_of(first)
    await consumer.acknowledge(message_id)  # before anything else can happen
    assert payload == "a"
    client = Client(consumer)
    world._clients.append(client)
    assert (await client.come(2))[:2] == ["b", "b"]
    assert client.deliveries[1].redeliveries == 1
    await client.consumer.acknowledge(client.id_of("b"))
    await client.consumer.flush()
    assert await world.backlog() == 0


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
async def test_dead_letters_are_published_before_they_are_acknowledged(
    world: World, kind: SubscriptionType
) -> None:
    await world.publish("a", "b", batch=True)
    world.bury_failures = 1_000_000  # until it may
    client = await world.consume(kind, nack_delay_ms=0, dead_letter=DeadLetter(1))
    await client.come(2)
    client.consumer.negative(client.id_of("b"))
    assert await client.come(3) == ["a", "b", "b"]
    client.consumer.negative(client.id_of("b"))
    await client.consumer.acknowledge(client.id_of("a"))
    await client.consumer.flush()
    await until_async(lambda: world.bury_failures < 1_000_000)
    assert await world.backlog() == 1
    world.bury_failures = 0
    await until_async(lambda: world.buried == [(1, 1)])
    await client.consumer.flush()
    assert await world.backlog() == 0
    assert client.consumer.unacked == 0
    assert client.payloads == ["a", "b", "b"]


async def test_seek_to_messages_times_and_ends(world: World) -> None:
    await world.publish(*"abc")
    client = await world.consume(EXCLUSIVE)
    await client.come(3)
    consumer = client.consumer
    await consumer.acknowledge_all([one for _, one in client.got])
    await consumer.seek(client.id_of("a"))
    assert await client.come(5) == ["a", "b", "c", "b", "c"]
    assert consumer.unacked == 2
    await consumer.seek(EARLIEST)
    assert (await client.come(8))[5:] == ["a", "b", "c"]
    await consumer.seek(LATEST)
    await world.publish("d")
    assert (await client.come(9))[8:] == ["d"]
    assert consumer.unacked == 1
    await consumer.seek(0)
    assert (await client.come(13))[9:] == ["a", "b", "c", "d"]


async def test_seek_into_a_batch(world: World) -> None:
    await world.publish("a", "b", "c", batch=True)
    client = await world.consume(SHARED)
    await client.come(3)
    await client.consumer.acknowledge_all([one for _, one in client.got])
    await client.consumer.seek(client.id_of("a"))
    assert await client.come(5) == ["a", "b", "c", "b", "c"]
    await client.consumer.acknowledge_all([one for _, one in client.got[3:]])
    await client.consumer.flush()
    assert await world.backlog() == 0


async def test_what_was_taken_before_a_seek_is_not_given_back_to_it(world: World) -> None:
    await world.publish(*"ab")
    consumer = await world.open(EXCLUSIVE)
    await until_async(lambda: len(consumer.outbox) == 2)
    taken = consumer.take()
    await consumer.seek(EARLIEST)
    await until_async(lambda: len(consumer.outbox) == 2)
    consumer.give_back(taken)
    assert len(consumer.outbox) == 2
    again = consumer.take()
    consumer.give_back(again)
    assert [messages_of(one)[0][0] for one in consumer.take()] == ["a", "b"]
    assert consumer.unacked == 2
    await consumer.leave()


@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER])
async def test_cumulative_acknowledgements(world: World, kind: SubscriptionType) -> None:
    await world.publish("a", "b")
    await world.publish("c", "d", "e", batch=True)
    client = await world.consume(kind)
    await client.come(5)
    await client.consumer.acknowledge_cumulative(client.id_of("d"))
    await client.consumer.flush()
    assert client.consumer.unacked == 1
    assert await world.backlog() == 1
    world.cut(client)
    await world.publish("f")
    assert await client.come(6) == ["a", "b", "c", "d", "e", "f"]
    await client.consumer.acknowledge(client.id_of("e"))
    await client.consumer.flush()
    assert await world.backlog() == 1


async def test_cumulative_acknowledgements_are_not_for_shared_subscriptions(world: World) -> None:
    await world.publish("a")
    client = await world.consume(SHARED)
    await client.come(1)
    with pytest.raises(PenstockError) as refused:
        await client.consumer.acknowledge_cumulative(client.id_of("a"))
    assert refused.value.kind is ErrorKind.BAD_PARAMETER


async def test_permits_of_the_endpoint_let_messages_out_and_batches_are_split(world: World) -> None:
    await world.publish("a", "b", "c", batch=True)
    await world.publish("d")
    client = await world.consume(SHARED, flow=True)
    client.consumer.flow(2)
    assert await client.come(2) == ["a", "b"]
    assert client.consumer.permits == 0
    client.consumer.flow(2)
    assert await client.come(4) == ["a", "b", "c", "d"]
    await client.consumer.acknowledge_all([one for _, one in client.got])
    await client.consumer.flush()
    assert await world.backlog() == 0


async def test_the_window_bounds_what_is_out(world: World) -> None:
    await world.publish(*[f"m{n}" for n in range(30)])
    client = await world.consume(SHARED, window=10)
    await client.come(10)
    part = next(iter(client.consumer.parts.values()))
    await entries_of(part).last_message_id()
    assert len(client.got) == 10
    await client.consumer.acknowledge_all([one for _, one in client.got[:7]])
    await client.come(17)
    await entries_of(part).last_message_id()
    assert len(client.got) == 17


async def test_two_consumers_share_and_one_that_leaves_gives_its_messages_back(world: World) -> None:
    await world.publish(*[f"m{n}" for n in range(20)])
    one = await world.consume(SHARED, window=5)
    await one.come(5)
    other = await world.consume(SHARED)
    await other.come(15)
    await one.stop()
    await other.come(20)
    assert sorted(other.payloads) == sorted(f"m{n}" for n in range(20))


async def test_key_shared_keeps_keys_together(world: World) -> None:
    one = await world.consume(KEY_SHARED)
    other = await world.consume(KEY_SHARED)
    keys = [f"k{n % 7}" for n in range(70)]
    await world.publish(*[f"{key}:{n}" for n, key in enumerate(keys)], keys=keys)
    await until_async(lambda: len(one.got) + len(other.got) == 70)
    sides = [{payload.split(":")[0] for payload in side.payloads} for side in (one, other)]
    assert not sides[0] & sides[1]
    for side in (one, other):
        for key in {payload.split(":")[0] for payload in side.payloads}:
            numbers = [
                int(payload.split(":")[1]) for payload in side.payloads if payload.startswith(f"{key}:")
            ]
            assert numbers == sorted(numbers)


async def test_failover_says_who_is_active_and_the_next_takes_over(world: World) -> None:
    await world.publish(*"ab")
    one = await world.consume(FAILOVER)
    await one.come(2)
    await one.consumer.acknowledge(one.id_of("a"))
    await one.consumer.flush()
    other = await world.consume(FAILOVER)
    changes: list[bool] = []
    other.consumer.active_changed = lambda source, active: changes.append(active)
    await one.stop()
    assert await other.come(1) == ["b"]
    await until_async(lambda: changes[-1:] == [True])
    assert other.consumer.attached[0].active is other.consumer


async def test_a_second_exclusive_consumer_is_refused(world: World) -> None:
    await world.consume(EXCLUSIVE)
    with pytest.raises(PenstockError) as refused:
        await world.open(EXCLUSIVE)
    assert refused.value.kind is ErrorKind.SUBSCRIPTION_BUSY


async def test_names_are_alone_where_that_is_wanted(world: World) -> None:
    await world.consume(SHARED, name="me")
    with pytest.raises(PenstockError) as refused:
        await world.open(SHARED, name="me", unique_name=True)
    assert refused.value.kind is ErrorKind.CONSUMER_BUSY


async def test_partitions_that_come_later_are_joined_from_their_beginning(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.admin("PUT", "/partitions", json=2)
    await world.publish(*[f"m{n}" for n in range(10)])
    client = await world.consume(SHARED)
    await client.come(10)
    assert {one.partition for _, one in client.got} == {0, 1}
    await world.admin("POST", "/partitions", json=3)
    await world.publish(*[f"n{n}" for n in range(30)])
    await client.consumer.look()
    await client.come(40)
    assert {one.partition for _, one in client.got} == {0, 1, 2}
    await client.consumer.acknowledge_all([one for _, one in client.got])
    await client.consumer.flush()
    assert client.consumer.unacked == 0


async def test_new_topics_of_a_pattern_are_joined_and_gone_ones_left(world: World) -> None:
    await world.publish("a")
    client = await world.consume(SHARED)
    await client.come(1)
    first = TopicName.parse(world.topic)
    second = TopicName.parse(world.topic + "-2")
    world.local, world.topic = world.local + "-2", str(second)
    await world.publish("b")

    async def names() -> list[TopicName]:
        return [first, second]

    await client.consumer.look(names)
    assert await client.come(2) == ["a", "b"]
    assert client.consumer.source_of(client.id_of("b")).topic.name == second
    assert client.consumer.source_of(client.id_of("a")).topic.name == first
    assert await client.consumer.acknowledge_all([one for _, one in client.got]) == 2


async def test_readers_are_not_durable_and_acknowledge_what_they_hand_on(world: World) -> None:
    await world.publish(*"abcd")
    probe = await world.consume(SHARED, "probe")
    await probe.come(4)
    reader = await world.consume(
        EXCLUSIVE, "reader", durable=False, auto_ack=True, start=probe.id_of("b"), window=2
    )
    assert await reader.come(2) == ["c", "d"]
    assert reader.consumer.unacked == 0
    await world.admin("PUT", "/unload")
    await world.publish("e")
    assert await reader.come(3) == ["c", "d", "e"]
    await reader.stop()
    await until_async(lambda: not reader.consumer.attached)


async def test_a_new_durable_subscription_begins_after_a_message(world: World) -> None:
    await world.publish(*"abc")
    probe = await world.consume(SHARED, "probe")
    await probe.come(3)
    client = await world.consume(SHARED, "late", start=probe.id_of("a"))
    assert await client.come(2) == ["b", "c"]
    await client.stop()
    again = await world.consume(SHARED, "late", start=probe.id_of("b"))
    assert sorted(await again.come(2)) == ["b", "c"]  # it was there: where it begins is its own


async def test_the_end_of_a_terminated_topic(world: World) -> None:
    await world.publish("a")
    client = await world.consume(EXCLUSIVE)
    ends: list[bool] = []
    client.consumer.end_reached = lambda: ends.append(True)
    await client.come(1)
    await world.admin("POST", "/terminate")
    assert not client.consumer.drained
    await client.consumer.acknowledge(client.id_of("a"))
    await until_async(lambda: bool(ends))
    assert client.consumer.drained


async def test_the_cursor_is_learned_from_the_cluster(world: World) -> None:
    await world.publish(*"abcdef")
    client = await world.consume(SHARED)
    await client.come(6)
    for payload in "abd":
        await client.consumer.acknowledge(client.id_of(payload))
    await client.consumer.flush()
    source = client.consumer.attached[0]
    await source.refresh()
    assert source.backlog == 3
    assert source.durable
    assert source.type is SHARED
    last = client.id_of("b")
    assert source.cursor.mark == opaque((last.ledger, last.entry)) + 1
    await source.set_properties({"k": "v"})
    await source.refresh()
    assert source.properties == {"k": "v"}


@pytest.mark.parametrize("connected", [True, False])
async def test_a_subscription_is_moved_with_and_without_a_consumer(world: World, connected: bool) -> None:
    await world.publish(*"abc")
    client = await world.consume(SHARED)
    await client.come(3)
    source = client.consumer.attached[0]
    await client.consumer.acknowledge_all([one for _, one in client.got])
    await client.consumer.flush()
    ids = dict(client.got)
    if not connected:
        await client.stop()
        assert source.consumers == []
    await source.seek(ids["a"])
    if not connected:
        client = await world.consume(SHARED)
        assert await client.come(2) == ["b", "c"]
        await client.stop()
        await source.seek(0)
        client = await world.consume(SHARED)
        assert await client.come(3) == ["a", "b", "c"]
    else:
        assert (await client.come(5))[3:] == ["b", "c"]


async def test_deleting_a_subscription_closes_its_consumers(world: World) -> None:
    await world.publish("a")
    client = await world.consume(SHARED)
    await client.come(1)
    await client.consumer.attached[0].delete()
    assert client.consumer.closed
    assert client.consumer.close_reason is not None
    assert client.consumer.close_reason.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
    assert (await world.admin("GET", "/subscriptions")).json() == []


async def test_schemas_are_fetched_before_entries_are_handed_on(world: World) -> None:
    from penstock.client.schema import Integer, JsonSchema, Record

    class One(Record):
        n = Integer()

    world.schemas.failures = 1
    producer = await world.client.create_producer(world.topic, schema=JsonSchema(One))
    await producer.send(One(n=1))
    await producer.send(One(n=2))
    await producer.close()
    client = await world.consume(SHARED)
    assert await client.come(2) == ['{"n":1}', '{"n":2}'] or len(client.got) == 2
    assert world.schemas.fetched == [0]


async def test_many_messages_over_unloads_come_once_each_when_acknowledged(world: World) -> None:
    """Nothing lost, and nothing again whose acknowledgement was answered."""
    client = await world.consume(SHARED, window=50)
    answered: set[str] = set()
    again: list[str] = []
    count = 0

    async def acknowledging() -> None:
        nonlocal count
        while len(answered) < 300:
            await until_async(lambda: len(client.got) > count)  # noqa: B023  # awaited before it changes
            group = client.got[count:]
            count += len(group)
            again.extend(payload for payload, _ in group if payload in answered)
            await client.consumer.acknowledge_all([one for _, one in group])
            await client.consumer.flush()
            answered.update(payload for payload, _ in group)

    task = asyncio.get_running_loop().create_task(acknowledging())
    for part in range(6):
        payloads, batch = [f"{part}-{n}" for n in range(50)], part % 2 == 0
        await world.publish(*payloads[:10], batch=batch)
        await asyncio.to_thread(until, lambda: world.at.keeps_cursor(world.local, "s"))
        await world.publish(*payloads[10:], batch=batch)
        await world.admin("PUT", "/unload")
    await task
    assert again == []
    assert answered == {f"{part}-{n}" for part in range(6) for n in range(50)}
    await client.consumer.flush()
    assert await world.backlog() == 0
    assert client.consumer.unacked == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_connections_cut_anywhere_lose_nothing_and_repeat_nothing_that_was_acknowledged(
    world: World, seed: int
) -> None:
    """A connection ends after any number of bytes: within a frame, within a batch, within an answer."""
    dice = Random(seed)
    payloads = [f"{part}-{n}" for part in range(8) for n in range(40)]
    for part in range(8):
        await world.publish(*payloads[40 * part : 40 * part + 40], batch=part % 2 == 0)
    answered: set[str] = set()
    again: list[str] = []
    port = int(world.at.service_url.rpartition(":")[2])
    async with cutter_before(port, world.cluster.context._pool) as cutter:
        client = await world.consume(SHARED, window=100)
        cutter.cut_after = dice.randrange(2000)
        seen = cuts = 0
        while len(answered) < len(payloads):
            await until_async(lambda: len(client.got) > seen)  # noqa: B023  # awaited before it changes
            group = client.got[seen:]
            seen += len(group)
            again += [payload for payload, _ in group if payload in answered]
            await client.consumer.acknowledge_all([one for _, one in group])
            await client.consumer.flush()
            answered.update(payload for payload, _ in group)
            if cutter.cut_after is None and cuts < 5:
                cuts += 1
                cutter.cut_after = dice.randrange(4000)
        assert cuts
        assert again == []
        assert answered == set(payloads)
        assert client.consumer.unacked == 0
        await client.stop()
    assert await world.backlog() == 0


@pytest.fixture
async def engine(world: World) -> AsyncIterator[PulsarBroker]:
    settings = ClusterSettings(url=world.at.service_url, admin_url=world.at.admin_url, learned_ms=0)
    made = PulsarBroker(settings, BrokerSettings(), CLOCK)
    await made.start()
    yield made
    await made.close()


async def test_dead_letters_say_where_they_come_from(world: World, engine: PulsarBroker) -> None:
    name = TopicName.parse(world.topic)
    options = ConsumerOptions(type=SHARED, start=EARLIEST, nack_delay_ms=0, dead_letter=DeadLetter(1))
    await world.publish("a", "b", keys=["k", "k"])
    client = Client(await engine.subscribe([name], "s", options))  # type: ignore[arg-type]  # the engine's own
    await client.come(2)
    for count in (3, 4):
        client.consumer.negative(client.id_of("a"))
        if count == 3:
            await client.come(3)
    letters = TopicName.parse(f"{world.topic}-s-DLQ")
    dead = Client(
        await engine.subscribe([letters], "d", ConsumerOptions(type=SHARED, start=EARLIEST))  # type: ignore[arg-type]
    )
    assert await dead.come(1) == ["a"]
    (message,) = wire.decode(dead.deliveries[0].entry)
    assert message.key == "k"
    assert message.properties["REAL_TOPIC"] == world.topic
    assert message.properties["REAL_SUBSCRIPTION"] == "s"
    assert message.properties["ORIGIN_MESSAGE_ID"] == str(client.id_of("a"))
    await until_async(lambda: len(next(iter(client.consumer.parts.values())).out) == 1)
    await client.consumer.flush()
    assert await world.backlog() == 1
    await dead.stop()
    await client.stop()


async def test_a_dead_letter_topic_that_takes_nothing_is_seen_and_holds_up_nothing(
    world: World, engine: PulsarBroker, caplog: pytest.LogCaptureFixture
) -> None:
    letters = TopicName.parse(f"{world.topic}-s-DLQ")
    first = await world.client.create_producer(str(letters))
    await first.send(b"first")
    await world.admin("POST", "-s-DLQ/terminate")
    options = ConsumerOptions(type=SHARED, start=EARLIEST, nack_delay_ms=0, dead_letter=DeadLetter(0))
    await world.publish("a", "b", batch=True)
    client = Client(await engine.subscribe([TopicName.parse(world.topic)], "s", options))  # type: ignore[arg-type]
    await client.come(2)
    caplog.clear()
    client.consumer.negative(client.id_of("a"))
    await client.consumer.acknowledge(client.id_of("b"))
    (source,) = client.consumer.attached
    figures = source.dead_letters
    await until_async(lambda: figures.failed >= 2)
    assert figures.waiting == 1
    assert "terminated" in str(figures.error).lower()
    (failure,) = engine.failures.ongoing
    assert (failure.kind, failure.subject) == (FailureKind.DEAD_LETTER, f"{world.topic} s")
    await world.publish("c")
    assert await client.come(3) == ["a", "b", "c"]
    assert await world.backlog() >= 1
    await first.close()
    await world.admin("DELETE", "-s-DLQ?force=true")
    await until_async(lambda: figures.waiting == 0, bound_s=150)
    dead = Client(
        await engine.subscribe([letters], "d", ConsumerOptions(type=SHARED, start=EARLIEST))  # type: ignore[arg-type]
    )
    assert await dead.come(1) == ["a"]
    assert not engine.failures.ongoing
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.runtime.failures"]
    assert lines == ["dead letters cannot be stored", "dead letters are stored again"]
    await dead.stop()
    await client.stop()


async def test_delayed_messages_come_when_their_time_has_come(world: World, engine: PulsarBroker) -> None:
    name = TopicName.parse(world.topic)
    client = Client(
        await engine.subscribe([name], "s", ConsumerOptions(type=SHARED, start=EARLIEST))  # type: ignore[arg-type]
    )
    due = CLOCK.now_ms() + 3000
    producer = await world.client.create_producer(world.topic)
    await producer.send(b"late", deliver_at=due)
    await producer.send(b"now")
    came: dict[str, int] = {}
    for count in range(1, 3):
        payload = (await client.come(count))[count - 1]
        came[payload] = CLOCK.now_ms()
    assert set(came) == {"now", "late"}
    assert came["late"] >= due - EARLY_MS
    late = next(one for one in client.deliveries if messages_of(one)[0][0] == "late")
    assert late.entry.deliver_at == due
    await client.stop()


async def test_topics_that_match_a_pattern_are_joined_when_they_come(
    world: World, engine: PulsarBroker
) -> None:
    name = TopicName.parse(world.topic)
    await world.publish("a")
    options = ConsumerOptions(type=SHARED, start=EARLIEST)
    client = Client(
        await engine.subscribe_pattern(  # type: ignore[arg-type]
            f"{world.local}.*", "s", options, namespace=name.namespace_name
        )
    )
    assert await client.come(1) == ["a"]
    world.topic += "-later"
    await world.publish("b")
    while len(client.got) < 2:  # the cluster lists a new topic soon
        await client.consumer.look()
        await asyncio.sleep(0.05)
    assert client.payloads == ["a", "b"]
    assert [str(one.topic.name) for one in client.consumer.attached] == [str(name), world.topic]
    await client.stop()


async def test_an_exceeded_budget_lets_one_message_come_at_a_time(world: World) -> None:
    await world.publish(*[f"m{n}" for n in range(20)])
    budget = StubBudget(over=True)
    consumer = await world.open(SHARED, budget=budget)
    await until_async(lambda: len(consumer.outbox) == 1)
    await entries_of(next(iter(consumer.parts.values()))).last_message_id()
    assert len(consumer.outbox) == 1
    budget.free()
    await until_async(lambda: len(consumer.outbox) == 20)
    await consumer.leave()
    assert budget.size == 0


def test_partitions_are_looked_for_as_often_as_pulsars_clients_do() -> None:
    assert module.FOLLOW_S == 60
