"""Messages of one partition on their way to entries: which share one, which numbers they get, which fail."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.broker.producer import Result
from penstock.client.entries.pending import Outcome, Outgoing
from penstock.client.entries.producer import EntryProducer
from penstock.client.errors import PulsarException, TopicTerminated
from penstock.engines.pulsar.publishing import PartitionProducer
from penstock.engines.pulsar.topic import PulsarTopic
from penstock.engines.shared.publishing import Numbers
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import UNKNOWN_ID, MessageId
from penstock.model.names import TopicName
from penstock.wire import entry as wire


class Entries:
    """An `EntryProducer` that stores at once, as the test says."""

    name, max_message_size = "ann", 2000

    def __init__(self, last: int = -1) -> None:
        self.last_sequence_id = last
        self.sent: list[Outgoing] = []
        self.waits: list[int] = []  # how many entries were sent when it was waited for their receipts
        self.outcomes: list[Outcome] = []
        self.error: PulsarException | None = None

    async def room(self) -> None:
        if self.error is not None:
            raise self.error

    async def settled(self) -> None:
        self.waits.append(len(self.sent))

    def send_all(self, entries: Sequence[Outgoing]) -> asyncio.Future[list[Outcome]]:
        first = len(self.sent)
        self.sent += entries
        future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
        given, self.outcomes = self.outcomes[: len(entries)], self.outcomes[len(entries) :]
        future.set_result(given or [(5, first + at) for at in range(len(entries))])
        return future


class Topic:
    name = TopicName.parse("persistent://public/default/t-partition-3")
    counted: tuple[int, int] = (0, 0)

    def published(self, messages: int, size: int, took_ms: float) -> None:
        self.counted = self.counted[0] + messages, self.counted[1] + size


def producer(
    entries: Entries, numbers: Numbers | None = None, *, deduplicate: bool = False
) -> PartitionProducer:
    return PartitionProducer(
        cast(PulsarTopic, Topic()),
        cast(EntryProducer, entries),
        numbers or Numbers(),
        lambda: deduplicate,
    )


async def publish(
    one: PartitionProducer, messages: Sequence[OutMessage], *, batch: bool = True
) -> list[Result | None]:
    results: list[Result | None] = [None] * len(messages)
    for posted in await one.post(messages, range(len(messages)), results, batch=batch):
        await one.collect(posted, results)
    return results


def numbered(*ids: int | None, **more: Any) -> list[OutMessage]:
    return [OutMessage(payload=b"%d" % at, sequence_id=number, **more) for at, number in enumerate(ids)]


def ids_of(entries: Entries) -> list[list[int]]:
    """The sequence ids in each entry."""
    return [
        [one.sequence_id for one in wire.decode(Entry(1, 0, 0, entry.count, 0, 0, entry.data))]
        for entry in entries.sent
    ]


async def test_neighbours_share_an_entry_and_each_has_its_id() -> None:
    entries = Entries()
    results = await publish(producer(entries), numbered(None, None))
    assert results == [MessageId(5, 0, 3, 0, 2), MessageId(5, 0, 3, 1, 2)]
    assert [(one.sequence_id, one.highest, one.count) for one in entries.sent] == [(0, 1, 2)]


async def test_without_batches_each_is_an_entry() -> None:
    entries = Entries()
    results = await publish(producer(entries), numbered(None, None), batch=False)
    assert results == [MessageId(5, 0, 3), MessageId(5, 1, 3)]
    assert [(one.sequence_id, one.highest, one.count) for one in entries.sent] == [(0, 0, 1), (1, 1, 1)]


async def test_numbers_of_several_partitions_rise_in_each() -> None:
    numbers = Numbers()
    first, second = Entries(), Entries()
    one, two = producer(first, numbers), producer(second, numbers)
    await publish(one, numbered(None, 10))
    await publish(two, numbered(None))
    await publish(one, numbered(None))
    assert (ids_of(first), ids_of(second)) == ([[0, 10], [12]], [[11]])


async def test_the_highest_number_of_a_client_leaves_numbers_for_the_server() -> None:
    entries = Entries()
    one = producer(entries)
    assert not [r for r in await publish(one, numbered(None, 2**63 - 1)) if not isinstance(r, MessageId)]
    assert await publish(one, numbered(None)) == [MessageId(5, 1, 3)]
    await one.post_plain([b"x"], None)
    assert ids_of(entries) == [[0, 2**63 - 1], [1], [2]]


async def test_a_number_that_would_hide_the_server_s_is_refused_where_repeats_are_dropped() -> None:
    entries = Entries()
    refused, stored = await publish(producer(entries, deduplicate=True), numbered(2**62, None))
    assert isinstance(refused, PenstockError)
    assert refused.kind is ErrorKind.BAD_PARAMETER
    assert stored == MessageId(5, 0, 3)
    assert ids_of(entries) == [[0]]


@pytest.mark.parametrize("batch", [True, False])
async def test_numbers_that_do_not_rise_share_no_entry(batch: bool) -> None:
    entries = Entries(last=5)
    results = await publish(producer(entries), numbered(6, 7, 3, 8, 8, 9), batch=batch)
    assert ids_of(entries) == ([[6, 7], [3], [8], [8], [9]] if batch else [[6], [7], [3], [8], [8], [9]])
    assert len({str(one) for one in results}) == 6
    assert entries.waits == []


async def test_a_repeat_waits_for_what_is_on_its_way_where_repeats_are_dropped() -> None:
    entries = Entries(last=5)
    await publish(producer(entries, deduplicate=True), numbered(6, 7, 7, 8))
    assert ids_of(entries) == [[6, 7], [7], [8]]
    assert entries.waits == [1]


async def test_a_duplicate_has_no_id() -> None:
    entries = Entries()
    entries.outcomes = [(-1, -1)]
    one = producer(entries)
    assert await publish(one, numbered(None, None)) == [UNKNOWN_ID, UNKNOWN_ID]
    topic = cast(Topic, one._topic)
    assert topic.counted == (0, 0)


async def test_a_bad_message_fails_alone_in_a_batch_and_out_of_one() -> None:
    for batch in (True, False):
        entries = Entries()
        messages = numbered(None, None, None)
        messages[1].payload = b"x" * 3000
        messages[2].properties = {"a": "\ud800"}
        good, large, bad = await publish(producer(entries), messages, batch=batch)
        assert good == MessageId(5, 0, 3)
        assert isinstance(large, PenstockError)
        assert isinstance(bad, PenstockError)
        assert (large.kind, bad.kind) == (ErrorKind.TOO_LARGE, ErrorKind.BAD_ENCODING)


async def test_a_batch_that_is_too_large_goes_as_its_messages() -> None:
    entries = Entries()
    messages = numbered(None, None, None)
    for message in messages:
        message.payload = b"x" * 900
    assert await publish(producer(entries), messages) == [MessageId(5, n, 3) for n in range(3)]


async def test_what_the_cluster_refuses_fails_with_its_entry_alone() -> None:
    entries = Entries()
    entries.outcomes = [(5, 0), TopicTerminated("over")]
    good, bad = await publish(producer(entries), numbered(None, None), batch=False)
    assert good == MessageId(5, 0, 3)
    assert isinstance(bad, PenstockError)
    assert (bad.kind, bad.message) == (
        ErrorKind.TOPIC_TERMINATED,
        "persistent://public/default/t-partition-3: over",
    )


async def test_a_producer_that_has_ended_says_why() -> None:
    entries = Entries()
    entries.error = TopicTerminated("over")
    with pytest.raises(PenstockError, match="t-partition-3: over"):
        await publish(producer(entries), numbered(None))


async def test_plain_messages_are_one_entry_and_are_counted() -> None:
    entries = Entries()
    one = producer(entries)
    assert await one.post_plain([b"a", b"b"], None) == (5, 0)
    assert await one.post_plain([b"c"], None) == (5, 1)
    assert ids_of(entries) == [[0, 1], [2]]
    assert cast(Topic, one._topic).counted == (3, sum(len(entry.data) for entry in entries.sent))
    with pytest.raises(PenstockError, match="the cluster takes at most 2000"):
        await one.post_plain([b"x" * 3000], None)
