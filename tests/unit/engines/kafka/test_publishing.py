"""Plain messages for one partition: where they are said to be, by what became of their records."""

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from penstock.broker.producer import Placement, Result
from penstock.engines.kafka import publishing
from penstock.engines.kafka.driver.producer import LINGER_MS, Outcome
from penstock.engines.kafka.framing import Framing, UnknownVersion
from penstock.engines.kafka.publishing import Publishing, Turns
from penstock.engines.shared.publishing import Router
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Payloads
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner
from penstock.model.policy import Routing
from penstock.testing.clock import ManualClock

NAME = TopicName.parse("orders-partition-2")
FAILED = PenstockError(ErrorKind.UNAVAILABLE, "not in time")


class Records:
    """Takes values; their outcomes are given."""

    def __init__(self, outcomes: Sequence[Outcome], refreshed: Sequence[Outcome] = ()) -> None:
        """`refreshed`: those after librdkafka was told to ask for the topic's partitions."""
        self.outcomes = list(outcomes)
        self.sent: list[tuple[object, object]] = []
        self._refreshed = list(refreshed)

    async def refresh(self, topic: str) -> None:
        assert topic == "orders"
        self.outcomes = self._refreshed

    def send_values(self, at: object, values: Sequence[object], headers: Iterable[object]) -> Any:
        assert at == ("orders", 2)
        self.sent = list(zip(values, headers, strict=False))
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        future.set_result(self.outcomes)
        failed = any(isinstance(one, PenstockError) for one in self.outcomes)
        return SimpleNamespace(future=future, failed=failed, size=10 * len(values))


UNKNOWN = PenstockError(ErrorKind.PARTITION_NOT_FOUND, "added a moment ago")


class Topic:
    """The log of the partition; `end` is where it is known to end."""

    name = NAME
    ledger = 5
    place = SimpleNamespace(topic="orders", partition=2)
    rates = SimpleNamespace(publish=None)

    def __init__(self) -> None:
        self.end = 0
        self.count = self.size = 0

    def check_open(self) -> None:
        """It is there."""

    def stored(self, end: int) -> None:
        self.end = end

    def published(self, count: int, size: int, took_ms: float) -> None:
        self.count, self.size = count, size


async def publish(
    topic: Topic,
    records: Records,
    payloads: Payloads = ("a", "b", "c"),
    version: int | None = None,
    framing: Framing | None = None,
) -> Placement | list[Result]:
    nothing = cast(Any, None)
    framings = None if framing is None else cast(Any, SimpleNamespace(framing=lambda _: framing))
    publishing = Publishing(
        cast(Any, records),
        nothing,
        nothing,
        framings,
        cast(Any, SimpleNamespace(check_delay=None)),
        nothing,
        bytes_max=100,
        partitioner=Partitioner.MURMUR2,
    )
    return await publishing.plain(NAME.base, cast(Any, topic), payloads, version)


async def test_messages_that_follow_one_another_have_one_place() -> None:
    topic, records = Topic(), Records([7, 8, 9])
    placed = await publish(topic, records)
    assert placed == Placement(cast(Any, topic), 5, 7, 7, 3, batched=False)
    assert records.sent == [("a", None), ("b", None), ("c", None)]
    assert (topic.end, topic.count, topic.size) == (10, 3, 30)


async def test_each_has_its_id_where_others_published_between_them() -> None:
    topic = Topic()
    placed = await publish(topic, Records([7, 9, 10]))
    assert placed == [MessageId(5, 7, 2), MessageId(5, 9, 2), MessageId(5, 10, 2)]
    assert (topic.end, topic.count) == (11, 3)


async def test_some_fail() -> None:
    topic = Topic()
    assert await publish(topic, Records([7, FAILED, 8])) == [MessageId(5, 7, 2), FAILED, MessageId(5, 8, 2)]
    assert (topic.end, topic.count, topic.size) == (9, 2, 20)


async def test_all_fail() -> None:
    topic = Topic()
    with pytest.raises(PenstockError, match="not in time"):
        await publish(topic, Records([FAILED] * 3))
    assert (topic.end, topic.count) == (0, 0)


async def test_a_schema_version_is_a_header_of_each() -> None:
    records = Records([0, 1])
    await publish(Topic(), records, [b"a", b"b"], 4)
    header = [("penstock-schema-version", b"4")]
    assert records.sent == [(b"a", header), (b"b", header)]


async def test_values_are_framed_where_there_is_a_registry() -> None:
    framing = Framing(NAME.base, cast(Any, None))
    framing.know(300, 1)
    records = Records([0, 1])
    await publish(Topic(), records, ["a", "b"], 1, framing)
    assert records.sent == [(b"\0\0\0\x01\x2ca", None), (b"\0\0\0\x01\x2cb", None)]
    await publish(Topic(), records, ["a", "\0\0\0\x01\x2c"], None, framing)
    assert records.sent == [(b"a", None), (b"\0\0\0\x01\x2c", [("penstock-schema-version", b"none")])]


def test_what_is_published_within_a_moment_goes_to_one_partition() -> None:
    clock = ManualClock()
    turns = Turns(Router(3, Routing.ROUND_ROBIN, Partitioner.MURMUR3), clock)
    found = []
    for _ in range(4):
        found.append(turns.next())
        assert turns.next() == found[-1]
        clock.turn(LINGER_MS)
    first = found[0]
    assert found == [first, (first + 1) % 3, (first + 2) % 3, first]


async def test_a_partition_that_librdkafka_does_not_know_yet_is_asked_for() -> None:
    placed = await publish(Topic(), Records([UNKNOWN] * 3, [7, 8, 9]))
    assert isinstance(placed, Placement)
    assert (placed.offset, placed.count) == (7, 3)


async def test_a_partition_that_is_not_there_is_asked_for_once() -> None:
    with pytest.raises(PenstockError) as caught:
        await publish(Topic(), Records([UNKNOWN] * 3, [UNKNOWN] * 3))
    assert caught.value.kind is ErrorKind.PARTITION_NOT_FOUND


async def test_a_version_that_is_found_and_cannot_be_written_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    async def find_version(topic: TopicName, number: int) -> None:
        asked.append(number)
        assert len(asked) < 10, "it is asked for without an end"

    def records_of(*given: Any, **named: Any) -> NoReturn:
        raise UnknownVersion(NAME, 7)

    framing = SimpleNamespace(knows=lambda version: False)
    made = Publishing.__new__(Publishing)
    made.framings = cast(Any, SimpleNamespace(framing=lambda topic: framing, find_version=find_version))
    monkeypatch.setattr(publishing, "records_of", records_of)
    with pytest.raises(PenstockError, match="no schema version 7"):
        await made.records_of(NAME, cast(Any, None), numbered=False)
    assert asked == [7]
