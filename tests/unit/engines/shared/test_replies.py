"""Replies between two processes, whatever carries them."""

import asyncio

import pytest

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply, Request
from penstock.engines.shared.replies import (
    CLOCKS_DIFFER_MS,
    CORRELATION_ID,
    REPLY_TO,
    Address,
    Replies,
    TopicPerProcess,
    address_of,
    receive,
)
from penstock.engines.shared.requests import REPLY_BYTES_MAX, Requests
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, Message, OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock
from penstock.wire import entry as wire

TOPIC = TopicName.parse("orders")
ADDRESSES = TopicPerProcess()
REQUEST_ID = MessageId(3, 4)


class Network:
    """The transport of all processes: a message goes straight to who listens on the topic."""

    def __init__(self) -> None:
        self.requests: list[Requests] = []
        self.listened: set[str] = set()
        self.sent = 0

    async def listen(self, reply_to: str) -> None:
        self.listened.add(reply_to)

    async def send(self, reply_to: str, message: OutMessage) -> None:
        assert reply_to in self.listened
        self.sent += 1
        (found,) = [
            one for one in self.requests if ADDRESSES.own(one.process, TOPIC.namespace_name) == reply_to
        ]
        data = wire.encode((message,), producer="r", sequence_id=0, publish_time=0, schema_version=None)
        (arrived,) = wire.decode(Entry(1, 1, 0, 1, 0, 0, data.data))
        receive(found, arrived.properties, arrived.payload)

    async def close(self) -> None:
        self.listened.clear()


class Process:
    """One server: its waits, and its replies."""

    def __init__(self, network: Network, clock: ManualClock) -> None:
        self._clock = clock
        self.requests = Requests(clock, 300_000, correlated=True)
        self.replies = Replies(network, clock, self.requests)
        network.requests.append(self.requests)

    async def ask(self, timeout_ms: int | None = 1000) -> tuple[Request | None, Entry]:
        """A message as it is stored: a request unless there is no timeout."""
        await self.replies.listen(TOPIC.namespace_name)
        message = OutMessage(payload=b"?", sequence_id=0)
        (request,) = self.replies.ask(TOPIC.namespace_name, (message,), (timeout_ms,))
        now = self._clock.now_ms()
        made = wire.encode((message,), producer="p", sequence_id=0, publish_time=now, schema_version=None)
        if request is not None:
            request.placed(REQUEST_ID)
        return request, Entry(3, 4, 0, 1, now, 0, made.data)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.mark.parametrize(
    "reply",
    [Reply(REQUEST_ID, b"yes", False), Reply(REQUEST_ID, b"no", True), Reply(REQUEST_ID, b"v", False, 7)],
)
async def test_a_reply_goes_to_the_process_that_asked(
    network: Network, clock: ManualClock, reply: Reply
) -> None:
    asking, replying = Process(network, clock), Process(network, clock)
    request, entry = await asking.ask()
    assert request is not None
    assert await replying.replies.reply(entry, TOPIC, reply) is Outcome.DELIVERED
    async with asyncio.timeout(60):
        assert await request.reply() == reply
    assert (network.sent, asking.requests.answered) == (1, 1)


async def test_a_reply_to_a_request_of_its_own_process_needs_no_transport(
    network: Network, clock: ManualClock
) -> None:
    process = Process(network, clock)
    request, entry = await process.ask()
    assert request is not None
    reply = Reply(REQUEST_ID, b"yes", False)
    assert await process.replies.reply(entry, TOPIC, reply) is Outcome.DELIVERED
    assert await request.reply() == reply
    assert await process.replies.reply(entry, TOPIC, reply) is Outcome.NOBODY_WAITS
    assert network.sent == 0


async def test_nothing_is_sent_to_who_cannot_wait_any_more(network: Network, clock: ManualClock) -> None:
    asking, replying = Process(network, clock), Process(network, clock)
    _, entry = await asking.ask(500)
    clock.turn(501 + CLOCKS_DIFFER_MS)
    assert await replying.replies.reply(entry, TOPIC, Reply(REQUEST_ID, b"", False)) is Outcome.NOBODY_WAITS
    assert (network.sent, replying.requests.late) == (0, 1)


