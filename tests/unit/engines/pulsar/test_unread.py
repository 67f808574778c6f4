"""Entries that wait for the schemas they name."""

import pytest

from penstock.client.entries.arrived import Arrived
from penstock.engines.pulsar.unread import LEARN_AGAIN_MS, Unread
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle


class Schemas:
    """Those of the cluster: `known` here, `failures` before the next is fetched."""

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.asked: list[int] = []
        self.failures = 0

    def knows(self, topic: TopicName, version: int) -> bool:
        return version in self.known

    async def fetch(self, topic: TopicName, version: int) -> None:
        self.asked.append(version)
        if self.failures:
            self.failures -= 1
            raise PenstockError(ErrorKind.UNAVAILABLE, "not now")
        self.known.add(version)


class Arriving:
    """What reads entries as they can be read."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.schemas = Schemas()
        self.unread = Unread(TopicName.parse("t"), self.schemas, self.clock, Tasks(), self.arrived)
        self.read: list[int] = []

    def arrived(self, entries: list[Arrived]) -> None:
        self.read += [one.entry_id for one in self.unread.sift(entries)]


def entry(number: int, version: int | None = None, messages: int = 1) -> Arrived:
    return Arrived(
        ledger=1,
        entry_id=number,
        mask=(1 << messages) - 1,
        count=messages,
        redeliveries=0,
        publish_time=0,
        deliver_at=0,
        schema_version=version,
        index=None,
        data=b"",
    )


@pytest.fixture
def arriving() -> Arriving:
    return Arriving()


async def test_what_names_no_schema_or_a_known_one_is_read_at_once(arriving: Arriving) -> None:
    arriving.schemas.known.add(3)
    arriving.arrived([entry(0), entry(1, 3)])
    assert (arriving.read, arriving.unread.messages, arriving.schemas.asked) == ([0, 1], 0, [])


async def test_the_order_stays_while_a_schema_is_fetched(arriving: Arriving) -> None:
    arriving.arrived([entry(0), entry(1, 3, messages=2), entry(2)])
    arriving.arrived([entry(3)])
    assert (arriving.read, arriving.unread.messages) == ([0], 4)
    await settle()
    assert (arriving.read, arriving.unread.messages) == ([0, 1, 2, 3], 0)
    assert arriving.schemas.asked == [3]


async def test_several_schemas_are_fetched_one_after_the_other(arriving: Arriving) -> None:
    arriving.arrived([entry(0, 1), entry(1, 2), entry(2, 1)])
    await settle()
    assert (arriving.read, arriving.schemas.asked) == ([0, 1, 2], [1, 2])


async def test_a_schema_that_cannot_be_fetched_is_asked_for_again(arriving: Arriving) -> None:
    arriving.schemas.failures = 1
    arriving.arrived([entry(0, 1)])
    await settle()
    assert arriving.read == []
    arriving.clock.turn(LEARN_AGAIN_MS)
    await settle()
    assert (arriving.read, arriving.schemas.asked) == ([0], [1, 1])


async def test_what_is_cleared_does_not_come(arriving: Arriving) -> None:
    arriving.arrived([entry(0, 1)])
    arriving.unread.clear()
    await settle()
    assert (arriving.read, arriving.unread.messages) == ([], 0)
