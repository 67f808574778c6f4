"""What subscriptions promise beyond the model: dead letters, delays over a restart, patterns, seeks by time."""

import pytest
from tests.support.budgets import StubBudget
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.broker.settings import BrokerSettings
from penstock.engines.core.broker import Broker
from penstock.engines.memory import MemoryStore
from penstock.engines.subscription import Consumer, outstanding
from penstock.engines.subscription.subscription import HAND_OVER_MS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import DEFAULT_NAMESPACE, TopicName
from penstock.model.policy import ConsumerOptions, DeadLetter, SubscriptionType
from penstock.model.schema import STRING_SCHEMA
from penstock.runtime.failures import FailureKind
from penstock.testing.clock import settle
from penstock.wire import entry as wire

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER, KEY_SHARED = SubscriptionType.FAILOVER, SubscriptionType.KEY_SHARED


async def kind_of(work: object) -> ErrorKind:
    with pytest.raises(PenstockError) as caught:
        await work  # type: ignore[misc]
    return caught.value.kind


async def test_a_second_exclusive_a_wrong_type_and_a_taken_name_are_refused() -> None:
    async with bench() as b:
        await b.consumer(EXCLUSIVE)
        assert await kind_of(b.consumer(EXCLUSIVE)) is ErrorKind.SUBSCRIPTION_BUSY
        assert await kind_of(b.consumer(SHARED)) is ErrorKind.SUBSCRIPTION_BUSY
        await b.consumer(SHARED, subscription="t", name="me")
        taken = b.broker.subscribe([TOPIC], "t", ConsumerOptions(type=SHARED, name="me"), unique_name=True)
        assert await kind_of(taken) is ErrorKind.CONSUMER_BUSY


async def test_an_idle_subscription_takes_another_type() -> None:
    async with bench() as b:
        await (await b.consumer(EXCLUSIVE)).leave()
        assert (await b.consumer(SHARED)).attached


@pytest.mark.parametrize("batch", [True, False])
async def test_a_message_that_fails_too_often_becomes_a_dead_letter(batch: bool) -> None:
    async with bench() as b:
        await b.publish(b"good", b"bad", batch=batch)
        consumer = await b.consumer(dead_letter=DeadLetter(2), nack_delay_ms=0)
        seen = []
        for _ in range(6):
            for message_id, message, delivery in await b.taken(consumer):
                seen.append((message.payload, delivery.redeliveries))
                if message.payload == b"good":
                    await consumer.acknowledge(message_id)
                else:
                    bad = message_id
                    consumer.negative(message_id)
        assert seen == [(b"good", 0), (b"bad", 0), (b"bad", 1), (b"bad", 2)]
        assert b.broker.topics.open_topics[0].subscriptions["s"].backlog == 0
        reader = await b.consumer(topic=TopicName.parse("t-s-DLQ"))
        ((_, letter, _),) = await b.taken(reader)
        assert letter.payload == b"bad"
        assert letter.properties == {
            "REAL_TOPIC": str(TOPIC),
            "REAL_SUBSCRIPTION": "s",
            "ORIGIN_MESSAGE_ID": str(bad),
            "DEAD_LETTER_REASON": "not acknowledged after 3 deliveries",
        }


async def test_a_dead_letter_keeps_its_schema() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        version = await producer.schema_version(STRING_SCHEMA)
        await producer.publish([OutMessage(payload=b"bad", schema_version=version)])
        consumer = await b.consumer(dead_letter=DeadLetter(0), nack_delay_ms=0)
        ((message_id, _, _),) = await b.taken(consumer)
        consumer.negative(message_id)
        letters = TopicName.parse("t-s-DLQ")
        ((_, letter, _),) = await b.taken(await b.consumer(topic=letters))
        assert letter.schema_version == 0
        assert b.broker.schemas.version(letters, 0).schema == STRING_SCHEMA


