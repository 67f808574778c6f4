"""Retention, expiry and quotas of a broker in memory, with a clock that the tests turn."""

import asyncio

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.broker.settings import BrokerSettings
from penstock.engines.core.broker import retention_task
from penstock.engines.core.broker.retention_task import PRODUCERS_EVERY_MS
from penstock.engines.core.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.model.policy import (
    NamespacePolicies,
    ProducerOptions,
    Quota,
    QuotaAction,
    Retention,
    SubscriptionType,
    TopicPolicies,
)
from penstock.testing.clock import settle
from penstock.wire import entry as wire

pytestmark = pytest.mark.anyio

CHECK = BrokerSettings().keep_check_ms
MINUTE = 60_000
MB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def decide(b: Bench, topic: TopicName = TOPIC, **policies: object) -> None:
    await b.broker.policies.change_topic(topic, lambda now: TopicPolicies(**policies))  # type: ignore[arg-type]


async def log(b: Bench, topic: TopicName = TOPIC) -> Topic:
    return await b.broker.topics.get(topic)


async def subscribed(b: Bench, name: str = "s") -> None:
    await b.broker.subscriptions.create(TOPIC, name, EARLIEST)


async def acknowledge(b: Bench, count: int, name: str = "s") -> None:
    (found,) = await b.broker.subscriptions.of(TOPIC, name)
    found.skip(found.cursor.mark + count)
    await settle()


# -- retention


async def test_nothing_goes_by_default() -> None:
    async with bench() as b:
        await b.publish(*[b"x" * 1000] * 10)
        await b.clock.advance(10_000 * MINUTE)

        assert (await log(b)).first_entry == 0
        assert not b.clock._timers or len(b.broker.retention._looks) == 0


async def test_what_is_older_goes() -> None:
    async with bench() as b:
        topic = await log(b)
        await decide(b, retention=Retention(10, -1))
        await b.publish(b"old")
        size = topic.size_bytes
        await b.clock.advance(5 * MINUTE)
        await b.publish(b"younger")
        await b.clock.advance(5 * MINUTE)
        assert topic.first_entry == 0
        await b.clock.advance(CHECK + 1)
        assert (topic.first_entry, topic.first_offset) == (1, 1)
        assert 0 < topic.size_bytes < size * 2
        await b.clock.advance(5 * MINUTE + CHECK)

        assert (topic.first_entry, topic.next_entry, topic.size_bytes) == (2, 2, 0)
        await b.publish(b"new")
        await b.clock.advance(10 * MINUTE + 2 * CHECK)
        assert topic.first_entry == 3


async def test_what_a_durable_subscription_has_not_acknowledged_stays() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b)
        await decide(b, retention=Retention(1, -1))
        for _ in range(4):
            await b.publish(b"x")
        await b.clock.advance(10 * MINUTE)
        assert topic.first_entry == 0

        await acknowledge(b, 3)
        await b.clock.advance(CHECK + 1)
        assert topic.first_entry == 3
        await b.broker.subscriptions.delete(TOPIC, "s")
        await b.clock.advance(CHECK + 1)
        assert topic.first_entry == 4


async def test_of_a_batch_half_acknowledged_all_stays() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b)
        await decide(b, retention=Retention(0, 0))
        await b.publish(b"1", b"2", b"3")
        await acknowledge(b, 2)
        await b.clock.advance(2 * CHECK)
        assert topic.first_entry == 0
        await acknowledge(b, 1)
        await b.clock.advance(2 * CHECK)
        assert topic.first_entry == 1


async def test_the_oldest_beyond_the_size_goes() -> None:
    async with bench() as b:
        topic = await log(b)
        await decide(b, retention=Retention(-1, 1))
        for _ in range(30):
            await b.publish(b"x" * 100_000)
        assert topic.size_bytes > 2 * MB
        await b.clock.advance(CHECK + 1)

        assert topic.size_bytes <= MB
        assert topic.first_entry == 20
        assert topic.size_bytes == await b.store.size_since(topic.ledger, 0)


async def test_readers_hold_nothing_and_go_on_with_what_is_left() -> None:
    async with bench() as b:
        topic = await log(b)
        for number in range(4):
            await b.publish(b"%d" % number)
        reader = await b.consumer(SubscriptionType.EXCLUSIVE, subscription="reader", durable=False, window=1)
        assert await b.payloads(reader) == [b"0"]
        await decide(b, retention=Retention(0, 0))
        await b.clock.advance(2 * CHECK)
        assert topic.first_entry == 4
        await b.publish(b"4")

        assert await b.payloads(reader) == [b"4"]


