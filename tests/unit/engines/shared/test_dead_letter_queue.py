"""Dead letters that their topic does not take: what waits, what is tried again, what is published once."""

import logging
from collections import deque

import pytest

from penstock.broker.subscription import DeadLetterStats
from penstock.engines.shared.dead_letters import (
    FAILED_MAX,
    RETRY_MAX_MS,
    WAITING_MAX,
    DeadLetterQueue,
    EntryDeadLetters,
)
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Tasks
from penstock.testing.clock import ManualClock, settle

CLOSED = PenstockError(ErrorKind.TOPIC_TERMINATED, "the topic is terminated")
SUBJECT = "t s"


class Letters:
    """A dead-letter topic that refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.failures = Failures(self.clock)
        self.figures = DeadLetterStats()
        self.tasks = Tasks()
        self.queue = self.another()
        self.stored: list[int] = []
        self.tried: list[int] = []
        self.returned: list[int] = []
        self.refused: set[int] = set()
        self.closed = False
        self.gone = False
        self.error: Exception = CLOSED

    def another(self) -> DeadLetterQueue:
        return DeadLetterQueue(self.figures, SUBJECT, self.failures, self.clock, self.tasks)

    async def add(self, *indexes: int, queue: DeadLetterQueue | None = None) -> None:
        async def load() -> Entry:
            if self.gone:
                raise PenstockError(ErrorKind.MESSAGE_NOT_FOUND, "no entry")
            return Entry(0, 0, 0, 1, 0, 0, b"")

        async def bury(entry: Entry, index: int) -> None:
            self.tried.append(index)
            if self.closed or index in self.refused:
                raise self.error
            self.stored.append(index)

        def again(part: EntryDeadLetters, wait_ms: int) -> None:
            self.returned += part.indexes

        (queue or self.queue).add(EntryDeadLetters(deque(indexes), load, bury, again))
        await settle()


async def test_one_message_that_is_refused_holds_up_no_other_and_none_is_stored_twice() -> None:
    b = Letters()
    b.refused = {1}
    await b.add(0, 1, 2)
    await b.add(3)
    assert b.stored == [0, 2, 3]
    assert (b.figures.waiting, b.figures.failed, b.figures.error) == (1, 1, CLOSED.message)
    await b.clock.advance(1000)
    assert (b.stored, b.figures.failed) == ([0, 2, 3], 2)
    b.refused.clear()
    await b.clock.advance(2000)
    assert b.stored == [0, 2, 3, 1]
    assert (b.figures.waiting, b.figures.error) == (0, None)
    assert not b.failures.ongoing


async def test_it_is_logged_once_and_on_recovery(caplog: pytest.LogCaptureFixture) -> None:
    b = Letters()
    b.closed = True
    with caplog.at_level(logging.INFO):
        await b.add(0, 1)
        await b.add(2)
        for _ in range(10):
            await b.clock.advance(RETRY_MAX_MS)
        (failure,) = b.failures.ongoing
        assert (failure.kind, failure.subject) == (FailureKind.DEAD_LETTER, SUBJECT)
        assert failure.count == b.figures.failed > 3
        b.closed = False
        await b.clock.advance(RETRY_MAX_MS)
    assert sorted(b.stored) == [0, 1, 2]
    begin, end = caplog.records
    assert (begin.getMessage(), end.getMessage()) == (
        "dead letters cannot be stored",
        "dead letters are stored again",
    )


async def test_attempts_become_rare() -> None:
    b = Letters()
    b.closed = True
    await b.add(0)
    times = []
    for second in range(1, 300):
        before = len(b.tried)
        await b.clock.advance(1000)
        if len(b.tried) > before:
            times.append(second)
    assert times == [1, 3, 7, 15, 31, 63, 123, 183, 243]


async def test_a_topic_that_takes_nothing_is_not_asked_for_all_and_all_get_their_turn() -> None:
    b = Letters()
    b.closed = True
    for number in range(5 * FAILED_MAX):
        await b.add(number)
    b.tried.clear()
    await b.clock.advance(1000)
    assert len(b.tried) == FAILED_MAX
    b.closed = False
    b.refused = set(range(FAILED_MAX))  # a few that are never taken keep none of the others waiting
    for _ in range(5):
        await b.clock.advance(RETRY_MAX_MS)
    assert sorted(b.stored) == list(range(FAILED_MAX, 5 * FAILED_MAX))
    assert b.figures.waiting == FAILED_MAX


async def test_what_waits_is_bounded_and_further_messages_are_delivered_again() -> None:
    b = Letters()
    b.closed = True
    await b.add(*range(WAITING_MAX))
    await b.add(-1, -2)
    assert b.figures.waiting == WAITING_MAX
    assert sorted(b.returned) == [-2, -1]


async def test_a_seek_ends_it_without_a_recovery(caplog: pytest.LogCaptureFixture) -> None:
    b = Letters()
    b.closed = True
    await b.add(0)
    b.queue.forget()
    b.closed = False
    await b.clock.advance(RETRY_MAX_MS)
    assert b.stored == []
    assert (b.figures.waiting, b.figures.error) == (0, None)
    assert not b.failures.ongoing
    assert len(caplog.records) == 1


async def test_two_consumers_of_a_subscription_are_one_failure(caplog: pytest.LogCaptureFixture) -> None:
    b = Letters()
    other = b.another()
    b.refused = {0, 1}
    await b.add(0)
    await b.add(1, queue=other)
    assert b.figures.waiting == 2
    b.refused = {1}
    await b.clock.advance(1000)
    assert b.figures.waiting == 1
    assert b.failures.ongoing
    b.refused = set()
    await b.clock.advance(RETRY_MAX_MS)
    assert not b.failures.ongoing
    assert len(caplog.records) == 2


async def test_an_entry_that_was_deleted_and_an_error_of_any_kind_end_no_retries() -> None:
    b = Letters()
    b.closed, b.error = True, RuntimeError("a bug")
    await b.add(0)
    assert b.figures.error == "RuntimeError('a bug')"
    await b.clock.advance(1000)
    assert b.figures.waiting == 1
    b.gone = True
    await b.clock.advance(2000)
    assert b.figures.waiting == 0
    assert not b.failures.ongoing
