"""Delayed messages beside a plain list: each is released once, when it is due and not before, whatever is held in memory."""

import asyncio
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engines.subscription import delayed
from penstock.engines.subscription.delayed import DelayedMessages
from penstock.engines.subscription.offsets import OffsetSet
from penstock.engines.subscription.reading import ReadFailures
from penstock.model.bits import bits_of
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle


class Log:
    """A log in memory, whose first entries may go, and whose reads may fail."""

    name = "delayed"
    read_bytes_max = 1 << 20

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.entries: list[Entry] = []
        self.first = 0  # of the entries that are left
        self.end = 0
        self.failing = False
        self.reads = 0

    def grow(self, count: int, deliver_at: int) -> Entry:
        entry = Entry(1, len(self.entries), self.end, count, 0, deliver_at, b"")
        self.entries.append(entry)
        self.end = entry.end
        return entry

    async def read_at(self, offset: int, entries_max: int) -> list[Entry]:
        self.reads += 1
        await asyncio.sleep(0)
        if self.failing:
            raise PenstockError(ErrorKind.STORAGE_FAILED, "not now")
        at = next(one.entry_id for one in self.entries if one.end > offset)
        return self.entries[max(at, self.first) :][:entries_max]

    def has_read(self, size: int) -> None:
        assert size == 0

    def gap_end(self, entry_id: int) -> int:
        return entry_id


class Budget:
    """Room that a test gives and takes."""

    def __init__(self) -> None:
        self.room = True
        self.held = 0
        self.waiting: list[Any] = []

    def reserve(self, size: int) -> bool:
        if self.room:
            self.held += size
        return self.room

    def send(self, size: int) -> None:
        self.held += size

    def call_when_room(self, callback: Any) -> None:
        self.waiting.append(callback)

    def open(self) -> None:
        self.room = True
        for callback in self.waiting:
            callback()
        self.waiting.clear()