async def test_a_topics_policies_go_before_its_namespaces_and_those_before_the_servers() -> None:
    async with bench(BrokerSettings(retention_minutes=30)) as b:
        topic = await log(b)
        namespace = TOPIC.namespace_name
        assert topic.policies.retention == Retention(30, -1)
        await b.broker.namespaces.update(namespace, NamespacePolicies(retention=Retention(20, 5)))
        assert topic.policies.retention == Retention(20, 5)
        await decide(b, retention=Retention(10, -1))
        assert topic.policies.retention == Retention(10, -1)
        await b.broker.namespaces.update(namespace, NamespacePolicies())
        assert topic.policies.retention == Retention(10, -1)
        await decide(b)

        assert topic.policies.retention == Retention(30, -1)
        assert b.broker.policies.of_topic(TOPIC) == TopicPolicies()


async def test_policies_survive_a_restart_and_go_with_their_topic() -> None:
    async with bench() as b:
        await b.publish(b"x")
        await decide(b, retention=Retention(1, -1), max_consumers=3)
        store = b.store
    again = Bench(store=store)
    await again.broker.start()
    try:
        # Nobody uses the topic: it is opened to see what it holds.
        await again.clock.advance(2 * MINUTE)
        await again.clock.advance(1)
        assert [(t.name, t.first_entry) for t in again.broker.topics.open_topics] == [(TOPIC, 1)]
        assert (await log(again)).policies.max_consumers == 3
        await again.broker.administration.delete_topic(TOPIC)
        assert again.broker.policies.of_topic(TOPIC) == TopicPolicies()
        assert await store.load_meta("topic-policies") == {}
    finally:
        await again.broker.close()


async def test_partitions_have_their_topics_policies() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 2)
        await decide(b, retention=Retention(0, 0))
        await b.publish(b"1", b"2", b"3", b"4", batch=False)
        await b.clock.advance(2 * CHECK)

        logs = await b.broker.topics.all_of(TOPIC)
        assert [one.first_entry for one in logs] == [2, 2]


async def test_what_compaction_left_stays() -> None:
    async with bench() as b:
        topic = await log(b)
        producer = await b.broker.producer(TOPIC)
        for key in ("a", "b", "a", "c"):
            await producer.publish([OutMessage(payload=key.encode(), key=key)])
        b.broker.compactions.start(topic)
        await settle()
        await producer.publish([OutMessage(payload=b"later", key="b")])
        await decide(b, retention=Retention(0, 0))
        await b.clock.advance(2 * CHECK)
        assert topic.first_entry == 1  # the last value of b, as far as compaction knows

        b.broker.compactions.start(topic)
        await settle()
        await producer.publish([OutMessage(payload=b"x")])
        await acknowledge_nothing(b)
        assert topic.first_entry == 2
        reader = await b.consumer(SubscriptionType.EXCLUSIVE, subscription="r", durable=False, compacted=True)
        assert await b.payloads(reader) == [b"a", b"c", b"later", b"x"]


async def acknowledge_nothing(b: Bench) -> None:
    """Have topics looked at: policies that change do."""
    await decide(b, retention=Retention(0, 0), max_producers=7)
    await b.clock.advance(2 * CHECK)


# -- expiry


async def test_messages_expire_on_every_subscription_also_those_that_are_out() -> None:
    async with bench() as b:
        await log(b)
        consumer = await b.consumer(SubscriptionType.SHARED)
        await subscribed(b, "other")
        await decide(b, message_ttl_s=60)
        await b.publish(b"old")
        assert await b.payloads(consumer) == [b"old"]
        await b.clock.advance(30_000)
        await b.publish(b"young")
        await b.clock.advance(30_000 + CHECK)

        topic = await log(b)
        assert {name: s.backlog for name, s in topic.subscriptions.items()} == {"s": 1, "other": 1}
        assert topic.subscriptions["s"].unacked == 1
        assert topic.first_entry == 0
        await b.clock.advance(30_000 + CHECK)
        assert [s.backlog for s in topic.subscriptions.values()] == [0, 0]
        await b.publish(b"next")
        await b.clock.advance(60_000 + CHECK + 1)
        assert [s.backlog for s in topic.subscriptions.values()] == [0, 0]


# -- quotas


def size_quota(limit: int, action: QuotaAction) -> dict[str, Quota]:
    return {"size_quota": Quota(limit, action)}


async def test_publishing_waits_for_room_in_turn() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b)
        await decide(b, **size_quota(2000, QuotaAction.HOLD))
        producer = await b.broker.producer(TOPIC)
        for _ in range(2):
            await producer.publish([OutMessage(payload=b"x" * 1000)])
        held = [
            asyncio.get_running_loop().create_task(producer.publish([OutMessage(payload=b"%d" % n)]))
            for n in range(3)
        ]
        await b.clock.advance(5000)
        assert not any(task.done() for task in held)
        with pytest.raises(PenstockError) as caught:
            await b.broker.producer(TOPIC)
        assert caught.value.kind is ErrorKind.BACKLOG_QUOTA_HOLD
        assert caught.value.retriable

        await acknowledge(b, 1)
        await asyncio.gather(*held)
        assert [e.offset for e in await topic.read(0, 10)] == [0, 1, 2, 3, 4]
        payloads = [wire.decode(e)[0].payload for e in await topic.read(2, 10)]
        assert payloads == [b"0", b"1", b"2"]
        await b.broker.producer(TOPIC)


