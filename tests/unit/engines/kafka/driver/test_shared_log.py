"""The journal over clients that the test plays: order, ends without records, gaps, errors, writes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException

from penstock.engines.kafka.driver import shared_log as module
from penstock.engines.kafka.driver.errors import ClientErrors
from penstock.engines.kafka.driver.record import At
from penstock.engines.kafka.driver.shared_log import Journal, JournalRecord
from penstock.model.errors import ErrorKind, PenstockError

WAIT_S = 30.0
EOF = KafkaError._PARTITION_EOF


class Event:
    def __init__(self, offset: int, code: int | None = None) -> None:
        self._offset, self._code = offset, code

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v%d" % self._offset

    def headers(self) -> None:
        """It has none."""


class Cluster:
    """The clients and the administrator of a process. `given` comes one after the other; a list comes in one go."""

    generation = 0
    timeout_s = WAIT_S

    def __init__(self) -> None:
        self.clients = self
        self.errors = ClientErrors()
        self.given: deque[Any] = deque()
        self.rest: list[Any] = []
        self.begun: list[int] = []
        self.range = (0, 0)
        self.deleted: dict[At, int] = {}
        self.written = Producer(self)
        self.producers = 0  # that were made

    # -- clients

    def consumer(self, kind: str, own: object) -> "Cluster":
        return self

    def producer(self, kind: str, own: dict[str, Any]) -> "Producer":
        assert (own["acks"], own["linger.ms"]) == ("all", 0)
        self.producers += 1
        return self.written

    def poll_in_background(self, client: Any) -> Any:
        return client

    async def wait_unless_refused(self, waiting: Awaitable[Any]) -> Any:
        return await waiting

    # -- a consumer

    def assign(self, places: list[Any]) -> None:
        self.begun.append(places[0].offset)

    def poll(self, timeout_s: float) -> Any:
        if not self.given:
            return None
        event = self.given.popleft()
        if isinstance(event, Exception):
            raise event
        if isinstance(event, list):
            event, *self.rest = event
        return event

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        rest, self.rest = self.rest, []
        return rest

    def close(self) -> None:
        """Nothing is open."""

    # -- an administrator

    async def begins(self, places: Sequence[At]) -> dict[At, int]:
        return {places[0]: self.range[0]}

    async def ends(self, places: Sequence[At]) -> dict[At, int]:
        return {places[0]: self.range[1]}

    async def delete_records(self, ends: dict[At, int]) -> None:
        self.deleted |= ends


class Producer:
    """`outcomes` are those of the next records: an offset, an error, or an exception of `produce`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.outcomes: deque[Any] = deque()
        self._due: list[Any] = []

    def produce(self, topic: str, value: bytes, key: bytes, **more: Any) -> None:
        outcome = self.outcomes.popleft()
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, int):
            self._due.append(lambda: more["on_delivery"](None, Event(outcome)))
            self._cluster.given.append(Event(outcome))
        else:
            self._due.append(lambda: more["on_delivery"](outcome, None))

    def poll(self, timeout_s: float) -> None:
        while self._due:
            self._due.pop()()


class Reader:
    def __init__(self) -> None:
        self.said: list[object] = []

    def read(self, records: Sequence[JournalRecord]) -> None:
        self.said.append([one.offset for one in records])

    def restarted(self) -> None:
        self.said.append("restarted")

    def failing(self, reason: str | None) -> None:
        if reason is not None:
            self.said.append(reason)


class Case:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.reader = Reader()
        any_cluster: Any = self.cluster
        self.journal = Journal(any_cluster, "j", self.reader)

    async def start(self, begin: int, end: int, *given: object) -> None:
        self.cluster.range = begin, end
        self.cluster.given.extend(given)
        await self.journal.start()


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(module, "RETRY_S", 0.001)
    made = Case()
    yield made
    await made.journal.close()