class Story:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = Log(self.clock)
        self.cursor = OffsetSet()
        self.budget: Any = Budget()
        log: Any = self.log
        self.calls = 0
        self.failures = Failures(self.clock)
        self.delays = DelayedMessages(
            log, self.cursor, Tasks(), self._called, ReadFailures(self.failures, "t s (delayed)")
        )
        self.waiting: dict[int, int] = {}  # by offset, when it is due
        self.released: list[int] = []

    def _called(self) -> None:
        self.calls += 1

    def add(self, count: int, delay: int, acked: int) -> None:
        entry = self.log.grow(count, self.clock.now_ms() + delay)
        self.cursor.add(entry.offset, acked & (1 << count) - 1)
        mask = ((1 << count) - 1) & ~acked
        if mask:
            self.delays.add(entry, mask)
            self.waiting |= {entry.offset + bit: entry.deliver_at for bit in bits_of(mask)}

    def drop_below(self, end: int) -> None:
        self.cursor.raise_mark(end)
        self.delays.drop_below(end)
        self.waiting = {one: due for one, due in self.waiting.items() if one >= end}

    async def release(self) -> None:
        """Take what is due, as a run does: only where the index says that there is something."""
        await settle()
        for _ in range(1000):
            if not self.delays.ready:
                break
            for part in self.delays.release(self.budget):
                for bit in bits_of(part.mask):
                    offset = part.offset + bit
                    self.released.append(offset)
                    assert self.waiting.pop(offset) <= self.clock.now_ms()
            await settle()
        else:
            raise AssertionError("it says that something is due, for ever")

    def overdue(self) -> list[int]:
        return [one for one, due in self.waiting.items() if due <= self.clock.now_ms()]

    async def advance(self, ms: int) -> None:
        """Let time pass; the index rings when something is due, unless it said so before."""
        before, ready = self.calls, self.delays.ready
        await self.clock.advance(ms)
        if self.overdue():
            assert ready or self.calls > before
        await self.release()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Few entries are held, in small chunks."""
    with monkeypatch.context() as patch:
        for name, value in {
            "HELD_MAX": 8, "RELEASE_MAX": 3, "READ_ENTRIES": 4, "CHUNK": 16, "_FULL": (1 << 16) - 1
        }.items():  # fmt: skip
            patch.setattr(delayed, name, value)
        yield


STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3), st.integers(1, 60), st.integers(0, 7)),
    st.tuples(st.just("many"), st.integers(1, 3), st.integers(10, 40), st.integers(0, 1 << 20)),
    st.tuples(st.just("ordinary"), st.integers(1, 20), st.just(0), st.just(0)),
    st.tuples(st.just("pass"), st.integers(1, 40), st.just(0), st.just(0)),
    st.tuples(st.just("acknowledge"), st.integers(0, 200), st.integers(1, 5), st.just(0)),
    st.tuples(st.just("skip"), st.integers(0, 200), st.just(0), st.just(0)),
    st.tuples(st.just("trim"), st.integers(0, 100), st.just(0), st.just(0)),
    st.tuples(st.just("fail"), st.integers(1, 40), st.just(0), st.just(0)),
    st.tuples(st.just("no room"), st.integers(1, 40), st.just(0), st.just(0)),
    st.tuples(st.just("seek"), st.just(0), st.just(0), st.just(0)),
)


@pytest.mark.usefixtures("small")
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, max_size=25))
def test_each_message_is_released_once_when_it_is_due(steps: list[tuple[str, int, int, int]]) -> None:
    async def story() -> None:
        told = Story()
        for step, one, two, three in steps:
            await take_step(told, step, one, two, three)
            if step not in ("fail", "no room"):
                assert told.overdue() == []
            assert len(told.delays._held) <= delayed.HELD_MAX
        await told.advance(2_000)
        assert told.waiting == {}
        assert told.delays.messages == 0
        assert not told.delays._deferred
        assert not told.delays._parts
        assert told.budget.held == 0
        assert len(told.released) == len(set(told.released))

    asyncio.run(story())


async def take_step(told: Story, step: str, one: int, two: int, three: int) -> None:
    if step == "add":
        told.add(one, two, three)
    elif step == "many":
        times = Random(three)
        for _ in range(two):
            told.add(one, times.choice((5, 5, 5, times.randint(1, 80))), 0)
    elif step == "ordinary":
        told.log.grow(one, 0)
    elif step == "pass":
        await told.advance(one)
    elif step == "acknowledge" and one + two <= told.log.end:
        told.cursor.add(one, (1 << two) - 1)
        told.waiting = {o: due for o, due in told.waiting.items() if not one <= o < one + two}
    elif step == "skip" and one <= told.log.end:
        told.drop_below(one)
    elif step == "trim" and told.log.first < one < len(told.log.entries):
        told.log.first = one
        told.drop_below(told.log.entries[one].offset)
    elif step == "fail":
        told.log.failing = True
        await told.advance(one)
        told.log.failing = False
        await told.advance(delayed.RETRY_MS)
    elif step == "no room":
        told.budget.room = False
        await told.advance(one)
        told.budget.open()
        await told.release()
    elif step == "seek":
        told.delays.clear()
        told.waiting.clear()
    await told.release()


@pytest.mark.usefixtures("small")
async def test_entries_that_retention_deleted_are_passed_over() -> None:
    """Also where the subscription has not heard of it: only the log is shorter."""
    told = Story()
    for _ in range(100):
        told.add(1, 50, 0)
    told.log.first = 90
    told.waiting = {o: due for o, due in told.waiting.items() if o >= 90}
    before = [part >> 32 & (1 << 64) - 1 for part in told.delays._held]
    told.waiting |= dict.fromkeys(
        before, told.log.entries[0].deliver_at
    )  # a run finds out of those it was given
    await told.advance(50)
    assert told.waiting == {}
    assert told.delays.messages == 0


@pytest.mark.usefixtures("small")
async def test_a_log_that_cannot_be_read_is_reported_until_it_can() -> None:
    told = Story()
    for _ in range(100):
        told.add(1, 50, 0)
    told.log.failing = True
    await told.advance(50)
    assert [(one.subject, one.message) for one in told.failures.ongoing] == [("t s (delayed)", "not now")]
    told.log.failing = False
    await told.advance(delayed.RETRY_MS)
    assert told.failures.ongoing == []
    assert told.waiting == {}


@pytest.mark.usefixtures("small")
async def test_messages_that_are_due_at_once_come_in_the_order_of_the_log() -> None:
    told = Story()
    for _ in range(200):
        told.add(1, 50, 0)
    await told.advance(50)
    assert told.released == list(range(200))
    assert told.log.reads <= 2 * 200 // delayed.READ_ENTRIES + 50  # each part of it is read about once


async def test_memory_does_not_follow_their_number() -> None:
    told = Story()
    now = told.clock.now_ms()
    times = Random(7)
    for number in range(150_000):
        told.delays.add(Entry(1, number, number, 1, 0, now + times.randint(1, 1 << 30), b""), 1)
    delays = told.delays
    assert delays.messages == 150_000
    assert len(delays._held) <= delayed.HELD_MAX
    size = sum(map(sys.getsizeof, delays._held)) + sys.getsizeof(delays._held)
    size += sum(map(sys.getsizeof, delays._deferred.values()))
    assert size < 5_000_000