@pytest.mark.parametrize("batch", [True, False])
async def test_a_dead_letter_topic_that_takes_nothing_is_seen_and_holds_up_nothing(
    batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    letters = TopicName.parse("t-s-DLQ")
    async with bench() as b:
        await b.publish(b"first", topic=letters)
        await b.broker.topics.terminate(letters)
        await b.publish(b"good", b"bad", batch=batch)
        consumer = await b.consumer(dead_letter=DeadLetter(0), nack_delay_ms=0)

        async def answer() -> list[bytes]:
            seen = []
            for message_id, message, _ in await b.taken(consumer):
                seen.append(message.payload)
                if message.payload.startswith(b"good"):
                    await consumer.acknowledge(message_id)
                else:
                    consumer.negative(message_id)
            await settle()
            return seen

        assert await answer() == [b"good", b"bad"]
        subscription = b.broker.topics.open_topics[-1].subscriptions["s"]
        figures = subscription.dead_letters
        assert (figures.waiting, figures.failed) == (1, 1)
        assert figures.error is not None
        assert "terminated" in figures.error
        assert subscription.backlog == 1
        for _ in range(5):
            await b.publish(b"good too")
            assert await answer() == [b"good too"]
            await b.clock.advance(60_000)
        assert figures.failed > 3
        assert [one.subject for one in b.broker.failures.ongoing] == [f"{TOPIC} s"]
        await b.broker.topics.delete(letters, force=True)
        await b.clock.advance(60_000)
        assert await b.payloads(await b.consumer(topic=letters)) == [b"bad"]
        assert (figures.waiting, figures.error, subscription.backlog) == (0, None, 0)
        assert not b.broker.failures.ongoing
        assert len(caplog.records) == 2


async def test_a_log_that_cannot_be_read_is_said_once_and_holds_up_no_other_topic(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench() as b:
        await b.publish(b"x")
        await b.publish(b"y", topic=TopicName.parse("other"))
        topic = next(one for one in b.broker.topics.open_topics if one.name == TOPIC)
        read, broken = type(topic).read, True

        async def reads(self: object, *given: object) -> object:
            if broken and self is topic:
                raise PenstockError(ErrorKind.STORAGE_FAILED, "a damaged page")
            return await read(self, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(type(topic), "read", reads)
        monkeypatch.setattr(type(topic), "peek", lambda *_: None)
        monkeypatch.setattr(type(topic), "peek_all", lambda *_: [])
        consumer = await b.consumer()
        for _ in range(3):
            await b.clock.advance(1000)
        (failure,) = b.broker.failures.ongoing
        assert (failure.kind, failure.message) == (FailureKind.READ, "a damaged page")
        assert failure.count >= 3
        assert await b.payloads(await b.consumer(topic=TopicName.parse("other"))) == [b"y"]
        broken = False
        await b.clock.advance(1000)
        assert await b.payloads(consumer) == [b"x"]
        assert not b.broker.failures.ongoing
        assert [record.getMessage() for record in caplog.records] == [
            "messages cannot be read",
            "messages can be read again",
        ]


async def test_a_seek_while_dead_letters_wait_delivers_them_again() -> None:
    letters = TopicName.parse("t-s-DLQ")
    async with bench() as b:
        await b.publish(b"first", topic=letters)
        await b.broker.topics.terminate(letters)
        await b.publish(b"bad")
        consumer = await b.consumer(dead_letter=DeadLetter(0), nack_delay_ms=0)
        ((message_id, _, _),) = await b.taken(consumer)
        consumer.negative(message_id)
        await settle()
        subscription = b.broker.topics.open_topics[-1].subscriptions["s"]
        await subscription.seek(EARLIEST)
        assert await b.payloads(consumer) == [b"bad"]
        assert subscription.dead_letters.waiting == 0
        assert not b.broker.failures.ongoing


async def test_a_delayed_message_waits_also_over_a_restart() -> None:
    async with bench() as b:
        await b.consumer(SHARED)
        producer = await b.broker.producer(TOPIC)
        at = b.clock.now_ms() + 10_000
        await producer.publish([OutMessage(payload=b"later", deliver_at=at), OutMessage(payload=b"now")])
        broker = Broker(b.store, MemoryStore(), wire, b.clock)
        await broker.start()
        b.broker = broker
        consumer = await b.consumer(SHARED)
        assert await b.payloads(consumer) == [b"now"]
        await b.clock.advance(9_999)
        assert await b.payloads(consumer) == []
        await b.clock.advance(1)
        assert await b.payloads(consumer) == [b"later"]


async def test_little_is_read_while_many_messages_wait_that_were_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outstanding, "WAITING_MAX", 3)
    async with bench() as b:
        consumer = await b.consumer(SHARED, nack_delay_ms=10_000)
        await b.publish(b"0", b"1", b"2", batch=False)
        given = [message_id for message_id, _, _ in await b.taken(consumer)]
        assert len(given) == 3
        for message_id in given:
            assert consumer.negative(message_id)
        await b.publish(b"3")
        assert await b.payloads(consumer) == []
        await consumer.acknowledge(given[0])
        assert await b.payloads(consumer) == [b"3"]
        await b.clock.advance(10_000)
        assert await b.payloads(consumer) == [b"1", b"2"]


async def test_exclusive_ignores_delays_as_pulsar_does() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"x", deliver_at=b.clock.now_ms() + 10_000)])
        assert await b.payloads(await b.consumer(EXCLUSIVE)) == [b"x"]


