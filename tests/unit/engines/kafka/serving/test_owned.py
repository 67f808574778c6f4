"""Subscriptions as a process sees them that serves them, and as one does that asks their owner."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import SLOT, TOPIC, Server, id_of, offsets
from tests.support.skipping_log import LEDGER, SkippingLog

from penstock.broker.acting import FOR_PROCESS
from penstock.engines.attached.link import Moved
from penstock.engines.kafka.serving.links import Owners
from penstock.engines.kafka.serving.owned import OwnedSubscription
from penstock.engines.kafka.serving.served import ServedSubscription
from penstock.engines.kafka.topic import KafkaTopic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST
from penstock.model.target import Target
from penstock.testing.clock import ManualClock, settle

PATH = f"/admin/v2/persistent/public/default/{TOPIC}"


class Admin:
    """The owner's REST: what it was asked, and what it answers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}

    async def call(self, method: str, target: Target, *, body: Any = None, **query: Any) -> Any:
        self.calls.append((method, target.path.removeprefix(PATH), body, query))
        return self.answers.get(target.path.removeprefix(PATH))


class Case:
    def __init__(self) -> None:
        log, journal = SkippingLog(ManualClock()), Log()
        log.grow(0, 10)
        self.a, self.b = Server(journal, "a", log), Server(journal, "b", log)
        self.admin = Admin()

    def seen_by(self, server: Server, name: str = "s") -> OwnedSubscription:
        owners = Owners(server.cursors, lambda topic: (TOPIC, 0), None)
        return OwnedSubscription(server.served, owners, self.admin, server.topic, name)


@pytest.fixture
async def case() -> AsyncIterator[Case]:
    made = Case()
    yield made
    await made.a.close()
    await made.b.close()


async def test_the_owner_says_where_a_subscription_stands(case: Case) -> None:
    await case.a.gain()
    consumer = await case.a.subscribe(subscription_properties={"team": "x"})
    await offsets(consumer)
    for offset in (0, 4, 5):
        await consumer.acknowledge(id_of(offset))
    seen = case.seen_by(case.a)
    await seen.refresh()
    assert (seen.cursor.mark, list(seen.cursor.ranges()), seen.cursor.beyond) == (1, [(4, 5)], 2)
    assert (seen.backlog, seen.unacked, seen.connected, seen.properties) == (7, 7, ["c"], {"team": "x"})
    assert seen.type is consumer.options.type
    assert await seen.exists()
    await seen.check_sole_consumer()
    await case.a.subscribe("other")
    with pytest.raises(PenstockError) as shared:
        await seen.check_sole_consumer()
    assert shared.value.kind is ErrorKind.SUBSCRIPTION_SHARED
    missing = case.seen_by(case.a, "missing")
    assert not await missing.exists()
    with pytest.raises(PenstockError) as none:
        await missing.refresh()
    assert none.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND
    assert case.admin.calls == []


async def test_the_owner_moves_and_deletes_a_subscription(case: Case) -> None:
    await case.a.gain()
    await case.a.topic.refresh()
    await case.a.served.create(case.a.topic, "s", 0)
    seen = case.seen_by(case.a)

    async def mark() -> int:
        await seen.refresh()
        case.b.read()
        assert case.b.cursors.known(TOPIC, 0)["s"].mark == seen.cursor.mark, "durably"
        return seen.cursor.mark

    await seen.move(6)
    assert await mark() == 6
    await seen.move(99)
    assert await mark() == 10
    await seen.seek(EARLIEST)
    assert await mark() == 0
    await seen.seek(id_of(3))
    assert await mark() == 4
    seen.skip(7)
    seen.skip(2)
    await seen.flush()
    assert await mark() == 7
    await seen.set_properties({"a": "b"})
    await seen.refresh()
    assert seen.properties == {"a": "b"}
    consumer = await case.a.subscribe()
    with pytest.raises(PenstockError) as busy:
        await seen.delete(force=False)
    assert busy.value.kind is ErrorKind.SUBSCRIPTION_BUSY
    await seen.delete()
    assert consumer.closed
    assert not await seen.exists()
    assert case.admin.calls == []


