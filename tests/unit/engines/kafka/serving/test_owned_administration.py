"""Subscriptions of a topic as administrators create, list, move and delete them, at the owner and at another process."""

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import TOPIC, LogTopic, Server, id_of, offsets
from tests.support.skipping_log import SkippingLog
from tests.unit.engines.kafka.serving.test_owned import Admin

from penstock.engines.core.broker.topic_subscriptions import TopicSubscriptions
from penstock.engines.kafka.serving import owned as module
from penstock.engines.kafka.serving.links import Owners
from penstock.engines.kafka.serving.owned import Service
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock

NAME = TopicName.parse(TOPIC)


class Topics:
    """The one topic of a process."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def all_of(self, name: TopicName, *, create: bool | None = None) -> Sequence[LogTopic]:
        return [await self.server.get(name)]


class Case:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "KafkaTopic", LogTopic)
        log, journal = SkippingLog(ManualClock()), Log()
        log.grow(0, 10)
        self.a, self.b = Server(journal, "a", log), Server(journal, "b", log)
        self.admin = Admin()
        self.owned: dict[Server, Service] = {}
        self.at_a, self.at_b = self.made(self.a), self.made(self.b)

    def made(self, server: Server) -> TopicSubscriptions[Any]:
        links: Any = SimpleNamespace(link_to=None)  # no consumer is attached
        topics: Any = Topics(server)
        owners = Owners(server.cursors, lambda topic: (TOPIC, 0), None)
        self.owned[server] = Service(topics, links, server.served, owners, self.admin)
        return TopicSubscriptions(topics, self.owned[server])


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    made = Case(monkeypatch)
    yield made
    await made.a.close()
    await made.b.close()


async def test_a_subscription_is_created_once_and_seen_by_every_process(case: Case) -> None:
    await case.a.gain()
    await case.at_a.create(NAME, "s", id_of(3), properties={"team": "x"})
    await case.at_a.create(NAME, "latest", LATEST)
    with pytest.raises(PenstockError) as exists:
        await case.at_a.create(NAME, "s", EARLIEST)
    assert exists.value.kind is ErrorKind.ALREADY_EXISTS
    case.b.read()
    for server in (case.a, case.b):
        await case.owned[server].learn(NAME)
        shown = server.topic.subscriptions
        assert {name: (one.cursor.mark, one.backlog) for name, one in shown.items()} == {
            "s": (4, 6),
            "latest": (10, 0),
        }
        assert shown["s"].properties == {"team": "x"}
    await case.at_a.delete(NAME, "latest")
    case.b.read()
    for server in (case.a, case.b):
        await case.owned[server].learn(NAME)
        assert set(server.topic.subscriptions) == {"s"}
    with pytest.raises(PenstockError) as missing:
        await case.at_a.of(NAME, "latest")
    assert missing.value.kind is ErrorKind.SUBSCRIPTION_NOT_FOUND


async def test_a_mark_is_set_where_nobody_shares_the_subscription(case: Case) -> None:
    await case.a.gain()
    one = await case.at_a.set_mark(case.a.topic, "s", 4)
    await one.flush()
    assert case.a.cursors.known(TOPIC, 0)["s"].mark == 4
    for offset, exact, mark in ((7, False, 7), (2, False, 7), (2, True, 2)):
        one = await case.at_a.set_mark(case.a.topic, "s", offset, exact=exact)
        assert one.cursor.mark == mark
        assert case.a.cursors.known(TOPIC, 0)["s"].mark == mark, "another call's flush does not answer for it"
    with pytest.raises(PenstockError, match="ends at 10"):
        await case.at_a.set_mark(case.a.topic, "s", 11)
    await case.a.subscribe()
    with pytest.raises(PenstockError, match="shared by consumers"):
        await case.at_a.set_mark(case.a.topic, "s", 5)


async def test_a_subscription_with_consumers_is_deleted_by_force(case: Case) -> None:
    await case.a.gain()
    consumer = await case.a.subscribe()
    await offsets(consumer)
    with pytest.raises(PenstockError) as busy:
        await case.at_a.delete(NAME, "s")
    assert (busy.value.kind, consumer.closed) == (ErrorKind.SUBSCRIPTION_BUSY, False)
    await case.at_a.delete(NAME, "s", force=True)
    assert consumer.closed
    assert dict(case.a.cursors.known(TOPIC, 0)) == {}


async def test_another_process_has_the_owner_create_it(case: Case) -> None:
    await case.a.gain()
    case.b.read()
    await case.at_b.create(NAME, "s", id_of(3), inclusive=True, properties={"a": "b"})
    (call,) = case.admin.calls
    body = {
        "ledgerId": case.b.topic.ledger,
        "entryId": 3,
        "partitionIndex": -1,
        "batchIndex": -1,
        "excluded": False,
        "properties": {"a": "b"},
    }
    assert call == ("PUT", "/subscription/s", body, {})
