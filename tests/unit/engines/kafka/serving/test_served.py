"""Subscriptions that follow their slot from process to process."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import FLUSH_MS, READ_ALL, SLOT, TOPIC, WAIT_S, Server, id_of, offsets
from tests.support.skipping_log import SkippingLog

from penstock.engines.attached.link import Moved
from penstock.engines.kafka.serving.served import ServedConsumer
from penstock.engines.kafka.serving.state import CursorKey
from penstock.engines.subscription.subscription import HAND_OVER_MS
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import LATEST
from penstock.model.policy import SubscriptionType
from penstock.testing.clock import ManualClock, settle

KEY = CursorKey(TOPIC, 0, "s")


@pytest.fixture
async def servers() -> AsyncIterator[tuple[Server, Server]]:
    log, journal = SkippingLog(ManualClock()), Log()
    log.grow(0, 10)
    made = Server(journal, "a", log), Server(journal, "b", log)
    yield made
    for one in made:
        await one.close()


async def test_a_subscription_moves_with_its_slot(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    consumer = await a.subscribe(subscription_properties={"team": "x"})
    assert await offsets(consumer) == set(range(10))
    for offset in (0, 1, 5):
        await consumer.acknowledge(id_of(offset))
    with pytest.raises(Moved):
        await b.subscribe()
    await a.release()  # saves what nobody waited for
    assert consumer.closed
    assert (a.topic.served, a.topic.followers) == ({}, set())
    await b.gain()
    moved = await b.subscribe()
    assert await offsets(moved) == {2, 3, 4, 6, 7, 8, 9}
    (served,) = b.topic.served.values()
    assert served.properties == {"team": "x"}
    assert set(a.cursors.known(TOPIC, 0)) == {"s"}


async def test_nothing_counts_after_the_slot_was_lost(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    consumer = await a.subscribe()
    (served,) = a.topic.served.values()
    assert await offsets(consumer) == set(range(10))
    await consumer.acknowledge(id_of(3))
    await b.gain()  # `a` has not heard of it
    with pytest.raises(PenstockError) as refused:
        await consumer.flush()
    assert refused.value.kind is ErrorKind.UNAVAILABLE
    assert consumer.closed
    for refuse in (consumer.flush, served.flush, lambda: served.set_properties({"a": "b"})):
        with pytest.raises(Moved):
            await refuse()
    with pytest.raises(Moved):
        await served.answers.acknowledge_late(id_of(3))
    moved = await b.subscribe()
    assert await offsets(moved) == set(range(10)), "the refused acknowledgement did not count"
    writes = len(a.process.journal.log.records)
    await a.clock.advance(1000)
    await settle()
    assert len(a.process.journal.log.records) == writes, "what was refused is not tried again"


async def test_the_next_active_consumer_waits_until_the_one_before_has_answered(
    servers: tuple[Server, Server],
) -> None:
    a, _ = servers
    await a.gain()
    before = await a.subscribe("b", type=SubscriptionType.FAILOVER)
    assert await offsets(before) == set(range(10))
    active = await a.subscribe("a", type=SubscriptionType.FAILOVER)
    (served,) = a.topic.served.values()
    assert served.active is active
    await before.acknowledge_all([id_of(offset) for offset in range(9)])
    assert await offsets(active) == set()
    a.topic.log.grow(0, 1)
    await a.get(a.topic.name)
    served.wake()
    assert await offsets(active) == set()
    await before.acknowledge(id_of(9))
    assert await offsets(active) == {10}

    third = await a.subscribe("0", type=SubscriptionType.FAILOVER)
    await a.topic.clock.advance(HAND_OVER_MS)
    assert await offsets(third) == {10}  # unanswered
    await active.acknowledge(id_of(10))  # late, and it counts
    await active.flush()
    assert (served.cursor.mark, served.unacked) == (11, 0)


async def test_an_active_consumer_that_leaves_is_not_waited_for(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    before = await a.subscribe("b", type=SubscriptionType.FAILOVER)
    assert await offsets(before) == set(range(10))
    active = await a.subscribe("a", type=SubscriptionType.FAILOVER)
    await before.acknowledge(id_of(0))
    await before.leave()
    assert await offsets(active) == set(range(1, 10))


async def test_in_doubt_nothing_is_delivered(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    assert await offsets(consumer) == set(range(10))
    a.lease.sure = False
    a.topic.log.grow(0, 2)
    await a.topic.refresh()
    for follower in a.topic.followers:
        follower()
    assert await offsets(consumer) == set()
    await a.owner.confirm()
    a.lease.sure = True
    a.owner.confirmed()
    assert await offsets(consumer) == {10, 11}


async def test_a_cursor_that_was_read_before_a_move_is_not_used(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = servers
    await a.gain()
    await a.served.create(a.topic, "s", 0)
    await a.release()
    await a.gain()
    refresh = a.topic.refresh

    async def slow() -> None:
        await refresh()
        if a.topic.refreshes == 1:
            await a.release()
            await b.gain()
            found, _ = await b.served.create(b.topic, "s", 0)
            await found.move(7)
            await b.release()
            await a.gain()

    a.topic.refreshes = 0
    monkeypatch.setattr(a.topic, "refresh", slow)
    with pytest.raises(Moved):
        await a.served.find(a.topic, "s")
    found = await a.served.find(a.topic, "s")
    assert found is not None
    assert found.cursor.mark == 7


async def test_a_subscription_begins_once(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    first = await a.subscribe("first", start=LATEST)
    second = await a.subscribe("second")
    assert await offsets(first) | await offsets(second) == set()
    assert len(a.topic.served) == 1
    a.topic.policy(max_subscriptions=1)
    with pytest.raises(PenstockError) as full:
        await a.subscribe(subscription="other")
    assert full.value.kind is ErrorKind.TOO_MANY_SUBSCRIPTIONS
    a.topic.policy(max_subscriptions=0, auto_subscriptions=False)
    with pytest.raises(PenstockError) as missing:
        await a.subscribe(subscription="other")
    assert missing.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND


async def test_properties_that_fit_into_no_record_are_refused(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    large = {"a": "\0" * 100_000}  # six bytes each in JSON
    with pytest.raises(PenstockError) as refused:
        await a.subscribe(subscription_properties=large)
    assert refused.value.kind is ErrorKind.TOO_LARGE
    await a.subscribe()
    (served,) = a.topic.served.values()
    with pytest.raises(PenstockError) as refused:
        await served.set_properties(large)
    assert refused.value.kind is ErrorKind.TOO_LARGE
    await served.set_properties({"a": "b"})


async def test_a_deleted_subscription_is_gone_everywhere(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    consumer = await a.subscribe()
    await consumer.unsubscribe()
    assert consumer.close_reason is not None
    assert consumer.close_reason.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
    assert a.topic.served == {}
    b.read()
    assert dict(b.cursors.known(TOPIC, 0)) == {}


async def test_consumers_that_come_while_it_is_deleted_begin_a_new_one(
    servers: tuple[Server, Server],
) -> None:
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    await offsets(consumer)
    await consumer.acknowledge_all([id_of(offset) for offset in range(10)])
    await consumer.flush()
    (served,) = a.topic.served.values()
    again: list[ServedConsumer] = []

    async def come_back() -> None:
        while await consumer.ready():
            pass
        again.append(await a.subscribe())

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(come_back())
        await settle()
        await served.delete()
    assert await offsets(again[0]) == set(range(10))
    assert a.cursors.known(TOPIC, 0)["s"].mark == 0


async def test_a_slot_that_comes_back_while_it_is_released_is_served(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group waits only so long for a release: the cluster may answer later."""
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    await offsets(consumer)
    await consumer.acknowledge(id_of(0))
    append, answers = a.process.journal.append, asyncio.Event()

    async def slow(*record: Any) -> int:
        await answers.wait()
        return await append(*record)

    monkeypatch.setattr(a.process.journal, "append", slow)
    monkeypatch.setattr("penstock.engines.kafka.serving.owner.RETRY_S", 0)
    releasing = a.tasks.spawn(a.owner.releasing([SLOT]), "release")
    await settle()
    a.owner.gained([SLOT])
    await settle()
    with pytest.raises(Moved):  # its cursor is that of before the release
        await a.subscribe()
    answers.set()
    await releasing
    async with asyncio.timeout(WAIT_S):
        while not a.owner.owns(SLOT):
            await asyncio.sleep(0)
    assert await offsets(await a.subscribe()) == set(range(1, 10))


