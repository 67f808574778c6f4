import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.engines.subscription.compaction import BLOCK, Kept
from penstock.model.message import OutMessage
from penstock.model.policy import SubscriptionType
from penstock.testing.clock import settle

pytestmark = pytest.mark.anyio

OFFSETS = st.sets(st.integers(0, 3 * BLOCK), max_size=20)


@given(OFFSETS, st.integers(0, 4 * BLOCK), st.integers(0, 3 * BLOCK), st.integers(1, 200))
def test_the_set_is_a_set(offsets: set[int], horizon: int, start: int, count: int) -> None:
    offsets = {offset for offset in offsets if offset < horizon}
    kept = Kept(horizon)
    for offset in offsets:
        kept.add(offset)
    seen = {offset for offset in range(start, start + count) if offset in offsets or offset >= horizon}
    assert kept.mask(start, count) == sum(1 << (offset - start) for offset in seen)
    assert kept.last == max(offsets, default=-1)
    later = [offset for offset in offsets if offset >= start]
    assert kept.next(start) == min(later, default=max(start, horizon))


async def compact(made: Bench) -> None:
    topic = await made.broker.topics.get(TOPIC)
    made.broker.compactions.start(topic)
    await settle(500)
    assert topic.compaction.status == "SUCCESS"


async def publish(made: Bench, *pairs: tuple[str | None, bytes]) -> None:
    producer = await made.broker.producer(TOPIC)
    await producer.publish([OutMessage(payload=payload, key=key) for key, payload in pairs])
    producer.close()


async def test_it_outlives_a_restart_and_goes_with_the_topic() -> None:
    async with bench() as made:
        await publish(made, ("a", b"1"), ("a", b"2"), (None, b"3"), ("b", b"4"), ("b", b""))
        await compact(made)
    async with bench(store=made.store) as again:
        consumer = await again.consumer(SubscriptionType.EXCLUSIVE, compacted=True)
        assert await again.payloads(consumer) == [b"2"]
        await again.broker.administration.delete_topic(TOPIC, force=True)
        assert await again.store.load_meta("compaction") == {}


async def test_a_long_gap_is_passed_over_and_the_cursor_with_it() -> None:
    async with bench() as made:
        await publish(made, ("a", b"first"), *((("k"), b"%d" % n) for n in range(5000)))
        await compact(made)
        consumer = await made.consumer(SubscriptionType.EXCLUSIVE, compacted=True, window=None)
        found = await made.taken(consumer)
        assert [message.payload for _, message, _ in found] == [b"first", b"4999"]
        for message_id, _, _ in found:
            await consumer.acknowledge(message_id)
        (source,) = consumer.attached
        assert source.backlog == 0
