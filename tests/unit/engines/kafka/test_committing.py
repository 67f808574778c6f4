"""When a commit is answered, with brokers that the test makes."""

from typing import Any

import pytest

from penstock.engines.kafka.driver.transactions import Stored
from penstock.engines.kafka.staging import committing
from penstock.engines.kafka.staging.committing import _Copying
from penstock.model.errors import ErrorKind, PenstockError


class Topic:
    """Ends where the brokers say, one look after the other."""

    name = "a"

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)
        self.end = 0
        self.counts: list[int] = []

    async def end_now(self) -> int:
        if not self.ends:
            raise PenstockError(ErrorKind.UNAVAILABLE, "away")
        return self.ends.pop(0)

    def stored(self, end: int) -> None:
        self.end = end

    def published(self, *counts: int) -> None:
        self.counts = list(counts)


class Committed:
    """A transaction that stored three records from 5 on, in each of so many partitions."""

    def __init__(self, partitions: int) -> None:
        self.stored = {("a", number): Stored(5, 7, 3) for number in range(partitions)}


async def shown(*topics: Topic) -> None:
    nobody: Any = None
    transaction: Any = Committed(len(topics))
    copying = _Copying(transaction, {}, nobody, 0)
    for number, topic in enumerate(topics):
        given: Any = topic
        copying._counts["a", number] = given, [3, 3, 30]
    await copying.shown()
    for topic in topics:
        assert topic.counts == [3, 30, 0], "it is counted, whatever is known of its end"


async def test_the_marker_of_every_partition_is_waited_for() -> None:
    one, two = Topic(5, 5, 9), Topic(9)
    await shown(one, two)
    assert (one.ends, one.end, two.end) == ([], 9, 9)


async def test_an_open_transaction_of_somebody_else_is_not_waited_for() -> None:
    topic = Topic(3, 9)
    await shown(topic)
    assert (topic.ends, topic.end) == ([9], 3)


async def test_what_is_committed_is_answered_though_the_cluster_goes() -> None:
    topic = Topic(5)
    await shown(topic)
    assert topic.end == 0


async def test_brokers_that_do_not_show_it_hold_up_the_answer_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(committing, "SHOWN_S", 0.0)
    topic = Topic(*[5] * 1000)
    await shown(topic)
    assert topic.end == 0