async def test_seek_by_time_and_by_id_and_to_both_ends() -> None:
    async with bench() as b:
        ids = []
        for n in range(5):
            ids += await b.publish(b"%d" % n)
            b.clock.turn(1000)
        consumer = await b.consumer(EXCLUSIVE)
        assert len(await b.payloads(consumer)) == 5
        await consumer.seek(b.clock.now_ms() - 2000)
        assert await b.payloads(consumer) == [b"3", b"4"]
        await consumer.seek(ids[0])
        assert await b.payloads(consumer) == [b"1", b"2", b"3", b"4"]
        await consumer.seek(LATEST)
        assert await b.payloads(consumer) == []
        await consumer.seek(EARLIEST)
        assert len(await b.payloads(consumer)) == 5
        assert consumer.unacked == 5
        strange = MessageId(99, 0)
        assert await kind_of(consumer.seek(strange)) is ErrorKind.MESSAGE_NOT_FOUND


async def test_failover_goes_by_priority_then_name_and_loses_nothing() -> None:
    async with bench() as b:
        later = await b.consumer(FAILOVER, name="b", priority=1)
        ids = await b.publish(b"0", b"1", b"2")
        assert len(await b.payloads(later)) == 3
        await later.acknowledge(ids[0])
        first = await b.consumer(FAILOVER, name="z", priority=0)
        assert await b.payloads(first) == []  # the one before may be about to answer
        await b.clock.advance(HAND_OVER_MS)
        assert await b.payloads(first) == [b"1", b"2"]
        await b.publish(b"3")
        assert await b.payloads(later) == []
        await first.leave()
        assert await b.payloads(later) == [b"1", b"2", b"3"]


async def test_what_the_active_consumer_before_still_acknowledges_is_not_handed_over() -> None:
    async with bench() as b:
        before = await b.consumer(FAILOVER, name="b")
        ids = await b.publish(b"0", b"1", b"2", batch=False)
        assert len(await b.payloads(before)) == 3
        active = await b.consumer(FAILOVER, name="a")
        (source,) = active.attached
        assert source.active is active
        await b.publish(b"3")
        await before.acknowledge_all(ids[:2])
        assert await b.payloads(active) == []
        await before.acknowledge(ids[2])
        assert await b.payloads(active) == [b"3"]
        third = await b.consumer(FAILOVER, name="0")
        await active.leave()  # it is not waited for
        assert await b.payloads(third) == [b"3"]


