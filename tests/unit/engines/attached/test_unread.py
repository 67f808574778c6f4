"""Entries that wait for the schemas they name."""

import pytest

from penstock.client.entries.arrived import Arrived
from penstock.engines.attached.unread import LEARN_AGAIN_MS, SKIPPED_RETRY_MS, WAIT_MS, Unread
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.runtime.failures import Failures
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
        self.tasks, self.fails = Tasks(), Failures(self.clock)
        self.unread = Unread(
            TopicName.parse("t"), self.schemas, self.clock, self.tasks, self.fails, self.arrived
        )
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


async def test_a_schema_that_cannot_be_fetched_holds_up_nothing_for_ever(
    arriving: Arriving, caplog: pytest.LogCaptureFixture
) -> None:
    arriving.schemas.failures = 10**6
    arriving.arrived([entry(0, 1), entry(1)])
    await settle()
    for _ in range(WAIT_MS // LEARN_AGAIN_MS - 1):
        await arriving.clock.advance(LEARN_AGAIN_MS)
    assert arriving.read == []
    await arriving.clock.advance(LEARN_AGAIN_MS)
    assert arriving.read == [0, 1]  # without the schema
    arriving.arrived([entry(2, 1)])
    assert arriving.read == [0, 1, 2]
    assert [one.subject for one in arriving.fails.ongoing] == [
        "persistent://public/default/t schema version 1"
    ]
    arriving.schemas.failures = 0
    await arriving.clock.advance(SKIPPED_RETRY_MS)
    assert arriving.schemas.known == {1}
    assert [record.getMessage() for record in caplog.records] == [
        "a schema cannot be fetched",
        "the schema was fetched",
    ]
    assert not arriving.fails.ongoing


async def test_what_a_consumer_cannot_fetch_is_not_listed_after_it(arriving: Arriving) -> None:
    arriving.schemas.failures = 10**6
    arriving.arrived([entry(0, 1)])
    await settle()
    assert arriving.fails.ongoing
    arriving.unread.close()
    await arriving.clock.advance(10 * WAIT_MS)
    assert not arriving.fails.ongoing
    assert len(arriving.clock._timers) == 0
