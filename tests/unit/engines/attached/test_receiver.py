"""What waits with a consumer, and what its topics may send."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.support.budgets import StubBudget

from penstock.broker.delivery import Delivery
from penstock.engines.attached.outstanding import Outstanding
from penstock.engines.attached.receiver import FIRST_BYTES, MessageSize, Receiver, share_of, to_grant
from penstock.engines.shared.outbox import COUNT_BYTES
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.statistics import Rate
from penstock.testing.clock import ManualClock


class Source:
    def __init__(self, clock: ManualClock) -> None:
        self.rate_out = Rate(clock)

    def delivered(self, messages: int, size: int) -> None:
        self.rate_out.add(messages, size)


class Entries:
    """Where permits go."""

    def __init__(self) -> None:
        self.permits = 0

    def flow(self, permits: int) -> None:
        self.permits += permits


class Part:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.link = Entries()
        self.out = Outstanding(counts_here=False)
        self.unread = 0  # came, and is not delivered yet
        self.given: list[Delivery] = []
        self.handed: list[Delivery] = []

    @property
    def due(self) -> int:
        return self.link.permits + self.unread

    def handed_on(self, deliveries: list[Delivery]) -> None:
        self.handed += deliveries


class Stage:
    """A receiver with some topics."""

    def __init__(self, topics: int = 1, budget: StubBudget | None = None, **options: Any) -> None:
        self.clock = ManualClock()
        options.setdefault("type", SubscriptionType.SHARED)
        self.receiver = Receiver("c", "s", ConsumerOptions(**options), budget, self.clock)
        self.parts = [Part(Source(self.clock)) for _ in range(topics)]
        self.receiver.parts = {part.source: part for part in self.parts}  # type: ignore[misc]
        self.receiver.grant()

    def arrive(self, number: int, count: int = 1, size: int = 100, part: int = 0) -> None:
        to = self.parts[part]
        entry = Entry(part, number, 0, count, 0, 0, bytes(size))
        _, mask = to.out.arrived(entry, (1 << count) - 1, 0)
        to.link.permits -= count
        self.receiver.deliver([Delivery(to.source, entry, mask, 0)])  # type: ignore[arg-type]

    @property
    def outbox(self) -> list[tuple[int, int]]:
        return [(one.entry.entry_id, one.mask) for one in self.receiver.outbox]

    @property
    def permits(self) -> list[int]:
        return [part.link.permits for part in self.parts]


def test_the_window_is_shared_by_the_topics() -> None:
    assert Stage(4, window=100).permits == [25] * 4
    assert Stage(4, window=2).permits == [1] * 4


def test_what_came_and_is_not_delivered_yet_has_its_permit() -> None:
    stage = Stage(window=None, flow=True)
    stage.receiver.flow(2)
    stage.arrive(0)
    stage.parts[0].link.permits -= 1
    stage.parts[0].unread = 1
    stage.receiver.take()
    assert stage.permits == [0]


def test_large_messages_get_few_permits() -> None:
    stage = Stage(window=1000, outbox_bytes_max=1_000_000)
    assert stage.permits == [61]
    stage.arrive(1, size=100_000)
    stage.receiver.take()
    stage.receiver.settled(1)
    assert stage.permits[0] <= 60  # what was given cannot be taken back
    for number in range(2, 70):
        if stage.permits[0] <= 0:
            break
        stage.arrive(number, size=100_000)
        stage.receiver.take()
        stage.receiver.settled(1)
    assert 1 <= stage.permits[0] <= 10


def test_while_what_waits_fills_the_outbox_nothing_is_asked_for() -> None:
    stage = Stage(window=1000, outbox_bytes_max=1_000)
    assert stage.permits == [1]
    stage.arrive(1, size=2_000)
    assert stage.permits == [0]
    stage.receiver.take()
    assert stage.permits == [1]


def test_what_exceeds_the_permits_of_the_endpoint_waits_and_batches_are_split() -> None:
    stage = Stage(window=None, flow=True)
    assert stage.permits == [0]
    stage.receiver.flow(2)
    assert stage.permits == [2]
    stage.arrive(1, count=5)
    assert stage.outbox == [(1, 0b00011)]
    assert (stage.receiver.unacked, stage.receiver.permits, stage.receiver.delivered) == (2, 0, 2)
    stage.receiver.flow(2)
    assert stage.outbox == [(1, 0b00011), (1, 0b01100)]
    assert stage.permits == [0]  # what the batch overdrew is paid; more is not asked for
    stage.receiver.flow(3)
    assert stage.outbox[-1] == (1, 0b10000)
    assert stage.permits == [2]


def test_permits_must_be_positive() -> None:
    with pytest.raises(PenstockError):
        Stage(flow=True).receiver.flow(0)


def test_what_is_given_back_is_taken_first_again() -> None:
    stage = Stage(window=10)
    for number in range(3):
        stage.arrive(number)
    taken = stage.receiver.take(2)
    assert stage.receiver.unacked == 3
    stage.receiver.stop_flow()
    stage.receiver.give_back(taken)
    assert stage.receiver.unacked == 3
    assert [one.entry.entry_id for one in stage.receiver.take()] == [2, 0, 1]


def test_without_permits_what_is_given_back_waits() -> None:
    stage = Stage(flow=True)
    stage.receiver.flow(2)
    stage.arrive(1)
    stage.arrive(2)
    stage.receiver.stop_flow()
    stage.receiver.give_back(stage.receiver.take())
    assert stage.outbox == []
    assert stage.receiver.unacked == 0
    stage.receiver.flow(2)
    assert stage.outbox == [(1, 1), (2, 1)]


def test_what_is_void_frees_window_and_permits() -> None:
    stage = Stage(2, window=10, flow=True)
    stage.receiver.flow(3)
    stage.arrive(1, part=0)
    stage.arrive(2, part=1)
    stage.arrive(3, part=0)
    stage.arrive(4, part=0)
    assert (stage.receiver.unacked, stage.receiver.permits) == (3, 0)
    dropped = stage.receiver.void(stage.parts[0].source)  # type: ignore[arg-type]
    assert [one.entry.entry_id for one in dropped] == [1, 3, 4]
    assert stage.outbox == [(2, 1)]
    assert (stage.receiver.unacked, stage.receiver.permits) == (1, 2)


def test_what_waits_and_was_just_taken_counts_in_the_budget() -> None:
    budget = StubBudget()
    stage = Stage(budget=budget, window=1000)
    stage.arrive(1, size=2 * COUNT_BYTES)
    assert budget.size == 2 * COUNT_BYTES
    stage.arrive(2, size=2 * COUNT_BYTES)
    assert budget.size == 4 * COUNT_BYTES
    stage.receiver.take(1)
    assert budget.size == 4 * COUNT_BYTES
    stage.receiver.take()
    assert budget.size == 2 * COUNT_BYTES
    stage.receiver.take()
    assert budget.size == 0


def test_an_exceeded_budget_is_asked_again_once_there_is_room() -> None:
    budget = StubBudget(over=True)
    stage = Stage(budget=budget, window=1000)
    assert stage.permits == [1]
    stage.arrive(1)
    assert stage.permits == [0]
    assert budget.waiting == 1
    budget.free()
    assert stage.permits[0] > 1


def test_what_readers_take_is_done_and_counts_in_no_window() -> None:
    stage = Stage(window=2, auto_ack=True)
    for number in range(4):
        stage.arrive(number)
    assert stage.receiver.unacked == 0
    stage.receiver.take(3)
    assert [one.entry.entry_id for one in stage.parts[0].handed] == [0, 1, 2]


def test_messages_are_expected_for_a_while_after_permits() -> None:
    stage = Stage(flow=True)
    assert not stage.receiver.expects
    stage.receiver.flow(3)
    assert stage.receiver.expects
    stage.clock.turn(100)
    assert not stage.receiver.expects
    stage.arrive(1)
    assert stage.receiver.expects
    stage.arrive(2)
    stage.arrive(3)
    assert not stage.receiver.expects  # it has all it may


async def test_one_that_waits_is_woken_by_what_comes() -> None:
    stage = Stage(window=5)
    stage.arrive(1)
    assert await stage.receiver.ready()


def test_until_a_message_has_come_they_are_taken_for_large() -> None:
    size = MessageSize()
    assert size.fit(4 * 1024 * 1024) == 256
    assert size.fit(FIRST_BYTES - 1) == 1
    assert size.fit(0) == size.fit(-5) == 0


def test_the_size_rises_at_once_and_falls_slowly() -> None:
    size = MessageSize()
    size.came(100, 10_000)
    assert size.bytes == 100
    size.came(2, 20_000)
    assert size.bytes == 10_000
    size.came(100, 10_000)
    assert 9_000 < size.bytes < 10_000
    for _ in range(200):
        size.came(100, 10_000)
    assert round(size.bytes) == 100


def test_each_topic_gets_a_share_and_at_least_one() -> None:
    assert share_of(1000, 4) == 250
    assert share_of(3, 100) == 1
    assert share_of(0, 4) == share_of(-7, 4) == 0


def test_permits_are_given_by_halves_of_the_share() -> None:
    assert to_grant(1000, 600) == 0
    assert to_grant(1000, 500) == 500
    assert to_grant(1, 0) == 1
    assert to_grant(10, -5) == 15  # a batch overdrew them


@given(st.integers(0, 5000), st.integers(1, 50), st.integers(-50, 5000))
def test_open_permits_stay_within_the_share(room: int, topics: int, permitted: int) -> None:
    share = share_of(room, topics)
    more = to_grant(share, permitted)
    assert more >= 0
    if more:
        assert permitted + more == share