@pytest.mark.parametrize("type", [SHARED, KEY_SHARED, EXCLUSIVE])
@pytest.mark.parametrize("flow", [True, False])
async def test_a_redelivery_that_is_acknowledged_as_it_waits_is_not_given_out(
    type: SubscriptionType, flow: bool
) -> None:
    async with bench() as b:
        consumer = await b.consumer(type, flow=flow, nack_delay_ms=0)
        if flow:
            consumer.flow(6)
        ids = await b.publish(b"0", b"1", b"2", batch=False)
        assert len(await b.payloads(consumer)) == 3
        for one in ids:
            assert consumer.negative(one)
        await settle()
        assert len(consumer.outbox) == 3
        await consumer.acknowledge_all(ids[:2])
        assert await b.payloads(consumer) == [b"2"]
        assert consumer.unacked == 1
        assert consumer.permits == (2 if flow else 0)


async def test_failover_spreads_partitions_over_consumers() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 4)
        consumers = [await b.consumer(FAILOVER, name=n) for n in ("a", "b")]
        await b.publish(*[b"%d" % n for n in range(8)])
        assert [len(await b.payloads(c)) for c in consumers] == [4, 4]


async def test_a_partition_added_later_joins() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 1)
        consumer = await b.consumer(SHARED)
        await b.broker.topics.set_partitions(TOPIC, 2)
        await settle()
        await b.publish(b"in the new one", topic=TOPIC.of_partition(1))
        assert await b.payloads(consumer) == [b"in the new one"]


async def test_topics_that_match_a_pattern_join_when_they_appear() -> None:
    async with bench() as b:
        await b.publish(b"early", topic=TopicName.parse("log-1"))
        consumer = await b.broker.subscribe_pattern(
            "public/default/log-.*",
            "s",
            ConsumerOptions(type=SHARED, start=EARLIEST),
            namespace=DEFAULT_NAMESPACE,
        )
        assert await b.payloads(consumer) == [b"early"]
        await b.publish(b"other", topic=TopicName.parse("metrics"))
        await b.publish(b"new", topic=TopicName.parse("log-2"))
        assert await b.payloads(consumer) == [b"new"]


async def test_the_window_bounds_what_is_out_over_all_partitions() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 3)
        await b.publish(*[b"%d" % n for n in range(30)])
        consumer = await b.consumer(SHARED, window=5)
        taken = await b.taken(consumer)
        assert len(taken) == 5
        for message_id, _, _ in taken:
            await consumer.acknowledge(message_id)
        assert len(await b.payloads(consumer)) == 5


async def test_shared_takes_turns() -> None:
    async with bench() as b:
        consumers = [await b.consumer(SHARED) for _ in range(10)]
        await b.publish(*[b"x"] * 100, batch=False)
        assert [len(await b.payloads(c)) for c in consumers] == [10] * 10


async def test_a_batch_is_spread_over_those_who_share() -> None:
    async with bench() as b:
        consumers = [await b.consumer(SHARED) for _ in range(4)]
        await b.publish(*[b"%d" % n for n in range(10)])
        assert [len(await b.payloads(c)) for c in consumers] == [3, 3, 3, 1]


async def test_a_better_priority_gets_all_it_has_room_for() -> None:
    async with bench() as b:
        late, first = await b.consumer(SHARED, priority=1), await b.consumer(SHARED, priority=0, window=5)
        await b.publish(*[b"%d" % n for n in range(8)], batch=False)
        assert await b.payloads(first) == [b"0", b"1", b"2", b"3", b"4"]
        assert await b.payloads(late) == [b"5", b"6", b"7"]


async def test_what_is_no_part_of_a_share_takes_turns_too() -> None:
    async with bench() as b:
        consumers = [await b.consumer(SHARED) for _ in range(2)]
        for large in range(4):
            await b.publish(b"%d" % large * 40_000, batch=False)
            await settle()
        sizes = [[payload[:1] for payload in await b.payloads(c)] for c in consumers]
        assert sizes == [[b"0", b"2"], [b"1", b"3"]]