@pytest.mark.parametrize("ahead_ms", [-240_000, 240_000])
async def test_the_clock_of_the_process_that_asked_counts(
    network: Network, clock: ManualClock, ahead_ms: int
) -> None:
    """That of the one that replies may differ."""
    asking = Process(network, clock)
    request, entry = await asking.ask(500)
    _, later = await asking.ask(500)
    other = ManualClock(clock.now_ms() + ahead_ms)
    replying = Process(network, other)
    reply = Reply(REQUEST_ID, b"yes", False)
    assert request is not None
    assert await replying.replies.reply(entry, TOPIC, reply) is Outcome.DELIVERED
    assert await request.reply() == reply
    clock.turn(501)
    await replying.replies.reply(later, TOPIC, reply)
    assert (asking.requests.late, replying.requests.late) == (1, 0)


async def test_a_message_that_is_no_request_has_no_reply(network: Network, clock: ManualClock) -> None:
    process = Process(network, clock)
    _, entry = await process.ask(None)
    assert await process.replies.reply(entry, TOPIC, Reply(REQUEST_ID, b"", False)) is Outcome.NOT_A_REQUEST


async def test_a_reply_is_bounded(network: Network, clock: ManualClock) -> None:
    process = Process(network, clock)
    _, entry = await process.ask()
    with pytest.raises(PenstockError) as caught:
        await process.replies.reply(entry, TOPIC, Reply(REQUEST_ID, bytes(REPLY_BYTES_MAX + 1), False))
    assert caught.value.kind is ErrorKind.TOO_LARGE


async def test_a_request_says_its_address_and_its_correlation_id(
    network: Network, clock: ManualClock
) -> None:
    process = Process(network, clock)
    message = OutMessage(payload=b"?", properties={"own": "1"})
    (request,) = process.replies.ask(TOPIC.namespace_name, (message,), (1000,))
    assert request is not None
    reply_to = process.replies.reply_to(TOPIC.namespace_name)
    assert reply_to.startswith("non-persistent://public/default/penstock-replies-")
    assert message.properties == {
        "own": "1",
        REQUEST_TIMEOUT_PROPERTY: "1000",
        REPLY_TO: reply_to,
        CORRELATION_ID: request.correlation_id,
    }
    request.withdraw()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, Reply(REQUEST_ID, b"v", False, None)),
        ({"penstock-is-error": "true"}, Reply(REQUEST_ID, b"v", True, None)),
        ({"penstock-is-error": "1", "penstock-schema-version": "x"}, Reply(REQUEST_ID, b"v", False, None)),
        ({"penstock-schema-version": "7"}, Reply(REQUEST_ID, b"v", False, 7)),
        ({"penstock-schema-version": "\u0667"}, Reply(REQUEST_ID, b"v", False, None)),
        ({"penstock-schema-version": "7" * 5000}, Reply(REQUEST_ID, b"v", False, None)),
    ],
)
async def test_what_a_reply_says(
    network: Network, clock: ManualClock, properties: dict[str, str], expected: Reply
) -> None:
    process = Process(network, clock)
    request, _ = await process.ask()
    assert request is not None
    receive(process.requests, {CORRELATION_ID: "1-1", **properties}, b"v")
    assert process.requests.late == 1
    (correlation_id,) = process.requests.waits
    assert isinstance(correlation_id, str)
    receive(process.requests, {CORRELATION_ID: correlation_id, **properties}, b"v")
    assert await request.reply() == expected


def received(**properties: str) -> Message:
    return Message(payload=b"?", properties=properties)


def test_only_topics_for_replies_in_the_requests_namespace_are_addresses() -> None:
    good = "non-persistent://public/default/penstock-replies-1"
    given = {REQUEST_TIMEOUT_PROPERTY: "1000", REPLY_TO: good, CORRELATION_ID: "1-1"}
    assert address_of(received(**given), TOPIC, ADDRESSES) == Address(good, "1-1")
    for wrong in (
        "persistent://public/default/penstock-replies-1",
        "non-persistent://public/other/penstock-replies-1",
        "non-persistent://public/default/orders",
        "non-persistent://public/default/penstock-replies-1-partition-2",
        "://",
        "",
    ):
        assert address_of(received(**{**given, REPLY_TO: wrong}), TOPIC, ADDRESSES) is None
    for missing in given:
        assert (
            address_of(received(**{k: v for k, v in given.items() if k != missing}), TOPIC, ADDRESSES) is None
        )
