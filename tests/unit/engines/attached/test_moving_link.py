"""A link that is opened again at the next owner of its partition."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests.support.attached_broker import AttachedBroker, AttachedTopic
from tests.support.waiting import until_async
from tests.unit.engines.core.brokers import TOPIC, Bench

from penstock.client.entries.acks import AckSink
from penstock.client.entries.arrived import Arrived, Place
from penstock.engines.attached import acknowledgements, moving_link
from penstock.engines.attached.link import Attachment, LinkSink, Moved
from penstock.engines.attached.moving_link import MovingLink
from penstock.engines.attached.topic_consumer import TopicConsumer
from penstock.engines.memory import MemoryStore
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import settle

GONE = PenstockError(ErrorKind.SUBSCRIPTION_NOT_FOUND, "the subscription was deleted")


class NoWaits:
    """A back-off of no time."""

    def __init__(self, max_s: float) -> None:
        pass

    def next_s(self) -> float:
        return 0

    def reset(self) -> None:
        pass


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_link, "Backoff", NoWaits)


class FakeLink:
    """A link to one owner. `begin` is called as it starts."""

    def __init__(
        self, wanted: Attachment, sink: LinkSink, begin: Callable[["FakeLink"], Awaitable[None]]
    ) -> None:
        self.wanted = wanted
        self.sink = sink
        self.permits = 0
        self.acknowledged: list[Place] = []
        self.parts: dict[Place, int] = {}
        self.sought: list[tuple[MessageId | int, bool]] = []
        self.flushed = asyncio.Event()  # all that was acknowledged is stored
        self.gone = asyncio.Event()
        self.closed = False
        self._begin = begin

    @property
    def due(self) -> int:
        return self.permits

    async def start(self) -> None:
        await self._begin(self)

    def flow(self, permits: int) -> None:
        self.permits += permits

    def start_over(self) -> bool:
        self.permits, found, self.acknowledged = 0, bool(self.acknowledged), []
        return found

    async def seek(self, to: MessageId | int, *, inclusive: bool = False) -> None:
        self.sought.append((to, inclusive))

    def acknowledge(self, places: Iterable[Place]) -> None:
        self.acknowledged += places

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        self.parts[place] = open_bits

    async def flush(self) -> None:
        while not self.flushed.is_set():
            if self.gone.is_set():
                raise Moved(TOPIC)
            await asyncio.sleep(0)

    def give_unstored_to(self, to: AckSink) -> bool:
        if not self.flushed.is_set():
            to.acknowledge(self.acknowledged)
        return True

    async def close(self) -> None:
        self.closed = True


class Owners:
    """Owners of a partition, one after the other, and the sink of the link."""

    def __init__(self, **options: Any) -> None:
        self.tasks = Tasks()
        self.links: list[FakeLink] = []
        self.events: list[object] = []
        self.refusals: list[PenstockError] = []
        self.begin: Callable[[FakeLink], Awaitable[None]] = self._begin
        wanted = Attachment(TOPIC, "s", "a", ConsumerOptions(**options), LATEST)
        self.link = MovingLink(self._link_to, wanted, self, self.tasks)

    async def _begin(self, link: FakeLink) -> None:
        pass

    async def never(self, link: FakeLink) -> None:
        await asyncio.Event().wait()

    async def _link_to(self, wanted: Attachment, sink: LinkSink) -> FakeLink:
        if self.refusals:
            raise self.refusals.pop(0)
        self.links.append(FakeLink(wanted, sink, self.begin))
        return self.links[-1]

    def move(self) -> None:
        self.links[-1].gone.set()
        self.links[-1].sink.ended(Moved(TOPIC))

    def arrived(self, entries: list[Arrived]) -> None:
        self.events += entries

    def reset(self) -> None:
        self.events.append("reset")

    def moved(self) -> None:
        self.events.append("moved")

    def active(self, active: bool) -> None:
        self.events.append(active)

    def end_reached(self) -> None:
        self.events.append("end")

    def ended(self, error: PenstockError) -> None:
        self.events.append(error)


def entry(number: int) -> Arrived:
    return Arrived(3, number, 1, 1, 0, 0, b"", None, 0, None)


async def test_the_next_owner_is_asked_for_until_there_is_one() -> None:
    owners = Owners()
    await owners.link.start()
    owners.link.flow(10)
    owners.links[0].permits = 4
    owners.refusals = [Moved(TOPIC), PenstockError(ErrorKind.SUBSCRIPTION_BUSY, "the old one is still there")]
    owners.move()
    assert (owners.link.permits, owners.events) == (4, ["reset"])
    owners.link.flow(3)
    assert owners.link.due == 7
    await settle()
    assert (len(owners.links), owners.links[1].permits, owners.link.due) == (2, 7, 7)
    assert owners.events == ["reset"]
    await owners.link.close()
    assert owners.links[1].closed
    await owners.tasks.close()


async def test_a_partition_may_move_while_a_consumer_subscribes(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = Owners()
    owners.refusals = [Moved(TOPIC), Moved(TOPIC)]
    await owners.link.start()
    assert len(owners.links) == 1
    monkeypatch.setattr(moving_link, "START_S", -1)
    late = Owners()
    late.refusals = [Moved(TOPIC)]
    with pytest.raises(Moved):
        await late.link.start()
    await owners.tasks.close()


async def test_the_next_owner_stores_acknowledgements_before_it_delivers() -> None:
    owners = Owners()
    await owners.link.start()
    owners.link.acknowledge([(1, 1)])
    owners.links[0].flushed.set()
    await owners.link.flush()
    owners.move()
    await owners.link.flush()  # nothing is on its way
    owners.link.flow(5)
    owners.link.acknowledge([(1, 2)])
    owners.link.acknowledge_part((1, 3), 0b10)
    flushes = [owners.tasks.spawn(owners.link.flush(), "flush") for _ in range(2)]
    with pytest.raises(Moved):
        await owners.link.seek(EARLIEST)
    await settle()
    assert (owners.links[1].acknowledged, owners.links[1].parts) == ([(1, 2)], {(1, 3): 0b10})
    owners.link.acknowledge([(1, 4)])  # while the link opens
    owners.move()  # the owner may not have stored them
    await settle()
    assert sorted(owners.links[2].acknowledged) == [(1, 2), (1, 4)]
    assert [link.permits for link in owners.links] == [0, 0, 0]
    assert not any(one.done() for one in flushes)
    owners.links[2].flushed.set()
    await asyncio.gather(*flushes)
    assert owners.links[2].permits == 5
    owners.link.acknowledge([(1, 5)])
    await owners.link.flush()
    assert owners.links[2].acknowledged[2:] == [(1, 5)]
    await owners.tasks.close()


async def test_acknowledgements_under_way_are_refused_if_no_owner_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = Owners()
    await owners.link.start()
    owners.link.acknowledge([(1, 1)])
    under_way = owners.tasks.spawn(owners.link.flush(), "flush")
    await settle()
    owners.begin = owners.never
    owners.move()
    await settle()
    assert not under_way.done()
    monkeypatch.setattr(moving_link, "STORE_S", 0)
    owners.link.acknowledge([(1, 2)])
    with pytest.raises(Moved) as caught:
        await owners.link.flush()
    assert caught.value.retriable
    await owners.link.close()
    with pytest.raises(Moved):
        await under_way
    await owners.tasks.close()


async def test_no_acknowledgement_of_before_a_move_of_the_subscription_is_given_to_the_next_owner() -> None:
    owners = Owners()
    await owners.link.start()
    owners.move()
    owners.link.acknowledge([(1, 1)])
    owners.link.moved()
    await settle()
    assert owners.links[1].acknowledged == []
    await owners.tasks.close()


@pytest.mark.parametrize("linked", [True, False])
async def test_what_was_acknowledged_before_the_log_was_truncated_does_not_count(linked: bool) -> None:
    owners = Owners()
    await owners.link.start()
    owners.link.flow(5)
    if not linked:
        owners.move()
    owners.link.acknowledge([(1, 1)])
    assert owners.link.start_over()
    assert owners.link.permits == 0
    if linked:
        owners.move()
    await settle()
    assert owners.links[1].acknowledged == []
    owners.links[1].flushed.set()
    with pytest.raises(Moved):
        await owners.link.flush()
    assert not owners.link.start_over()
    await owners.tasks.close()


@pytest.mark.parametrize("end", [GONE, None])
async def test_nobody_waits_for_an_owner_after_the_end(end: PenstockError | None) -> None:
    owners = Owners()
    await owners.link.start()
    owners.begin = owners.never
    owners.move()
    owners.link.acknowledge([(1, 1)])
    waiting = owners.tasks.spawn(owners.link.flush(), "flush")
    await settle()
    if end is None:
        await owners.link.close()
    else:
        owners.links[-1].sink.ended(end)
    with pytest.raises(Moved if end is None else PenstockError):
        await waiting
    await owners.tasks.close()


async def test_one_flush_does_not_answer_for_another() -> None:
    owners = Owners()
    await owners.link.start()
    owners.link.acknowledge([(1, 1)])
    flushes = [owners.tasks.spawn(owners.link.flush(), "flush") for _ in range(2)]
    await settle()
    assert not any(one.done() for one in flushes)
    owners.links[0].flushed.set()
    await asyncio.gather(*flushes)
    await owners.tasks.close()


async def test_no_flush_confirms_acknowledgements_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are too many for the next link."""
    monkeypatch.setattr(acknowledgements, "UNSTORED_MAX", 1)
    owners = Owners()
    await owners.link.start()
    owners.link.acknowledge([(3, 1)])
    owners.link.acknowledge([(3, 2)])
    under_way = owners.tasks.spawn(owners.link.flush(), "flush")
    await settle()
    owners.link.acknowledge([(3, 3)])
    owners.move()
    await settle()
    for link in owners.links:
        link.flushed.set()
    with pytest.raises(Moved):
        await under_way
    for _ in range(2):  # of two callers
        with pytest.raises(Moved):
            await owners.link.flush()
    owners.link.acknowledge([(3, 4)])
    await owners.link.flush()
    await owners.link.flush()
    assert [link.acknowledged for link in owners.links] == [[(3, 1), (3, 2), (3, 3)], [(3, 4)]]

    owners.move()
    owners.link.acknowledge([(3, 5)])
    owners.link.acknowledge([(3, 6)])
    await settle()
    owners.links[-1].flushed.set()
    await settle()
    owners.link.acknowledge([(3, 7)])
    with pytest.raises(Moved):  # it answers for all of them
        await owners.link.flush()
    owners.link.acknowledge([(3, 5), (3, 6)])
    await owners.link.flush()
    await owners.tasks.close()