async def test_two_calls_that_skip_answer_each_for_its_own(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    await case.a.gain()
    await case.a.topic.refresh()
    await case.a.served.create(case.a.topic, "s", 0)
    seen = case.seen_by(case.a)
    found, find = asyncio.Event(), case.a.served.find

    async def slow(topic: KafkaTopic, name: str) -> ServedSubscription | None:
        await found.wait()
        return await find(topic, name)

    monkeypatch.setattr(case.a.served, "find", slow)
    seen.skip(3)
    first = case.a.tasks.spawn(seen.flush(), "flush")
    await settle()
    seen.skip(7)
    second = case.a.tasks.spawn(seen.flush(), "flush")
    await settle()
    monkeypatch.setattr(case.a.process.journal, "append", failing)
    found.set()
    for answer in (first, second):
        with pytest.raises(PenstockError, match="nobody knows"):
            await answer


async def failing(*record: object) -> int:
    raise PenstockError(ErrorKind.UNAVAILABLE, "nobody knows")


async def test_consumers_of_other_processes_come_back_after_a_move(case: Case) -> None:
    await case.a.gain()
    here = await case.a.subscribe("here")
    there = await case.a.subscribe("there", forwarded=True)
    await offsets(here)
    await case.seen_by(case.a).move(8)
    assert (here.closed, there.closed) == (False, True)
    assert await offsets(here) == {8, 9}


async def test_other_consumers_forget_after_a_seek_at_another_process_only(case: Case) -> None:
    """The owner's subscription tells them itself, before it delivers anything from the new position."""
    await case.a.gain()
    await case.a.subscribe()
    case.b.read()
    events: list[str] = []

    class Attached:
        async def seek_in(self, *_: Any, **__: Any) -> None:
            events.append("seek")

        def forget(self, source: OwnedSubscription) -> None:
            events.append("forget")

    for server, wanted in ((case.b, ["seek", "forget"]), (case.a, ["seek"])):
        seen = case.seen_by(server)
        both: Any = [Attached(), Attached()]
        seen.consumers = both
        await seen.seek(EARLIEST)
        assert events == wanted
        events.clear()


async def test_another_process_asks_the_owner(case: Case) -> None:
    await case.a.gain()
    await case.a.served.create(case.a.topic, "s", 0)
    case.b.read()
    await case.b.topic.refresh()
    seen = case.seen_by(case.b)
    await seen.move(6)
    await seen.move(99)
    seen.skip(7)
    await seen.flush()
    await seen.flush()  # nothing is left to do
    await seen.set_properties({"a": "b"})
    await seen.delete(force=False)
    reset, expire = "/subscription/s/resetcursor", "/subscription/s/expireMessages"
    at = {"partitionIndex": -1, "batchIndex": -1}
    assert case.admin.calls == [
        ("POST", reset, {"ledgerId": LEDGER, "entryId": 6, "excluded": False, **at}, {}),
        ("POST", reset, {"ledgerId": LEDGER, "entryId": 99, "excluded": False, **at}, {}),
        ("POST", expire, {"ledgerId": LEDGER, "entryId": 6, **at}, {}),
        ("PUT", "/subscription/s/properties", {"a": "b"}, {}),
        ("DELETE", "/subscription/s", None, {"force": "false"}),
    ]
    case.admin.answers["/subscriptions"] = ["s"]
    assert await seen.exists()
    case.admin.answers["/stats"] = {
        "subscriptions": {"s": {"msgBacklog": 3, "consumers": [{"consumerName": "c"}]}}
    }
    cursor = {"markDeletePosition": f"{LEDGER}:6", "individuallyDeletedMessages": ""}
    case.admin.answers["/internalStats"] = {"cursors": {"s": cursor}}
    await seen.refresh()
    assert (seen.backlog, seen.connected, seen.cursor.mark) == (3, ["c"], 7)


async def test_what_another_process_asks_for_is_not_asked_of_a_third(case: Case) -> None:
    await case.a.gain()
    await case.a.served.create(case.a.topic, "s", 0)
    case.b.read()
    asked = FOR_PROCESS.set(True)
    try:
        with pytest.raises(Moved):
            await case.seen_by(case.b).refresh()
        await case.seen_by(case.a).refresh()
    finally:
        FOR_PROCESS.reset(asked)
    assert case.admin.calls == []


async def test_a_subscription_without_an_owner_is_asked_for_again(case: Case) -> None:
    await case.a.gain()
    await case.a.served.create(case.a.topic, "s", 0)
    case.a.lease.held.discard(SLOT)
    with pytest.raises(Moved):
        await case.seen_by(case.a).refresh()