async def test_key_shared_gives_sticky_ranges_to_who_named_them() -> None:
    async with bench() as b:
        low = await b.consumer(KEY_SHARED, key_ranges=((0, 32767),))
        high = await b.consumer(KEY_SHARED, key_ranges=((32768, 65535),))
        taken = b.consumer(KEY_SHARED, key_ranges=((100, 200),))
        assert await kind_of(taken) is ErrorKind.KEY_RANGE_TAKEN
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"x", key=f"k{n}") for n in range(50)])
        counts = [len(await b.payloads(c)) for c in (low, high)]
        assert sum(counts) == 50
        assert all(counts)


async def test_acknowledging_every_second_of_a_large_backlog_restarts() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        for _ in range(50):
            await producer.publish_plain([b"x"] * 1000, None)
        consumer = await b.consumer(SHARED, window=50_000)
        every_second = 0
        while delivered := await b.taken(consumer):
            for message_id, message, _ in delivered:
                if message.offset % 2:
                    await consumer.acknowledge(message_id)
                    every_second += 1
        await consumer.flush()
        broker = Broker(b.store, MemoryStore(), wire, b.clock)
        await broker.start()
        b.broker = broker
        again = await b.consumer(SHARED, window=50_000)
        offsets = []
        while delivered := await b.taken(again):
            offsets += [message.offset for _, message, _ in delivered]
        assert every_second == 25_000
        assert offsets == list(range(0, 50_000, 2))


async def test_end_of_topic_only_when_terminated_and_drained() -> None:
    async with bench() as b:
        ids = await b.publish(b"last")
        consumer = await b.consumer(EXCLUSIVE)
        await b.broker.topics.terminate(TOPIC)
        assert not consumer.drained
        await b.taken(consumer)
        await consumer.acknowledge(ids[0])
        assert consumer.drained
        assert await kind_of(b.broker.producer(TOPIC)) is ErrorKind.TOPIC_TERMINATED


async def test_deleting_a_subscription_closes_its_consumers() -> None:
    async with bench() as b:
        consumer = await b.consumer(EXCLUSIVE)
        assert await kind_of(b.broker.subscriptions.delete(TOPIC, "s")) is ErrorKind.SUBSCRIPTION_BUSY
        await b.broker.subscriptions.delete(TOPIC, "s", force=True)
        assert consumer.closed
        assert not await consumer.ready()
        assert await kind_of(b.broker.subscriptions.of(TOPIC, "s")) is ErrorKind.SUBSCRIPTION_NOT_FOUND


async def test_ids_of_nowhere_are_answered_and_change_nothing() -> None:
    async with bench() as b:
        await b.publish(b"a", b"b")
        consumer: Consumer = await b.consumer(SHARED)
        await b.taken(consumer)
        ledger = consumer.attached[0].topic.ledger
        for strange in (
            MessageId(99, 0),
            MessageId(ledger, 99),
            MessageId(ledger, 0, -1, 2),
            EARLIEST,
            LATEST,
        ):
            assert await kind_of(consumer.acknowledge(strange)) is ErrorKind.MESSAGE_NOT_FOUND
        assert await kind_of(consumer.acknowledge_cumulative(MessageId(ledger, 0))) is ErrorKind.BAD_PARAMETER
        for permits in (0, -5):
            with pytest.raises(PenstockError):
                consumer.flow(permits)
        consumer.flow(2**40)
        assert consumer.unacked == 2


async def test_a_topic_that_is_deleted_and_made_again_is_new() -> None:
    async with bench() as b:
        old = await b.publish(b"old")
        await b.broker.administration.delete_topic(TOPIC)
        new = await b.publish(b"new")
        assert new[0].ledger != old[0].ledger
        assert await b.payloads(await b.consumer(EXCLUSIVE)) == [b"new"]


