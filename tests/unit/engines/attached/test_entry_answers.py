"""Answers by entry ids, as clients of Pulsar's protocol give them at a process that only passes them on."""

from collections.abc import Iterable
from typing import Any, cast

from penstock.client.entries.arrived import Arrived, Place
from penstock.engines.attached.entry_answers import AttachedEntryAnswers
from penstock.engines.attached.receiver import Receiver
from penstock.engines.attached.subscription import Subscription
from penstock.engines.attached.topic_consumer import Means, TopicConsumer
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock

LEDGER = 7


class Topic:
    def __init__(self, clock: ManualClock) -> None:
        self.name = TopicName.parse("orders")
        self.clock = clock
        self.subscriptions: dict[str, object] = {}


class Link:
    """What the owner is told."""

    def __init__(self) -> None:
        self.permits = self.due = 0
        self.told: list[tuple[str, Any]] = []

    def flow(self, permits: int) -> None:
        self.permits += permits
        self.due += permits

    def acknowledge(self, places: Iterable[Place]) -> None:
        self.told.append(("acknowledge", [entry for _, entry in places]))

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        self.told.append(("part", (place[1], open_bits)))

    def redeliver(self, places: Iterable[Place]) -> None:
        self.told.append(("redeliver", [entry for _, entry in places]))

    def redeliver_all(self) -> None:
        self.told.append(("all", None))


class Case:
    """A consumer that has permitted ten messages, and the entries that came."""

    def __init__(self, type: SubscriptionType = SubscriptionType.SHARED) -> None:
        clock = ManualClock()
        self.source = Subscription(cast(Any, None), cast(Any, Topic(clock)), "s")
        self.consumer = Receiver("c", "s", ConsumerOptions(type=type, flow=True), None, clock)
        unused: Any = None
        means = Means(unused, unused, clock, Tasks(), unused, Failures(clock))
        self.part = TopicConsumer(cast(Any, self.consumer), self.source, means, numbered=True, by_index=True)
        self.clock = clock
        self.link = Link()
        self.part.link = cast(Any, self.link)
        self.consumer.parts[self.source] = self.part
        self.answers = AttachedEntryAnswers(self.source, LEDGER)
        self.consumer.flow(10)

    def arrive(self, *entries: int) -> None:
        self.link.due -= len(entries)
        self.part.arrived(
            [Arrived(LEDGER, number, 1, 1, 0, 0, b"entry", number, 0, None) for number in entries]
        )


async def test_entries_are_acknowledged_and_given_back_one_by_one() -> None:
    case = Case()
    case.arrive(0, 1, 2)
    assert len(case.consumer.take()) == case.consumer.unacked == 3
    assert case.answers.acknowledge_but(0, 0, case.consumer)
    assert not case.answers.acknowledge_but(9, 0, case.consumer)  # it never came
    await case.answers.acknowledge_but_late(9, 0, case.consumer)
    await case.answers.acknowledge_but_late(8, 0b10, case.consumer)
    assert case.link.told == [("acknowledge", [0]), ("acknowledge", [9]), ("part", (8, 0b10))]
    assert case.answers.negative(1, -1, 0, by=case.consumer)
    assert not case.answers.negative(0, -1, 0, by=case.consumer)
    assert not case.answers.negative(1, -1, 0)
    assert case.consumer.unacked == 1


async def test_everything_that_is_out_is_redelivered_also_what_was_not_taken() -> None:
    for kind in (SubscriptionType.SHARED, SubscriptionType.FAILOVER):
        case = Case(kind)
        case.arrive(0, 1)
        case.consumer.take(1)
        permits = case.consumer.permits
        case.answers.redeliver_all(case.consumer)
        asked = ("redeliver", [0, 1]) if kind.shared else ("all", None)
        assert case.link.told == [asked]
        assert (case.consumer.unacked, len(case.consumer.outbox)) == (0, 0)
        assert case.consumer.permits == permits + 1  # of the one that was not taken
        case.arrive(0, 1)
        assert [one.entry.entry_id for one in case.consumer.take()] == [0, 1]
