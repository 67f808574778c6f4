"""Transcripts of acknowledgements, redelivery, seeking, and requests with their replies (PIP-371)."""

from typing import Any

import pytest
from tests.unit.engines.core.brokers import TOPIC as NAME
from tests.unit.protocols.binary.handlers import ClientSession, entry, sessions
from tests.unit.protocols.binary.test_session import producer, subscribe

from penstock.engines.subscription import Consumer
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY
from penstock.testing.clock import settle
from penstock.wire import entry as wire
from penstock.wire.frames import ack_set_of
from penstock.wire.pulsar_pb2 import (
    CommandAck,
    CommandCloseConsumer,
    CommandFlow,
    CommandRedeliverUnacknowledgedMessages,
    CommandRequestReceipt,
    CommandSeek,
    CommandSend,
    CommandSubscribe,
    CommandUnsubscribe,
    MessageIdData,
    ServerError,
)

pytestmark = pytest.mark.anyio

SHARED = CommandSubscribe.Shared
INDIVIDUAL, CUMULATIVE = CommandAck.Individual, CommandAck.Cumulative


async def begin(one: ClientSession, *batches: int, type: Any = SHARED, **features: bool) -> list[Any]:
    """Publish batches of so many messages, and have them delivered."""
    await one.connect(**features)
    await one.ask(producer())
    for number, size in enumerate(batches):
        one.say(
            CommandSend(producer_id=1, sequence_id=number),
            entry(*(b"%d" % n for n in range(size)), sequence_id=number * 100),
        )
    await one.heard()
    await one.ask(subscribe(subType=type))
    one.say(CommandFlow(consumer_id=1, messagePermits=1000))
    return [m for m in await one.heard() if hasattr(m, "redelivery_count")]


async def backlog(one: ClientSession) -> int:
    topic = await one.bench.broker.topics.get(NAME)
    return topic.subscriptions["s"].backlog


def ack(*ids: MessageIdData, type: Any = INDIVIDUAL, **fields: Any) -> CommandAck:
    return CommandAck(consumer_id=1, ack_type=type, message_id=ids, **fields)


def at(number: int, unacked: int = 0) -> MessageIdData:
    return MessageIdData(ledgerId=0, entryId=number, ack_set=ack_set_of(unacked))


async def test_receipts_come_when_it_is_durable() -> None:
    async with sessions() as (one,):
        await begin(one, 1, 1, 1)
        one.say(ack(at(0)))
        assert await one.heard() == []
        answer = await one.ask(ack(at(1), at(2), request_id=11))
        assert (answer.consumer_id, answer.request_id, answer.HasField("error")) == (1, 11, False)
        (saved,) = await one.bench.store.load_cursors(0)
        assert saved.mark == 3


