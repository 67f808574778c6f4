"""Replies between two processes, whatever carries them."""

import asyncio

import pytest

from penstock.broker.delivery import Outcome
from penstock.broker.producer import Reply, Request
from penstock.engines.shared.remote_requests import RemoteRequests
from penstock.engines.shared.replies import Replies
from penstock.engines.shared.requests import REPLY_BYTES_MAX
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock
from penstock.wire.entry import WireFormat

TOPIC = TopicName.parse("orders")
REQUEST_ID = MessageId(3, 4)
FORMAT = WireFormat()


class Network:
    """The transport of all processes: a message goes straight to who listens on the topic."""

    def __init__(self) -> None:
        self.requests: list[RemoteRequests] = []
        self.listened: set[str] = set()
        self.sent = 0

    async def listen(self, reply_to: str) -> None:
        self.listened.add(reply_to)

    async def send(self, reply_to: str, message: OutMessage) -> None:
        assert reply_to in self.listened
        self.sent += 1
        (found,) = [one for one in self.requests if one.reply_to(TOPIC.namespace_name) == reply_to]
        data = FORMAT.encode((message,), producer="r", sequence_id=0, publish_time=0, schema_version=None)
        (arrived,) = FORMAT.decode(Entry(1, 1, 0, 1, 0, 0, data.data))
        found.arrived(arrived)

    async def close(self) -> None:
        self.listened.clear()


class Process:
    """One server: its waits, and its replies."""

    def __init__(self, network: Network, clock: ManualClock) -> None:
        self._clock = clock
        self.requests = RemoteRequests(clock, 300_000)
        self.replies = Replies(network, clock, FORMAT, self.requests)
        network.requests.append(self.requests)

    async def ask(self, timeout_ms: int | None = 1000) -> tuple[Request | None, Entry]:
        """A message as it is stored: a request unless there is no timeout."""
        await self.replies.listen(TOPIC.namespace_name)
        message = OutMessage(payload=b"?", sequence_id=0)
        (request,) = self.requests.ask_all(TOPIC, (message,), (timeout_ms,))
        now = self._clock.now_ms()
        made = FORMAT.encode((message,), producer="p", sequence_id=0, publish_time=now, schema_version=None)
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
    clock.turn(501)
    assert await replying.replies.reply(entry, TOPIC, Reply(REQUEST_ID, b"", False)) is Outcome.NOBODY_WAITS
    assert (network.sent, replying.requests.late) == (0, 1)


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