async def test_a_link_whose_seek_fails_is_closed() -> None:
    owners = Owners(durable=False)
    await owners.link.start()
    await owners.link.seek(MessageId(3, 5))

    async def refuse(link: FakeLink) -> None:
        async def seek(to: MessageId | int, *, inclusive: bool = False) -> None:
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")

        owners.begin = owners._begin
        link.seek = seek  # type: ignore[method-assign]

    owners.begin = refuse
    owners.move()
    await settle()
    assert [link.closed for link in owners.links] == [False, True, False]
    assert owners.links[2].sought == [(MessageId(3, 5), False)]
    await owners.tasks.close()


async def test_what_cannot_be_attached_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(store=MemoryStore())
    await bench.broker.start()
    attached = AttachedBroker(bench.broker)
    await bench.publish(b"a", batch=False)
    closed: list[TopicConsumer] = []

    async def close(part: TopicConsumer) -> None:
        closed.append(part)

    monkeypatch.setattr(TopicConsumer, "close", close)
    monkeypatch.setattr(moving_link, "START_S", -1)
    attached.owner.broker, core = None, attached.owner.broker
    (topic,) = await core.topics.all_of(TOPIC)
    consumer = attached.consumer([TOPIC], "s", ConsumerOptions())
    with pytest.raises(PenstockError) as caught:
        await consumer._attach(AttachedTopic(topic), LATEST)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    assert [part.source.consumers for part in closed] == [[]]
    await attached.close()