async def test_deduplication_stores_once_and_answers_with_the_first_id() -> None:
    from penstock.broker.settings import BrokerSettings
    from penstock.model.policy import ProducerOptions

    async def once(b: Bench, sequence: int) -> object:
        producer = await b.broker.producer(TOPIC, ProducerOptions(name="p", shared_name=True))
        (result,) = await producer.publish([OutMessage(payload=b"x", sequence_id=sequence)])
        return result

    async with bench(BrokerSettings(deduplication=True)) as b:
        first = await once(b, 0)
        assert await once(b, 0) == first
        await once(b, 5)
        assert await once(b, 3) == MessageId(-1, -1)
        topic = await b.broker.topics.get(TOPIC)
        assert topic.next_offset == 2
        restarted = Broker(b.store, MemoryStore(), wire, b.clock, BrokerSettings(deduplication=True))
        await restarted.start()
        b.broker = restarted
        assert await once(b, 5) == MessageId(-1, -1)
        assert (await restarted.topics.get(TOPIC)).next_offset == 2


async def test_a_producer_learns_of_partitions_added_later() -> None:
    async with bench() as b:
        await b.broker.topics.create(TOPIC, 1)
        producer = await b.broker.producer(TOPIC)
        await b.broker.topics.set_partitions(TOPIC, 2)
        await settle()
        results = await producer.publish([OutMessage(payload=b"x") for _ in range(2)])
        assert sorted(r.partition for r in results if isinstance(r, MessageId)) == [0, 1]


async def test_a_non_persistent_topic_keeps_the_newest_within_its_bound() -> None:
    from penstock.broker.settings import BrokerSettings

    topic = TopicName.parse("non-persistent://public/default/t")
    async with bench(BrokerSettings(transient_topic_bytes=2000)) as b:
        slow = await b.consumer(topic=topic, window=1)
        for n in range(20):
            await b.publish(b"%03d" % n + b"x" * 297, topic=topic)
            await settle()
        seen = []
        while taken := await b.taken(slow):
            assert len(taken) == 1
            seen.append(int(taken[0][1].payload[:3]))
            await slow.acknowledge(taken[0][0])
        assert seen == sorted(seen)
        assert 3 <= len(seen) <= 6
        assert seen[-1] == 19
        assert (await b.broker.topics.get(topic)).size_bytes <= 2000


async def test_skipping_does_not_deliver_again_what_is_out() -> None:
    async with bench() as b:
        await b.publish(*(b"%d" % n for n in range(6)), batch=False)
        consumer = await b.consumer()
        assert len(await b.taken(consumer)) == 6
        (source,) = consumer.attached
        source.skip(2)
        assert await b.taken(consumer) == []
        assert source.backlog == source.unacked == 4


async def test_the_end_is_not_reached_while_messages_wait_for_their_key() -> None:
    async with bench() as b:
        producer = await b.broker.producer(TOPIC)
        await producer.publish([OutMessage(payload=b"%d" % n, key="k") for n in range(3)])
        await b.broker.topics.terminate(TOPIC)
        consumer = await b.consumer(KEY_SHARED, window=1)
        while taken := await b.taken(consumer):
            ((message_id, message, _),) = taken
            assert consumer.drained == (message.payload == b"2")
            await consumer.acknowledge(message_id)
        assert consumer.drained


@pytest.mark.parametrize("durable", [True, False])
async def test_what_was_read_ahead_goes_with_the_last_consumer(durable: bool) -> None:
    """Also where room was found for it in the same turn of the loop."""
    async with bench(BrokerSettings(tail_bytes=0)) as b:
        await b.publish(bytes(100_000))
        await b.publish(b"the tail has the newest entry in any case")
        budget = StubBudget(room=False)  # an entry may be read, and not delivered
        options = ConsumerOptions(type=EXCLUSIVE, start=EARLIEST, durable=durable)
        consumer = await b.broker.subscribe([TOPIC], "s", options, budget=budget)
        await settle()
        reading = consumer.attached[0]._delivering.reading
        assert reading.held(0) is not None
        assert budget.size > 100_000
        budget.call()
        await consumer.leave()
        await settle()
        assert reading.held(0) is None
        assert budget.size == 0
