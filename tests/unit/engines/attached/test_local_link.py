"""A link to a subscription of this process."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC, Bench, bench

from penstock.client.entries.arrived import Arrived, Place
from penstock.engines.attached import local_link
from penstock.engines.attached.acknowledgements import Unstored
from penstock.engines.attached.link import Attachment, Moved
from penstock.engines.attached.local_link import LocalLink
from penstock.engines.subscription.cursors import StoredCursor
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, MessageId
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import settle

EXCLUSIVE, SHARED = SubscriptionType.EXCLUSIVE, SubscriptionType.SHARED
FAILOVER = SubscriptionType.FAILOVER


class Attached:
    """A link, and what came of it."""

    def __init__(self, bench: Bench, type: SubscriptionType, name: str, tasks: Tasks, **options: Any) -> None:
        chosen = ConsumerOptions(type=type, start=EARLIEST, **options)
        wanted = Attachment(TOPIC, "s", name, chosen, EARLIEST)
        self.link = LocalLink(bench.broker, wanted, self, tasks)
        self.entries: list[Arrived] = []
        self.events: list[object] = []

    def arrived(self, entries: list[Arrived]) -> None:
        self.entries += entries
        self.events.append("arrived")

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

    @property
    def error(self) -> PenstockError:
        """Why it ended."""
        (found,) = [one for one in self.events if isinstance(one, PenstockError)]
        return found

    async def came(self) -> list[tuple[Place, int, int]]:
        """The place, messages and redeliveries of each entry that came since the last call."""
        await settle()
        found, self.entries = self.entries, []
        return [(one.place, one.mask, one.redeliveries) for one in found]


class Links:
    """Links to one broker."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.tasks = Tasks()

    async def open(
        self, type: SubscriptionType = SHARED, name: str = "a", permits: int = 100, **options: Any
    ) -> Attached:
        made = Attached(self.bench, type, name, self.tasks, **options)
        await made.link.start()
        if permits:
            made.link.flow(permits)
        return made


@asynccontextmanager
async def opened() -> AsyncIterator[Links]:
    async with bench() as made:
        links = Links(made)
        yield links
    await links.tasks.close()


def place(message_id: MessageId) -> Place:
    return message_id.ledger, message_id.entry