async def test_one_that_is_not_durable_goes_on_after_the_last_entry() -> None:
    owners = Owners(durable=False, start_inclusive=True)
    await owners.link.start()
    owners.links[0].sink.arrived([entry(4), entry(5)])
    owners.move()
    await settle()
    wanted = owners.links[1].wanted
    assert (wanted.start, wanted.options.start_inclusive) == (MessageId(3, 5), False)
    assert owners.events == [entry(4), entry(5)]
    await owners.link.seek(1000)
    owners.move()
    await settle()
    owners.links[2].sink.arrived([entry(2)])
    owners.move()
    await settle()
    assert [link.sought for link in owners.links[1:]] == [[(1000, False)], [(1000, False)], []]
    assert owners.links[3].wanted.start == MessageId(3, 2)
    await owners.tasks.close()


async def test_an_owner_that_is_lost_at_once_is_replaced() -> None:
    owners = Owners()
    await owners.link.start()

    async def lost(link: FakeLink) -> None:
        owners.begin = owners._begin
        link.sink.ended(Moved(TOPIC))

    owners.link.flow(5)
    owners.begin = lost
    owners.move()
    await settle()
    assert [link.permits for link in owners.links] == [5, 0, 5]
    await owners.tasks.close()


async def test_other_ends_are_passed_on() -> None:
    owners = Owners()
    await owners.link.start()
    owners.links[0].sink.ended(GONE)
    await settle()
    assert (owners.events, len(owners.links)) == ([GONE], 1)
    owners.refusals = [GONE]
    owners.move()
    await settle()
    assert (owners.events, len(owners.links)) == ([GONE, "reset", GONE], 1)
    await owners.tasks.close()


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_a_consumer_sees_a_move_as_a_pause(type: SubscriptionType) -> None:
    store = MemoryStore()
    first, second = Bench(store=store), Bench(store=store)
    await first.broker.start()
    attached = AttachedBroker(first.broker)
    options = ConsumerOptions(type=type, start=EARLIEST, window=10)
    consumer = await attached.subscribe([TOPIC], "s", options)
    ids = await first.publish(b"a", b"b", b"c", batch=False)
    await settle()
    given = [delivery.entry.data for delivery in consumer.take(2)]
    await consumer.acknowledge(ids[0])
    await consumer.flush()

    attached.owner.broker = None
    await first.broker.close()
    await settle()
    assert attached.owner.asked > 1
    assert not consumer.closed
    await second.broker.start()
    attached.core = attached.owner.broker = second.broker
    more = await second.publish(b"d", batch=False)
    await until_async(lambda: len(consumer.outbox) == 2)
    given += [delivery.entry.data for delivery in consumer.take()]  # "c" came again: it was not taken
    assert len(set(given)) == 4
    assert consumer.unacked == 3
    assert await consumer.acknowledge_all([*ids[1:], *more]) == 3
    await consumer.flush()
    (source,) = await second.broker.subscriptions.of(TOPIC, "s")
    assert (source.backlog, source.unacked, consumer.unacked) == (0, 0, 0)
    await attached.close()


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_acknowledgements_are_answered_by_the_next_owner(type: SubscriptionType) -> None:
    """The owner stops before it has stored them, or with no answer."""
    store = MemoryStore()
    first, second = Bench(store=store), Bench(store=store)
    await first.broker.start()
    attached = AttachedBroker(first.broker)
    options = ConsumerOptions(type=type, start=EARLIEST, window=10)
    consumer = await attached.subscribe([TOPIC], "s", options)
    ids = await first.publish(b"a", b"b", b"c", batch=False)
    await settle()
    consumer.take()
    assert await consumer.acknowledge_all(ids[:1]) == 1
    flushes = [attached.owner.tasks.spawn(consumer.flush(), "flush")]
    attached.owner.broker = None
    await first.broker.close()
    await settle()
    assert await consumer.acknowledge_all(ids[1:2]) == 1
    flushes.append(attached.owner.tasks.spawn(consumer.flush(), "flush"))
    await settle()
    assert not flushes[1].done()
    await second.broker.start()
    attached.core = attached.owner.broker = second.broker
    await asyncio.gather(*flushes)
    (source,) = await second.broker.subscriptions.of(TOPIC, "s")
    await until_async(lambda: source.unacked == 1)
    assert (source.backlog, consumer.unacked, len(consumer.outbox)) == (
        1,
        1,
        0,
    )  # the client still has the last one
    await consumer.acknowledge(ids[2])
    await consumer.flush()
    assert source.backlog == 0
    await attached.close()