async def test_everything_is_read_at_the_start_and_more_as_it_comes(case: Case) -> None:
    await case.start(5, 8, [Event(5), Event(6)], [Event(7), Event(8, EOF)])
    assert case.reader.said == [[5, 6], [7]]
    assert (case.journal.begin, case.journal.position, case.cluster.begun) == (5, 8, [OFFSET_BEGINNING])
    case.cluster.given.append(Event(8))
    await case.journal.reached(9)
    assert case.reader.said[2:] == [[8]]


@pytest.mark.parametrize("end", [0, 3000])
async def test_a_journal_without_a_record_is_read(case: Case, end: int) -> None:
    """A new one, and one that was trimmed up to its end: only the end itself is told."""
    await case.start(end, end, Event(end, EOF))
    assert case.journal.position == end
    assert case.reader.said == []


@pytest.mark.parametrize("gap", [7, 1])
async def test_a_gap_begins_again(case: Case, gap: int) -> None:
    """The records were trimmed before they were read, or the topic is another one."""
    await case.start(0, 2, [Event(0), Event(1)])
    case.cluster.given.append([Event(2), Event(gap), Event(gap + 1)])
    await case.journal.reached(3)
    async with asyncio.timeout(WAIT_S):
        while len(case.reader.said) < 4:
            await asyncio.sleep(0.001)
    assert case.reader.said == [[0, 1], [2], "restarted", [gap, gap + 1]]
    assert (case.journal.begin, case.journal.position) == (gap, gap + 2)


async def test_a_gap_without_records_behind_it_begins_again(case: Case) -> None:
    await case.start(0, 2, [Event(0), Event(1)])
    case.cluster.given.append(Event(9, EOF))
    await case.journal.reached(9)
    assert case.reader.said == [[0, 1], "restarted"]


async def test_errors_are_told_and_reading_continues_where_it_was(case: Case) -> None:
    failed = KafkaException(KafkaError(KafkaError._FATAL))
    refused = Event(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    await case.start(0, 2, Event(0), refused, failed, Event(1))
    first, *errors, last = case.reader.said
    assert (first, last) == ([0], [1])
    assert len(errors) == 2
    assert "authorization" in str(errors[0]).lower()
    assert case.cluster.begun == [OFFSET_BEGINNING, 1]


async def test_a_write_returns_once_it_was_read_back(case: Case) -> None:
    await case.start(0, 1, Event(0))
    case.cluster.written.outcomes.append(1)
    assert await case.journal.append(b"k", b"v") == 1
    assert case.reader.said == [[0], [1]]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (KafkaError(KafkaError._MSG_TIMED_OUT), ErrorKind.UNAVAILABLE),
        (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), ErrorKind.FORBIDDEN),
        (KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)), ErrorKind.TOO_LARGE),
        (BufferError(), ErrorKind.UNAVAILABLE),
    ],
)
async def test_a_write_that_fails(case: Case, outcome: object, kind: ErrorKind) -> None:
    await case.start(0, 0, Event(0, EOF))
    case.cluster.written.outcomes.append(outcome)
    with pytest.raises(PenstockError) as caught:
        await case.journal.append(b"k", b"v")
    assert caught.value.kind is kind


async def test_after_a_fatal_error_another_producer_writes(case: Case) -> None:
    await case.start(0, 0, Event(0, EOF))
    outcomes = case.cluster.written.outcomes
    outcomes += [KafkaException(KafkaError(KafkaError._FATAL)), 0]
    with pytest.raises(PenstockError) as refused:
        await case.journal.append(b"k", b"v")
    assert refused.value.kind is ErrorKind.UNAVAILABLE
    assert case.cluster.producers == 2
    assert await case.journal.append(b"k", b"v") == 0
    assert case.cluster.producers == 2


async def test_a_trim_deletes_the_records_before_an_offset(case: Case) -> None:
    await case.start(0, 0, Event(0, EOF))
    await case.journal.trim(5)
    assert case.cluster.deleted == {("j", 0): 5}
    assert case.journal.begin == 5