async def test_a_client_learns_that_its_consumer_is_closed_before_its_acknowledgement_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may send it again to the next owner of the topic."""

    async def flush(consumer: Consumer) -> None:
        consumer.close()
        raise PenstockError(ErrorKind.UNAVAILABLE, "the topic moves to another owner")

    monkeypatch.setattr(Consumer, "flush", flush)
    async with sessions() as (one,):
        await begin(one, 1)
        one.say(ack(at(0), request_id=11))
        closed, refused = await one.heard()
        assert isinstance(closed, CommandCloseConsumer)
        assert (refused.request_id, refused.error) == (11, ServerError.ServiceNotReady)


async def test_ids_of_nobody() -> None:
    async with sessions() as (one,):
        await begin(one, 1)
        one.say(ack(at(99)))
        elsewhere = await one.ask(ack(MessageIdData(ledgerId=77, entryId=0), request_id=1))
        assert elsewhere.HasField("error")
        beyond = await one.ask(ack(at(99), request_id=2))
        assert beyond.HasField("error")
        stranger = CommandAck(consumer_id=9, ack_type=INDIVIDUAL, message_id=[at(0)], request_id=3)
        assert (await one.ask(stranger)).error == ServerError.ConsumerNotFound
        assert await backlog(one) == 1


async def test_part_of_a_batch() -> None:
    async with sessions() as (one,):
        await begin(one, 70)
        left = 1 << 69 | 1 << 3
        one.say(ack(at(0, left)))
        await one.heard()
        assert await backlog(one) == 2
        one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
        await one.heard()
        one.say(ack(at(0)))
        await one.heard()
        assert await backlog(one) == 0


async def test_the_rest_of_a_batch_comes_as_its_client_can_take_it() -> None:
    for knows_parts in (True, False):
        async with sessions() as (one,):
            await begin(one, 5, supports_request_reply=knows_parts)
            await acknowledge_elsewhere(one, 0, 2)
            one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[at(0)]))
            (message,) = await one.heard()
            assert message.redelivery_count == 1
            if knows_parts:
                assert list(message.ack_set) == [0b11010]
            else:
                assert not message.ack_set
            assert await backlog(one) == 3
            one.say(ack(at(0)))
            await one.heard()
            assert await backlog(one) == 0


async def test_an_excerpt_is_acknowledged_by_its_own_indexes() -> None:
    async with sessions() as (one,):
        await begin(one, 5)
        await acknowledge_elsewhere(one, 0, 2)
        one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[at(0)]))
        await check_payloads(one, [b"1", b"3", b"4"])
        one.say(ack(at(0, 0b101)))  # the second of three
        await one.heard()
        one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[at(0)]))
        await settle(100)
        # Now it is known that the client acknowledges by index: it gets the batch with its own indexes.
        assert list(one.output.frames[0].command.message.ack_set) == [0b10010]
        await check_payloads(one, [b"0", b"1", b"2", b"3", b"4"])
        one.say(ack(at(0, 0b10000)))
        await one.heard()
        assert await backlog(one) == 1


async def test_an_acknowledgement_by_the_indexes_of_another_form_takes_nothing_else() -> None:
    """The client may hold messages of the whole batch while it was sent the rest as a batch, and the other way round."""
    rest = [b"5", b"6", b"7", b"8", b"9"]
    for bits in (0b1111000000, 0b11110):  # the sixth by the whole batch, and the first of the rest
        async with sessions() as (one,):
            await begin(one, 10)
            await acknowledge_elsewhere(one, 0, 1, 2, 3, 4)
            one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
            await check_payloads(one, rest)
            one.say(ack(at(0, bits)))
            await one.heard()
            assert await backlog(one) == 4
            one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
            (message,) = await one.heard()  # whole, as it is known to count by index
            assert list(message.ack_set) == [0b1111000000]
            one.say(ack(at(0, 0b11100)))  # of the rest, which it still holds
            await one.heard()
            assert await backlog(one) == 3
            one.say(ack(at(0)))
            await one.heard()
            assert await backlog(one) == 0


async def acknowledge_elsewhere(one: ClientSession, *indexes: int) -> None:
    """Acknowledge messages of the first entry, as another protocol does: one by one."""
    topic = await one.bench.broker.topics.get(NAME)
    for index in indexes:
        topic.subscriptions["s"].answers.acknowledge(0, index)


async def test_a_batch_that_its_client_acknowledged_in_part_keeps_its_indexes() -> None:
    async with sessions() as (one,):
        await begin(one, 5)
        one.say(ack(at(0, 0b11010)))
        await one.heard()
        for tries in (1, 2):
            one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1))
            (message,) = await one.heard()
            assert (message.redelivery_count, list(message.ack_set)) == (tries, [0b11010])
        consumer = (await one.bench.broker.topics.get(NAME)).subscriptions["s"].consumers[0]
        assert (consumer.permits, consumer.unacked) == (1000 - 5 - 3 - 3, 3)
        one.say(ack(at(0, 0b01010)))
        one.say(ack(at(0)))
        await one.heard()
        assert await backlog(one) == 0


async def check_payloads(one: ClientSession, wanted: list[bytes]) -> None:
    await settle(100)
    (frame,) = one.output.frames
    one.output.frames = []
    stored = Entry(0, 0, 0, len(wanted), 0, 0, frame.entry)
    assert [m.payload for m in wire.decode(stored)] == wanted


async def test_cumulative_acknowledgements() -> None:
    async with sessions() as (one,):
        await begin(one, 1, 4, 1, type=CommandSubscribe.Exclusive)
        one.say(ack(at(1, 0b1100), type=CUMULATIVE))
        await one.heard()
        assert await backlog(one) == 3
        one.say(ack(at(2, 0b1), type=CUMULATIVE))
        await one.heard()
        assert await backlog(one) == 1
        assert not (await one.ask(ack(at(2), type=CUMULATIVE, request_id=1))).HasField("error")
        assert await backlog(one) == 0


async def test_cumulative_is_not_for_shared_subscriptions() -> None:
    async with sessions() as (one,):
        await begin(one, 1)
        assert (await one.ask(ack(at(0), type=CUMULATIVE, request_id=1))).HasField("error")
        assert await backlog(one) == 1


async def test_redelivery_counts() -> None:
    async with sessions() as (one,):
        await begin(one, 1, 1, 1)
        one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=[at(1), at(50)]))
        (again,) = await one.heard()
        assert (again.message_id.entryId, again.redelivery_count) == (1, 1)
        one.say(CommandRedeliverUnacknowledgedMessages(consumer_id=1, consumer_epoch=4))
        found = await one.heard()
        assert [(m.message_id.entryId, m.redelivery_count, m.consumer_epoch) for m in found] == [
            (0, 1, 4),
            (1, 2, 4),
            (2, 1, 4),
        ]


async def test_what_the_client_never_read_does_not_count_as_delivered() -> None:
    async with sessions() as (one,):
        await one.connect()
        await one.ask(producer())
        one.say(CommandSend(producer_id=1, sequence_id=0), entry(b"x"))
        await one.heard()
        await one.ask(subscribe(subType=SHARED))
        one.output.paused = True
        one.say(CommandFlow(consumer_id=1, messagePermits=10))
        assert await one.heard() == []
        await one.ask(CommandCloseConsumer(consumer_id=1, request_id=1))
        one.output.paused = False
        await one.ask(subscribe(2, subType=SHARED))
        one.say(CommandFlow(consumer_id=2, messagePermits=10))
        (message,) = await one.heard()
        assert message.redelivery_count == 0


async def test_seek_closes_the_consumer_first() -> None:
    async with sessions() as (one,):
        await begin(one, 1, 1, 1, type=CommandSubscribe.Exclusive)
        one.say(CommandSeek(consumer_id=1, request_id=3, message_id=at(1)))
        closed, done = await one.heard()
        assert (closed.consumer_id, done.request_id) == (1, 3)
        await one.ask(subscribe())
        one.say(CommandFlow(consumer_id=1, messagePermits=10))
        assert [m.message_id.entryId for m in await one.heard()] == [1, 2]
        bad = await one.ask(CommandSeek(consumer_id=1, request_id=4))
        assert bad.error == ServerError.NotAllowedError


async def test_a_consumer_comes_back_whose_seek_or_unsubscribe_failed() -> None:
    async with sessions() as (one,):
        await begin(one, 1)

        async def fail(*_: object) -> None:
            raise PenstockError(ErrorKind.UNAVAILABLE, "nobody knows")

        (handler,) = one.session.consumers.values()
        handler.source.move = fail
        one.say(CommandSeek(consumer_id=1, request_id=3, message_id=at(0)))
        closed, failed = await one.heard()
        assert (closed.consumer_id, failed.request_id) == (1, 3)
        await one.ask(subscribe(subType=SHARED))
        (handler,) = one.session.consumers.values()
        handler.source.delete_cursor = fail
        one.say(CommandUnsubscribe(consumer_id=1, request_id=4))
        closed, failed = await one.heard()
        assert (closed.consumer_id, failed.request_id) == (1, 4)
        assert one.session.consumers == {}


# -- requests


def request(timeout_ms: object = 1000) -> bytes:
    return entry(b"what?", properties={REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)})


async def test_a_request_and_its_reply() -> None:
    async with sessions(count=2) as (one, other):
        await begin(other)
        await one.connect(supports_request_reply=True)
        await one.ask(producer(3, producer_name="p2"))
        data = entry(b"what?", producer="p2", properties={REQUEST_TIMEOUT_PROPERTY: "1000"}, sequence_id=6)
        receipt = await one.ask(CommandSend(producer_id=3, sequence_id=6), data)
        (message,) = await other.heard()
        answer = await other.ask(
            ack(message.message_id, reply_to_client="p2", reply_payload=b"this", request_id=1)
        )
        assert not answer.HasField("error")
        (reply,) = await one.heard()
        assert (reply.reply_to_producer_id, reply.sequence_id, reply.reply_payload) == (3, 6, b"this")
        assert reply.request_message_id.entryId == receipt.message_id.entryId
        assert not reply.is_error
        assert await backlog(other) == 0


async def test_nothing_is_heard_when_the_time_is_over() -> None:
    async with sessions() as (one,):
        await begin(one, supports_request_reply=True)
        one.say(CommandSend(producer_id=1, sequence_id=0), request())
        _, message = await one.heard()
        await one.bench.clock.advance(1001)
        assert await one.heard() == []
        late = await one.ask(ack(message.message_id, reply_payload=b"late", request_id=1))
        assert not late.HasField("error")
        assert len(one.bench.broker.requests) == 0


async def test_clients_that_did_not_announce_it_do_not_wait() -> None:
    async with sessions() as (one,):
        await begin(one)
        one.say(CommandSend(producer_id=1, sequence_id=0), request())
        await one.heard()
        assert len(one.bench.broker.requests) == 0


async def test_a_senseless_timeout_is_refused() -> None:
    async with sessions() as (one,):
        await begin(one, supports_request_reply=True)
        for timeout in ("soon", 0, 10**9):
            answer = await one.ask(CommandSend(producer_id=1, sequence_id=0), request(timeout))
            assert answer.error == ServerError.NotAllowedError


async def test_who_goes_waits_no_more() -> None:
    async with sessions() as (one,):
        await begin(one, supports_request_reply=True)
        one.say(CommandSend(producer_id=1, sequence_id=0), request())
        await one.heard()
        assert len(one.bench.broker.requests) == 1
        await one.session.close()
        assert len(one.bench.broker.requests) == 0


class Searched(dict[int, Any]):
    """Fails when it is looked through, until that is allowed."""

    allowed = False

    def __iter__(self) -> Any:
        assert self.allowed, "all waits were looked at"
        return super().__iter__()

    items = keys = values = __iter__  # type: ignore[assignment]


async def test_a_withdrawal_looks_at_the_waits_of_its_sequence_id_only() -> None:
    async with sessions() as (one,):
        await begin(one, supports_request_reply=True)
        waits = one.bench.broker.requests
        for number in (0, 1, 1, 2):
            mark = {REQUEST_TIMEOUT_PROPERTY: "1000"}
            one.say(
                CommandSend(producer_id=1, sequence_id=number),
                entry(b"?", properties=mark, sequence_id=number),
            )
        await one.heard()
        handler = one.session.producers[1]
        searched = handler._requests = Searched(handler._requests)
        for withdrawn, left in ((9, 4), (1, 2), (1, 2), (0, 1)):
            one.say(CommandRequestReceipt(reply_to_producer_id=1, sequence_id=withdrawn))
            assert len(waits) == left
        searched.allowed = True
        await one.bench.clock.advance(1001)
        assert (len(waits), len(handler._requests), waits.timed_out) == (0, 0, 1)


async def test_a_worker_s_request_waits_under_the_name_in_its_message() -> None:
    """The connection of a worker has a name of its own, and the stored message has the one that is shared."""
    async with sessions() as (one,):
        await begin(one, supports_request_reply=True)
        one.session.of_worker = True
        mark = {REQUEST_TIMEOUT_PROPERTY: "1000"}
        one.say(
            CommandSend(producer_id=1, sequence_id=4),
            entry(b"?", producer="x", properties=mark, sequence_id=4),
        )
        assert list(one.bench.broker.requests.waits) == [(str(NAME), "x", 4)]
        await one.heard()
        assert [type(key[0]) for key in one.bench.broker.requests.waits] == [int]
