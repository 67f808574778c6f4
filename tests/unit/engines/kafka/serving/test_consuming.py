"""Consumers as endpoints have them, over links within the process: their partition goes, and comes back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import TOPIC, LogTopic, Server, id_of
from tests.support.skipping_log import Host, SkippingLog
from tests.unit.engines.kafka.serving.test_owned import Admin

from penstock.broker.topic_listeners import TopicListeners
from penstock.engines.attached import moving_link
from penstock.engines.attached.consumer import Consumer
from penstock.engines.attached.consumers import AttachedConsumers
from penstock.engines.fleet.sessions import new_process_id
from penstock.engines.kafka.serving import owned as module
from penstock.engines.kafka.serving.links import OwnerLinks, Owners
from penstock.engines.kafka.serving.owned import Service
from penstock.engines.shared.new_names import NewNames
from penstock.engines.subscription.subscription import HAND_OVER_MS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.names import TopicName
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.testing.clock import ManualClock

NAME = TopicName.parse(TOPIC)
WAIT_S = 30.0


class Topics:
    """The one topic of a process."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.listeners = TopicListeners()

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[LogTopic]:
        return [await self.server.get(name)]


class Schemas:
    """Entries name none."""

    def knows(self, topic: TopicName, version: int) -> bool:
        return True

    async def fetch(self, topic: TopicName, version: int) -> None:
        raise AssertionError("no schema is fetched")


class Case:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "KafkaTopic", LogTopic)
        log = SkippingLog(ManualClock())
        log.grow(0, 6)
        server = self.server = Server(Log(), new_process_id(), log)
        owners = Owners(server.cursors, lambda topic: (TOPIC, 0), None)
        nobody: Any = None
        self.links = OwnerLinks(owners, server.consumers, server.tasks, nobody, 20.0)
        topics: Any = Topics(server)
        self.service = Service(topics, self.links, server.served, owners, Admin())
        self.attached = AttachedConsumers(
            topics,
            Schemas(),
            server.clock,
            server.tasks,
            Host().bury,
            Host.failures,
            new_name=NewNames(),
            give_reply=None,
        )

    async def subscribe(self, type: SubscriptionType, **options: Any) -> Consumer:
        chosen = ConsumerOptions(type=type, start=EARLIEST, **options)
        return await self.attached.subscribe(self.service, [NAME], "s", chosen)

    async def come(self, consumer: Consumer, count: int) -> list[int]:
        """The offsets of so many messages."""
        found: list[int] = []
        async with asyncio.timeout(WAIT_S):
            while len(found) < count:
                assert await consumer.ready()
                found += [one.entry.offset for one in consumer.take()]
        return found

    async def close(self) -> None:
        await self.links.close()
        await self.server.close()


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    made = Case(monkeypatch)
    yield made
    await made.close()


async def test_a_late_acknowledgement_counts_while_the_next_active_consumer_has_the_message(
    case: Case,
) -> None:
    server = case.server
    await server.gain()
    first = await case.subscribe(SubscriptionType.FAILOVER, name="b")
    assert await case.come(first, 6) == list(range(6))
    second = await case.subscribe(SubscriptionType.FAILOVER, name="a")
    await server.topic.clock.advance(HAND_OVER_MS)
    assert await case.come(second, 6) == list(range(6))
    assert await first.acknowledge_all([id_of(offset) for offset in range(6)]) == 6
    await first.flush()
    assert server.cursors.known(TOPIC, 0)["s"].mark == 6


async def test_a_move_voids_the_messages_of_all_consumers(case: Case) -> None:
    await case.server.gain()
    first, second = [await case.subscribe(SubscriptionType.FAILOVER, name=name) for name in "ab"]
    assert await case.come(first, 6) == list(range(6))
    await second.seek(id_of(3))
    assert await case.come(first, 2) == [4, 5]
    assert first.unacked == 2
    (source,) = second.attached
    await source.seek(EARLIEST)  # an administrator
    assert await case.come(first, 6) == list(range(6))
    await source.move(5)
    assert await case.come(first, 1) == [5]
    assert (first.unacked, second.unacked) == (1, 0)


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_a_consumer_stays_as_its_partition_goes_and_comes(case: Case, type: SubscriptionType) -> None:
    server = case.server
    await server.gain()
    consumer = await case.subscribe(type)
    assert await case.come(consumer, 6) == list(range(6))
    for offset in (0, 1):
        await consumer.acknowledge(id_of(offset))
    await consumer.flush()
    await server.release()
    assert server.cursors.known(TOPIC, 0)["s"].mark == 2
    server.topic.log.grow(0, 2)
    await server.gain()
    assert await case.come(consumer, 2) == [6, 7], "those that are with the client do not come twice"
    assert not consumer.closed
    await consumer.acknowledge_cumulative(id_of(7)) if not type.shared else await consumer.acknowledge_all(
        [id_of(offset) for offset in range(2, 8)]
    )
    async with asyncio.timeout(WAIT_S):
        while server.cursors.known(TOPIC, 0)["s"].mark < 8:
            await consumer.flush()
    await consumer.leave()
    assert server.topic.subscriptions == {}
    assert server.topic.followers == set()


async def test_what_is_acknowledged_while_nobody_owns_the_partition_is_refused(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving_link, "STORE_S", 2 * moving_link.STEP_S)
    server = case.server
    await server.gain()
    consumer = await case.subscribe(SubscriptionType.SHARED)
    await case.come(consumer, 6)
    await server.release()
    await consumer.acknowledge(id_of(0))
    with pytest.raises(PenstockError) as refused:
        await consumer.flush()
    assert (refused.value.kind, refused.value.retriable) == (ErrorKind.UNAVAILABLE, True)
    assert server.cursors.known(TOPIC, 0)["s"].mark == 0
    await consumer.leave()


async def test_the_last_consumer_unsubscribes(case: Case) -> None:
    await case.server.gain()
    one = await case.subscribe(SubscriptionType.SHARED)
    other = await case.subscribe(SubscriptionType.SHARED)
    with pytest.raises(PenstockError) as shared:
        await one.unsubscribe()
    assert shared.value.kind is ErrorKind.SUBSCRIPTION_SHARED
    await other.leave()
    await one.unsubscribe()
    assert one.closed
    assert dict(case.server.cursors.known(TOPIC, 0)) == {}
