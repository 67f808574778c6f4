"""Logs whose ids skip numbers: everything there is is delivered, and what lies between counts as acknowledged."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.skipping_log import LEDGER, Host, SkippingLog

from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.offsets import CHUNK, OffsetSet
from penstock.engines.subscription.store import CursorChange
from penstock.model.message_id import MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire


class Saved:
    """Keeps nothing."""

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        return None

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        return None


class Story:
    def __init__(self, kind: SubscriptionType, consumers: int) -> None:
        self.clock = ManualClock()
        self.log = SkippingLog(self.clock)
        self.cursor = OffsetSet()
        log: Any = self.log
        host: Any = Host()
        self.subscription = Subscription(
            log,
            "s",
            cursor=self.cursor,
            durable=True,
            keys=wire.keys,
            tasks=Tasks(),
            cursors=Saved(),
            compaction=Compaction(),
            host=host,
        )
        options = ConsumerOptions(type=kind, nack_delay_ms=0, window=3)
        self.consumers = [Consumer(f"c{number}", "s", options) for number in range(consumers)]
        for one in self.consumers:
            self.subscription.add(one)
        self.out: dict[int, Consumer] = {}
        self.acknowledged: set[int] = set()
        self.last: dict[str, int] = {}

    async def take(self) -> None:
        await settle()
        for consumer in self.consumers:
            for delivery in consumer.take():
                offset = delivery.entry.offset
                assert offset in self.log.ever  # what was read ahead may be gone by now
                assert offset not in self.acknowledged
                assert offset not in self.out
                self.out[offset] = consumer

    async def acknowledge(self, offset: int) -> None:
        consumer = self.out.pop(offset)
        await consumer.acknowledge(MessageId(LEDGER, offset, -1))
        self.acknowledged.add(offset)

    def give_back(self, offset: int) -> None:
        assert self.out.pop(offset).negative(MessageId(LEDGER, offset, -1))


STEP = st.one_of(
    st.tuples(st.just("grow"), st.integers(0, 6), st.integers(0, 5)),
    st.tuples(st.just("ack"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("nack"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("compact"), st.integers(0, 50), st.just(0)),
)


@pytest.mark.parametrize("kind", list(SubscriptionType))
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, max_size=30))
def test_everything_is_delivered_and_the_mark_passes_over_gaps(
    kind: SubscriptionType, steps: list[tuple[str, int, int]]
) -> None:
    async def story() -> None:
        told = Story(kind, 2 if kind.shared else 1)
        for step, number, count in steps:
            waiting = sorted(told.out)
            if step == "grow":
                told.log.grow(number, count)
                told.subscription.wake()
            elif waiting and step == "ack":
                await told.acknowledge(waiting[number % len(waiting)])
            elif waiting and step == "nack":
                told.give_back(waiting[number % len(waiting)])
            elif waiting and step == "compact":  # a message goes while it is out, and comes back never
                offset = waiting[number % len(waiting)]
                told.log.entries.pop(offset, None)
                told.log.tail = 0
                told.give_back(offset)
            await told.take()
        for _ in range(200):
            if not told.out:
                break
            await told.acknowledge(min(told.out))
            await told.take()
        there = set(told.log.entries)
        assert there <= told.acknowledged
        assert told.cursor.mark == told.log.next_offset
        assert told.cursor.beyond == 0
        assert told.subscription.backlog == 0
        told.subscription.close()

    asyncio.run(story())


async def test_the_last_entry_is_found_before_a_gap() -> None:
    told = Story(SubscriptionType.SHARED, 1)
    assert await told.subscription.last_visible() is None
    told.log.grow(0, 40)
    told.log.grow(300, 0)
    found = await told.subscription.last_visible()
    assert found is not None
    assert found[0].entry_id == 39
    told.subscription.close()


@given(st.lists(st.tuples(st.integers(0, 3 * CHUNK), st.integers(0, 3 * CHUNK)), max_size=8))
def test_ranges_are_added_as_bits_would_be(spans: list[tuple[int, int]]) -> None:
    found, wanted = OffsetSet(5), set(range(5))
    for start, size in spans:
        found.add_range(start, start + size)
        wanted |= set(range(start, start + size)) if start > 5 else set(range(start + size))
        plain = OffsetSet(0)
        for offset in sorted(wanted):
            plain.add(offset, 1)
        assert (found.mark, found.beyond, list(found.ranges())) == (
            plain.mark,
            plain.beyond,
            list(plain.ranges()),
        )