async def test_a_held_publish_fails_in_the_end_and_can_be_repeated() -> None:
    async with bench(BrokerSettings(deduplication=True)) as b:
        await log(b)
        await subscribed(b)
        await decide(b, **size_quota(1000, QuotaAction.HOLD))
        producer = await b.broker.producer(TOPIC, ProducerOptions(name="p"))
        await producer.publish([OutMessage(payload=b"x" * 1000, sequence_id=1)])
        held = asyncio.get_running_loop().create_task(
            producer.publish([OutMessage(payload=b"y", sequence_id=2)])
        )
        await settle()
        await b.clock.advance(BrokerSettings().quota_hold_ms + 1)
        await settle()
        (result,) = await held
        assert isinstance(result, PenstockError)
        assert result.kind is ErrorKind.BACKLOG_QUOTA_HOLD

        await acknowledge(b, 1)
        (result,) = await producer.publish([OutMessage(payload=b"y", sequence_id=2)])
        assert not isinstance(result, PenstockError)
        assert (await log(b)).next_offset == 2


async def test_who_is_held_hears_that_the_topic_is_gone() -> None:
    async with bench() as b:
        await log(b)
        await subscribed(b)
        await decide(b, **size_quota(10, QuotaAction.HOLD))
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"x" * 1000)])
        held = asyncio.get_running_loop().create_task(producer.publish([OutMessage(payload=b"y")]))
        await settle()
        await b.broker.administration.delete_topic(TOPIC, force=True)
        (result,) = await held

        assert isinstance(result, PenstockError)
        assert result.kind is ErrorKind.TOPIC_NOT_FOUND


async def test_publishing_fails_beyond_a_quota_that_says_so() -> None:
    async with bench() as b:
        await log(b)
        await subscribed(b)
        await decide(b, **size_quota(1000, QuotaAction.REFUSE))
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"x" * 1000)])
        (result,) = await producer.publish([OutMessage(payload=b"y")])

        assert isinstance(result, PenstockError)
        assert result.kind is ErrorKind.BACKLOG_QUOTA_EXCEPTION
        await decide(b)
        (result,) = await producer.publish([OutMessage(payload=b"y")])
        assert not isinstance(result, PenstockError)


async def test_a_backlog_may_become_no_older_than_its_quota() -> None:
    async with bench() as b:
        await log(b)
        await subscribed(b)
        await decide(b, age_quota=Quota(60, QuotaAction.REFUSE))
        producer = await b.broker.producer(TOPIC)

        async def published() -> bool:
            (result,) = await producer.publish([OutMessage(payload=b"x")])
            return not isinstance(result, PenstockError)

        assert await published()
        await b.clock.advance(60_000)
        assert await published()
        await b.clock.advance(1)
        assert not await published()
        await acknowledge(b, 1)
        assert await published()
        await acknowledge(b, 9)
        await b.clock.advance(3_600_000)
        assert await published()


async def test_the_slowest_are_moved_on_where_the_quota_evicts() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b, "slow")
        await subscribed(b, "quick")
        await decide(b, **size_quota(10_000, QuotaAction.EVICT), retention=Retention(0, 0))
        for number in range(50):
            await b.publish(b"x" * 1000)
            await acknowledge(b, 1, "quick")
            await b.clock.advance(0)
            slow = topic.subscriptions["slow"]
            assert await topic.store.size_since(topic.ledger, slow.cursor.mark) <= 11_500, number
        await b.clock.advance(2 * CHECK)

        assert topic.subscriptions["quick"].backlog == 0
        assert 5 <= topic.subscriptions["slow"].backlog <= 10
        assert topic.first_offset == topic.subscriptions["slow"].cursor.mark


async def test_evicted_by_age() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b)
        await decide(b, age_quota=Quota(60, QuotaAction.EVICT))
        for _ in range(3):
            await b.publish(b"x")
            await b.clock.advance(20_000)
        await b.clock.advance(CHECK + 1)

        assert topic.subscriptions["s"].backlog == 2


async def test_a_cursor_that_goes_back_counts() -> None:
    async with bench() as b:
        topic = await log(b)
        await subscribed(b)
        await decide(b, **size_quota(5000, QuotaAction.REFUSE))
        for _ in range(20):
            await b.publish(b"x" * 1000)
            await acknowledge(b, 1)
        await topic.subscriptions["s"].seek(EARLIEST)

        with pytest.raises(PenstockError) as caught:
            await b.broker.producer(TOPIC)
        assert caught.value.kind is ErrorKind.BACKLOG_QUOTA_EXCEPTION


