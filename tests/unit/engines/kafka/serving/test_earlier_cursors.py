"""Cursors that earlier releases kept in the commits of consumer groups."""

from collections.abc import AsyncIterator, Iterable, Sequence

import pytest
from tests.support.commits import commit_of
from tests.support.cursor_journal import Log
from tests.support.kafka_serving import SLOT, TOPIC, Groups, Server
from tests.support.skipping_log import SkippingLog

from penstock.engines.kafka.cursors import DELETED
from penstock.engines.kafka.driver.admin import Described
from penstock.engines.kafka.driver.groups import Committed, Member
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.ownership import owner as module
from penstock.engines.kafka.serving.earlier_cursors import EarlierCursors
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.policy import SubscriptionType
from penstock.testing.clock import ManualClock

PLACE = (TOPIC, 0)


class Topics:
    """The one topic of the cluster."""

    async def topics(self) -> dict[str, int]:
        return {TOPIC: 3}

    async def describe(self, topic: str) -> Described:
        return Described("id", 1)

    async def begins(self, places: Iterable[At]) -> dict[At, int]:
        return dict.fromkeys(places, 2)


class Documents:
    """Properties of subscriptions, one of them not to be read."""

    def __init__(self) -> None:
        self.created = False
        self.saved: dict[str, dict[str, bytes]] = {}

    async def load_meta(self, kind: str) -> dict[str, bytes]:
        if kind != "subscription-properties":
            return self.saved.get(kind, {})
        return {f"{TOPIC}/s": b'{"team": "x"}', f"{TOPIC}/broken": b"{"}

    async def save_meta(self, documents: Sequence[tuple[str, str, bytes | None]]) -> None:
        for kind, key, document in documents:
            assert document is not None
            self.saved[kind] = {key: document}


@pytest.fixture
def documents() -> Documents:
    return Documents()


@pytest.fixture
async def servers(
    monkeypatch: pytest.MonkeyPatch, documents: Documents
) -> AsyncIterator[tuple[Server, Server]]:
    monkeypatch.setattr(module, "IN_USE_RETRY_S", 0.001)
    log, journal, groups = SkippingLog(ManualClock()), Log(), Groups()
    log.grow(0, 10)
    made = Server(journal, "a", log, groups), Server(journal, "b", log, groups)
    for one in made:
        one.owner.earlier = EarlierCursors(
            one.cursors, groups, Topics(), documents, prefix="x.", service="x.service"
        )
    yield made
    for one in made:
        await one.close()


def acknowledged(mark: int, *beyond: int) -> Committed:
    cursor = OffsetSet(mark)
    for offset in beyond:
        cursor.add(offset, 1)
    return commit_of(cursor, SubscriptionType.SHARED)


async def test_cursors_are_taken_over_once(servers: tuple[Server, Server]) -> None:
    a, b = servers
    groups = a.groups
    groups.commits = {
        "x.s": {PLACE: acknowledged(3, 5, 8)},
        "x.deleted": {PLACE: Committed(0, DELETED)},
        "x.broken": {PLACE: acknowledged(2)},
        "x.native": {PLACE: Committed(4)},
        "x.penstock:t:s": {PLACE: Committed(1)},
        "s": {PLACE: acknowledged(1)},
    }
    await a.gain()
    assert set(a.cursors.known(*PLACE)) == {"s", "broken"}
    assert a.cursors.known(TOPIC, 2)["s"].mark == 2, "a partition without a commit begins at its beginning"
    found = await a.served.find(a.topic, "s")
    assert found is not None
    assert (found.cursor.mark, list(found.cursor.ranges())) == (3, [(5, 5), (8, 8)])
    assert found.properties == {"team": "x"}
    await found.delete()
    await a.cursors.checkpoint([SLOT])
    state = a.process.journal.log.state(a.cursors.state.slots[SLOT].begin or 0)
    assert state.slots[SLOT].adopted, "a checkpoint forgets that the cursors were taken over"
    await a.release()
    calls = groups.calls
    await b.gain()
    assert groups.calls == calls, "the groups were read again"
    assert await b.served.find(b.topic, "s") is None, "a deleted subscription came back"


async def test_nothing_is_served_while_an_earlier_release_consumes(servers: tuple[Server, Server]) -> None:
    a, _ = servers
    groups = a.groups
    groups.commits = {"x.s": {PLACE: acknowledged(3)}}
    groups.joined = {"x.s": [Member("penstock-old-1", "/10.0.0.7")]}
    a.lease.held.add(SLOT)
    a.owner.gained([SLOT])
    await a.served.began.wait()
    assert a.served.refusal is not None
    assert "an earlier release at /10.0.0.7 consumes subscription x.s" in a.served.refusal.message
    assert not a.owner.owns(SLOT)
    groups.commits["x.s"] = {PLACE: acknowledged(7)}  # as it leaves
    groups.joined = {"x.s": [Member("rdkafka", "/10.0.0.8")]}
    await a.gain()
    assert a.served.refusal is None
    assert a.cursors.known(*PLACE)["s"].mark == 7