async def test_a_second_deletion_leaves_the_next_subscription_alone(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one that waited while the slot was elsewhere."""
    a, _ = servers
    await a.gain()
    await a.subscribe()
    (served,) = a.topic.served.values()
    append = a.process.journal.append
    begun: list[asyncio.Task[object]] = []

    async def slow(*record: Any) -> int:
        if not begun:  # they wait until the first deletion is done
            begun.append(a.tasks.spawn(a.subscribe(), "subscribe"))
            await settle()
            begun.append(a.tasks.spawn(served.delete(), "delete"))
            await settle()
        return await append(*record)

    monkeypatch.setattr(a.process.journal, "append", slow)
    await served.delete()
    came, second = await asyncio.gather(*begun, return_exceptions=True)
    assert isinstance(came, ServedConsumer)
    assert isinstance(second, Moved)
    assert "s" in a.cursors.known(TOPIC, 0)
    assert not came.closed
    (before,) = a.topic.served.values()
    await a.release()
    await a.gain()
    again = await a.subscribe()
    with pytest.raises(Moved):
        await before.delete()
    assert "s" in a.cursors.known(TOPIC, 0)
    assert not again.closed


async def test_no_subscription_is_opened_on_a_topic_that_is_deleted_meanwhile(
    servers: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = servers
    await a.gain()
    append = a.process.journal.append

    async def slow(*record: Any) -> int:
        offset = await append(*record)
        a.topic.deleted = True
        a.served.forget(a.topic)
        return offset

    monkeypatch.setattr(a.process.journal, "append", slow)
    with pytest.raises(PenstockError) as refused:
        await a.subscribe()
    assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND
    assert a.topic.served == {}


async def test_readers_need_no_owner(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    await a.subscribe()
    b.read()
    reader = await b.subscribe("r", "reader", durable=False)
    assert await offsets(reader) == set(range(10))
    with pytest.raises(PenstockError) as busy:
        await b.subscribe("r", "s", durable=False)
    assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
    await reader.leave()
    assert b.topic.served == {}
    assert set(a.cursors.load(SLOT)) == {KEY}


async def test_a_deleted_topic_takes_its_subscriptions_along(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    await a.served.create(a.topic, "not-open", 0)
    a.topic.deleted = True
    a.served.forget(a.topic)
    assert consumer.close_reason is not None
    assert consumer.close_reason.kind is ErrorKind.TOPIC_NOT_FOUND
    await a.served.delete_cursors(TOPIC, but="id")
    await a.served.delete_cursors("other", but="")
    assert len(a.cursors.load(SLOT)) == 2
    await a.served.delete_cursors(TOPIC, but="new")
    assert dict(a.cursors.load(SLOT)) == {}


async def test_a_process_that_may_own_nothing_says_why(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    a.owner.refused(PenstockError(ErrorKind.FORBIDDEN, "no group"))
    with pytest.raises(PenstockError, match="no group"):
        await a.subscribe()


async def test_a_process_that_lost_its_slots_as_the_cluster_refuses_it_says_why(
    servers: tuple[Server, Server],
) -> None:
    a, _ = servers
    await a.gain()
    await a.subscribe()
    a.refusal = PenstockError(ErrorKind.UNAVAILABLE, "the credentials are refused")
    await a.subscribe()  # while it has them, it serves
    a.owner.lost([SLOT])
    with pytest.raises(PenstockError, match="the credentials are refused") as refused:
        await a.subscribe()
    assert not isinstance(refused.value, Moved)
    a.refusal = None
    with pytest.raises(Moved):
        await a.subscribe()


@pytest.mark.parametrize("saving", [False, True])
async def test_an_unload_is_a_pause(servers: tuple[Server, Server], saving: bool) -> None:
    a, _ = servers
    await a.gain()
    consumer = await a.subscribe()
    await offsets(consumer)
    await consumer.acknowledge(id_of(0))
    (before,) = a.topic.served.values()
    saved, refused = a.process.journal, []
    saved.auto = False
    if saving:
        await a.clock.advance(FLUSH_MS)
    unload = a.tasks.spawn(a.served.unload(a.topic), "unload")
    await settle()
    assert consumer.closed
    with pytest.raises(Moved) as again:  # not before the cursor is saved
        await a.subscribe("again")
    refused.append(again.value.retriable)
    saved.auto = True
    saved.store()
    saved.read_on(READ_ALL)
    await unload
    assert refused == [True]
    moved = await a.subscribe("again")
    assert await offsets(moved) == set(range(1, 10))
    (after,) = a.topic.served.values()
    assert after is not before
    await a.release()


async def test_the_owner_opens_all_subscriptions_of_a_topic(servers: tuple[Server, Server]) -> None:
    a, b = servers
    await a.gain()
    for name in ("s", "r"):
        await a.served.create(a.topic, name, 3)
    await a.release()
    await b.gain()
    await b.topic.refresh()
    for one in (a, b):
        await one.served.open_all(one.topic)
    assert a.topic.served == {}
    assert {name: one.backlog for name, one in b.topic.served.items()} == {"s": 7, "r": 7}