# -- producers


async def test_silent_producers_are_forgotten_and_others_are_not() -> None:
    async with bench(BrokerSettings(deduplication=True, producer_memory_minutes=60)) as b:
        topic = await log(b)
        for name in ("gone", "here", "busy"):
            producer = await b.broker.producer(TOPIC, ProducerOptions(name=name))
            await producer.publish([OutMessage(payload=b"x", sequence_id=7)])
            if name != "here":
                producer.close()
        await b.clock.advance(40 * MINUTE)
        producer = await b.broker.producer(TOPIC, ProducerOptions(name="busy"))
        await producer.publish([OutMessage(payload=b"x", sequence_id=8)])
        producer.close()
        await b.clock.advance(30 * MINUTE + PRODUCERS_EVERY_MS)

        assert [topic.sequences.last(name) for name in ("gone", "here", "busy")] == [-1, 7, 8]
        assert (await b.store.open(str(TOPIC))).producers == {"here": 7, "busy": 8}


# -- cost


async def test_many_topics_that_nothing_happens_to_cost_nothing() -> None:
    async with bench(BrokerSettings(retention_minutes=60)) as b:
        names = [TopicName.parse(f"t{number}") for number in range(300)]
        for name in names:
            await b.publish(b"x", topic=name)
        await b.clock.advance(CHECK * 2)
        looks = []
        find_time = b.store.find_time
        b.store.find_time = lambda *args: looks.append(args) or find_time(*args)  # type: ignore[method-assign,func-returns-value]
        await b.clock.advance(50 * MINUTE)
        assert looks == []
        await b.publish(b"y", topic=names[0])
        await b.clock.advance(CHECK)
        assert looks == []
        await b.clock.advance(10 * MINUTE + CHECK)

        assert len(looks) <= 2 * len(names)
        assert (await log(b, names[1])).first_entry == 1


async def test_who_is_held_hears_at_once_that_the_server_goes_down() -> None:
    async with bench() as b:
        await log(b)
        await subscribed(b)
        await decide(b, **size_quota(10, QuotaAction.HOLD))
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"x" * 1000)])
        held = [
            asyncio.get_running_loop().create_task(producer.publish([OutMessage(payload=b"%d" % n)]))
            for n in range(3)
        ]
        await settle()
        b.broker.drain()
        for one in held:
            (result,) = await one
            assert isinstance(result, PenstockError)
            assert result.kind is ErrorKind.UNAVAILABLE
        (result,) = await producer.publish([OutMessage(payload=b"later")])
        assert isinstance(result, PenstockError)
        assert result.kind is ErrorKind.UNAVAILABLE


async def test_one_topic_that_fails_keeps_no_other_from_its_look(monkeypatch: pytest.MonkeyPatch) -> None:
    other = TopicName.parse("other")
    looked: list[TopicName] = []
    inner = retention_task.look

    async def look(topic: Topic) -> retention_task.Look:
        looked.append(topic.name)
        if topic.name == TOPIC:
            raise OverflowError
        return await inner(topic)

    monkeypatch.setattr(retention_task, "look", look)
    async with bench() as b:
        for name in (TOPIC, other):
            await log(b, name)
            await decide(b, name, message_ttl_s=1)
        await b.clock.advance(CHECK + 1)
        assert looked[-2:] == [TOPIC, other]


async def test_retention_beyond_all_time() -> None:
    async with bench() as b:
        topic = await log(b)
        await decide(b, retention=Retention(2**62, 2**62))  # as a configuration, or an older server, may say
        await b.clock.advance(CHECK + 1)
        assert await topic.offset_at_time(-(2**80)) == await topic.offset_at_time(2**80) == 0


async def test_what_is_appended_during_a_trim_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench() as b:
        topic = await log(b)
        producer = await b.broker.producer(TOPIC)
        for _ in range(3):
            await producer.publish([OutMessage(payload=b"x" * 1000)])
        one = topic.size_bytes // 3
        trim, may = topic.store.trim, asyncio.Event()

        async def later(ledger: int, before_entry: int) -> int:
            await may.wait()
            return await trim(ledger, before_entry)

        monkeypatch.setattr(
            topic.store, "trim", lambda *a: asyncio.get_running_loop().create_task(later(*a)), raising=True
        )
        trimming = asyncio.get_running_loop().create_task(topic.trim(2))
        await settle()
        await producer.publish([OutMessage(payload=b"x" * 1000)])
        may.set()
        await trimming
        assert topic.size_bytes == 2 * one