async def test_what_is_acknowledged_as_it_waits_again_is_not_given_to_the_client() -> None:
    made = Bench()
    await made.broker.start()
    attached = AttachedBroker(made.broker)
    options = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST, window=10, nack_delay_ms=0)
    consumer = await attached.subscribe([TOPIC], "s", options)
    ids = await made.publish(b"a", b"b", batch=False)
    await settle()
    assert len(consumer.take()) == 2
    for one in ids:
        assert consumer.negative(one)
    await until_async(lambda: len(consumer.outbox) == 2)
    assert await consumer.acknowledge_all(ids[:1]) == 1
    await consumer.flush()
    assert [delivery.entry.data[-1:] for delivery in consumer.take()] == [b"b"]
    assert consumer.unacked == 1
    await attached.close()


async def test_a_consumer_that_starts_over_has_nothing_out_and_gets_what_follows() -> None:
    made = Bench()
    await made.broker.start()
    attached = AttachedBroker(made.broker)
    options = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST, window=10)
    consumer = await attached.subscribe([TOPIC], "s", options)
    await made.publish(b"a", b"b", batch=False)
    await until_async(lambda: len(consumer.outbox) == 2)
    consumer.take(1)
    (part,) = consumer.parts.values()
    consumer.start_over(part.source)
    assert (consumer.unacked, len(consumer.outbox), len(part.out), part.due) == (0, 0, 0, 10)
    await made.publish(b"c", batch=False)
    await until_async(lambda: bool(consumer.outbox))
    assert [delivery.entry.data[-1:] for delivery in consumer.take()] == [b"c"]
    await attached.close()


async def test_what_was_acknowledged_on_its_way_is_not_given_to_the_client() -> None:
    made = Bench()
    await made.broker.start()
    attached = AttachedBroker(made.broker)
    options = ConsumerOptions(type=SubscriptionType.SHARED, start=EARLIEST, window=10)
    consumer = await attached.subscribe([TOPIC], "s", options)
    ids = await made.publish(b"a", b"b", batch=False)  # on their way until this test waits
    acknowledging = [consumer.acknowledge_all(ids[:1]), consumer.acknowledge_all(ids[:1])]
    assert [await one for one in acknowledging] == [1, 1]
    await consumer.flush()
    await until_async(lambda: bool(consumer.outbox))
    assert [delivery.entry.data[-1:] for delivery in consumer.take()] == [b"b"]
    (part,) = consumer.parts.values()
    assert not part._foreign._meeting
    await attached.close()
