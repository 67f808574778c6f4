"""Logs whose ids skip numbers: everything there is is delivered, and what lies between counts as acknowledged."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engines.subscription import Consumer, Subscription
from penstock.engines.subscription.compaction import Compaction
from penstock.engines.subscription.offsets import CHUNK, OffsetSet
from penstock.engines.subscription.store import CursorChange
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle
from penstock.wire import entry as wire

LEDGER = 7


def entry_at(offset: int) -> Entry:
    key = f"k{offset % 3}"
    made = wire.encode(
        [OutMessage(payload=b"%d" % offset, key=key)],
        producer="p",
        sequence_id=offset,
        publish_time=1,
        schema_version=None,
    )
    return Entry(LEDGER, offset, offset, 1, 1, 0, made.data)


class SkippingLog:
    """A log in memory that has only some of its ids; the newest `tail` of them are at hand."""

    partition = 0
    terminated = deleted = False
    read_bytes_max = 1 << 20

    def __init__(self, clock: ManualClock) -> None:
        self.name = TopicName.parse("skipping")
        self.ledger = LEDGER
        self.clock = clock
        self.first_entry = self.first_offset = self.next_entry = self.next_offset = 0
        self.entries: dict[int, Entry] = {}
        self.ever: set[int] = set()
        self.tail = 4
        self.gaps: dict[int, int] = {}

    def grow(self, skip: int, count: int) -> None:
        for offset in range(self.next_offset + skip, self.next_offset + skip + count):
            self.entries[offset] = entry_at(offset)
        self.ever |= set(self.entries)
        self.next_entry = self.next_offset = self.next_offset + skip + count

    def peek(self, entry_id: int) -> Entry | None:
        return self.entries.get(entry_id) if entry_id >= self.next_entry - self.tail else None

    def peek_all(self, entry_id: int, entries_max: int) -> Sequence[Entry]:
        return self._run(entry_id, entries_max) if entry_id >= self.next_entry - self.tail else []

    def gap_end(self, entry_id: int) -> int:
        return self.gaps.get(entry_id, entry_id)

    def _run(self, entry_id: int, entries_max: int) -> list[Entry]:
        found: list[Entry] = []
        while entry_id in self.entries and len(found) < entries_max:
            found.append(self.entries[entry_id])
            entry_id += 1
        return found

    async def read(self, entry_id: int, entries_max: int, bytes_max: int = 0) -> list[Entry]:
        await asyncio.sleep(0)
        start = max(entry_id, self.first_entry)
        at = next((one for one in range(start, self.next_entry) if one in self.entries), self.next_entry)
        if at > entry_id:
            self.gaps[entry_id] = at
        return self._run(at, entries_max)

    async def entry(self, entry_id: int) -> Entry:
        if entry_id not in self.entries:
            raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, "no entry")
        return self.entries[entry_id]

    async def entry_at(self, offset: int) -> int:
        return min(max(offset, self.first_entry), self.next_entry)

    def has_read(self, size: int) -> None:
        return None


class Saved:
    """Keeps nothing."""

    async def save_cursors(self, changes: Sequence[CursorChange]) -> None:
        return None

    async def delete_cursor(self, ledger: int, subscription: str) -> None:
        return None


class Host:
    """Nobody's."""

    failures = Failures(ManualClock())

    def check(self, *_: object) -> None: ...
    def moved(self, *_: object) -> None: ...
    def rewound(self) -> None: ...
    def removed(self, *_: object) -> None: ...
    async def bury(self, *_: object) -> None: ...


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