async def test_acknowledgements_that_nobody_waits_for_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next owner gets few of them again."""
    monkeypatch.setattr(local_link, "STORED_AT", 2)
    async with opened() as links:
        ids = await links.bench.publish(*[b"%d" % n for n in range(5)], batch=False)
        one = await links.open()
        assert len(await one.came()) == 5
        one.link.acknowledge([place(ids[0])])
        await settle()
        assert len(one.link._unstored) == 1
        one.link.acknowledge([place(ids[1])])
        await settle()
        (saved,) = await links.bench.store.load_cursors(0)
        assert (saved.mark, len(one.link._unstored)) == (2, 0)
        one.link.acknowledge([place(ids[2])])
        left = Unstored()
        assert one.link.give_unstored_to(left)
        assert list(left._entries) == [place(ids[2])]
        await one.link.seek(EARLIEST)
        assert not one.link._unstored  # they are of before


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_entries_come_whole_and_within_permits(type: SubscriptionType) -> None:
    async with opened() as links:
        first = await links.bench.publish(b"a", b"b", b"c")
        second = await links.bench.publish(b"d")
        one = await links.open(type, permits=2)
        assert await one.came() == [(place(first[0]), 0b111, 0)]
        assert one.link.permits == one.link.due == -1
        one.link.flow(1)
        assert await one.came() == []
        one.link.flow(1)
        assert await one.came() == [(place(second[0]), 1, 0)]
        assert one.link.permits == 0


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_one_that_closes_gives_back_what_is_not_acknowledged(type: SubscriptionType) -> None:
    async with opened() as links:
        batch = place((await links.bench.publish(b"a", b"b", b"c"))[0])
        single = place((await links.bench.publish(b"d"))[0])
        one = await links.open(type)
        await one.came()
        one.link.acknowledge_part(batch, 0b101)
        one.link.acknowledge([single])
        await one.link.flush()
        await one.link.close()
        again = await links.open(type, "b")
        assert await again.came() == [(batch, 0b101, 1)]
        assert not [event for event in one.events if isinstance(event, PenstockError)]


async def test_redeliveries_are_counted() -> None:
    async with opened() as links:
        batch = place((await links.bench.publish(b"a", b"b", b"c"))[0])
        one = await links.open()
        await one.came()
        one.link.acknowledge_part(batch, 0b011)
        for times in (1, 2):
            one.link.redeliver([batch])
            assert await one.came() == [(batch, 0b011, times)]


@pytest.mark.parametrize("type", [EXCLUSIVE, FAILOVER])
async def test_acknowledging_up_to_a_message_and_asking_for_the_rest(type: SubscriptionType) -> None:
    async with opened() as links:
        batches = [place((await links.bench.publish(b"a", b"b", b"c"))[0]) for _ in range(4)]
        one = await links.open(type)
        await one.came()
        one.link.acknowledge_up_to(batches[1], 0b100)
        one.link.redeliver_all()  # not before the acknowledgement
        assert [(at, mask) for at, mask, _ in await one.came()] == [
            (batches[1], 0b100),
            (batches[2], 0b111),
            (batches[3], 0b111),
        ]
        one.link.acknowledge_up_to(batches[2], 0b111)  # nothing of that entry
        await one.link.flush()
        one.link.acknowledge_up_to(batches[2])
        one.link.redeliver_all()
        assert [at for at, _, _ in await one.came()] == [batches[3]]


async def test_an_acknowledgement_of_what_is_not_out_is_looked_up() -> None:
    async with opened() as links:
        ids = await links.bench.publish(b"a", b"b", batch=False)
        one = await links.open(permits=0)
        one.link.acknowledge([place(ids[0])])
        await one.link.flush()
        one.link.acknowledge([(ids[0].ledger, 99)])
        with pytest.raises(PenstockError) as caught:
            await one.link.flush()
        assert caught.value.kind is ErrorKind.MESSAGE_NOT_FOUND
        await one.link.flush()  # it was said
        one.link.flow(10)
        assert [at for at, _, _ in await one.came()] == [place(ids[1])]


async def test_a_failed_acknowledgement_fails_the_flush_of_each_caller() -> None:
    async with opened() as links:
        ids = await links.bench.publish(b"a", b"b", b"c", batch=False)
        one = await links.open()
        await one.came()
        missing = (ids[0].ledger, 99)
        one.link.acknowledge([missing])
        one.link.acknowledge([place(ids[0])])
        flushes = [links.tasks.spawn(one.link.flush(), "flush") for _ in range(2)]
        for flush in flushes:
            with pytest.raises(PenstockError):
                await flush
        one.link.acknowledge([place(ids[1])])
        await one.link.flush()  # it answers for newer ones
        one.link.acknowledge([missing])
        one.link.acknowledge([place(ids[2])])
        await settle()
        for _ in range(2):  # one after the other
            with pytest.raises(PenstockError):
                await one.link.flush()
        await one.link.flush()


async def test_what_is_acknowledged_before_the_start_is_lost() -> None:
    async with opened() as links:
        first, second = [place((await links.bench.publish(text))[0]) for text in (b"a", b"b")]
        one = Attached(links.bench, SHARED, "a", links.tasks)
        one.link.acknowledge([first])
        one.link.acknowledge_up_to(second)
        one.link.redeliver([first])
        with pytest.raises(Moved):
            await one.link.flush()
        await one.link.start()
        for _ in range(2):
            with pytest.raises(PenstockError, match="another owner") as refused:
                await one.link.flush()
            assert refused.value.kind is ErrorKind.UNAVAILABLE
        await one.link.flush()
        one.link.flow(100)
        assert [at for at, _, _ in await one.came()] == [first, second]


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_a_seek_resets_before_anything_comes(type: SubscriptionType) -> None:
    async with opened() as links:
        ids = await links.bench.publish(b"a", b"b", b"c", batch=False)
        one = await links.open(type)
        await one.came()
        one.link.acknowledge([place(each) for each in ids])
        one.events.clear()
        await one.link.seek(ids[0])
        assert [at for at, _, _ in await one.came()] == [place(ids[1]), place(ids[2])]
        assert one.events[0] == "reset"
        await one.link.seek(0)
        assert len(await one.came()) == 3
        await one.link.seek(ids[2], inclusive=True)
        assert [at for at, _, _ in await one.came()] == [place(ids[2])]


async def test_a_link_ends_whose_subscription_was_closed_though_not_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as links:
        one = await links.open()

        async def fail(_: object) -> None:
            await settle()  # the consumer is closed meanwhile
            raise PenstockError(ErrorKind.UNAVAILABLE, "nobody knows")

        monkeypatch.setattr(StoredCursor, "delete_cursor", fail)
        with pytest.raises(PenstockError, match="nobody knows"):
            await one.link.unsubscribe()
        await settle()
        assert one.error.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND


async def test_one_of_several_cannot_unsubscribe() -> None:
    async with opened() as links:
        one, other = await links.open(), await links.open(name="b")
        with pytest.raises(PenstockError) as caught:
            await one.link.unsubscribe()
        assert caught.value.kind is ErrorKind.SUBSCRIPTION_SHARED
        await other.link.close()
        ids = await links.bench.publish(b"a")
        assert [at for at, _, _ in await one.came()] == [place(ids[0])]
        await one.link.unsubscribe()
        await settle()
        assert one.events == ["arrived"]  # it asked for its end
        topic = await links.bench.broker.topics.get(TOPIC)
        assert not topic.subscriptions


async def test_failover_reports_the_active_consumer() -> None:
    async with opened() as links:
        one = await links.open(FAILOVER, priority=1)
        other = await links.open(FAILOVER, "b", priority=0)
        await settle()
        assert (one.events, other.events) == ([True, False], [True])
        await other.link.close()
        assert one.events == [True, False, True]


async def test_the_end_of_a_topic_follows_its_last_message() -> None:
    async with opened() as links:
        await links.bench.publish(b"a")
        one = await links.open(permits=0)
        await links.bench.broker.topics.terminate(TOPIC)
        await settle()
        assert one.events == []
        one.link.flow(10)
        await settle()
        assert one.events == ["arrived", "end"]


async def test_permits_are_taken_back() -> None:
    async with opened() as links:
        one = await links.open(permits=50)
        one.link.restart()
        assert one.link.permits == 0
        await links.bench.publish(b"a")
        assert await one.came() == []
        one.link.flow(1)
        assert len(await one.came()) == 1


async def test_it_ends_with_the_reason_of_the_broker() -> None:
    async with opened() as links:
        one = await links.open()
        await links.bench.broker.subscriptions.delete(TOPIC, "s", force=True)
        await settle()
        assert one.error.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
        moved = await links.open()
        await links.bench.broker.administration.unload_topic(TOPIC)
        await settle()
        assert isinstance(moved.error, Moved)
        with pytest.raises(Moved):
            await moved.link.flush()
