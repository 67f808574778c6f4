"""The consumer of entries against a broker that follows a script."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.entry_consumers import Taking
from tests.support.waiting import until_async

from penstock.client import errors
from penstock.client.aio.context import Context
from penstock.client.aio.link import Link
from penstock.client.entries.arrived import read_arrived
from penstock.client.entries.consumer import EntryConsumer
from penstock.client.entries.start import Start
from penstock.client.enums import ConsumerType
from penstock.client.options import ClientOptions, complete
from penstock.client.session.commands import Subscription
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.wire.frames import Frame, broker_part, decode, encode, encode_with_entry
from penstock.wire.pulsar_pb2 import BaseCommand, CommandSubscribe, ServerError

from .broker import delivery
from .fake import FakeBroker, error, fake


class Stage:
    """A consumer, its sink and its broker. What the broker hears of permits and acknowledgements is in `flows`, `acks`."""

    def __init__(self, broker: FakeBroker, consumer: EntryConsumer, taking: Taking) -> None:
        self.broker = broker
        self.consumer = consumer
        self.taking = taking

    def heard(self, kind: int) -> list[Frame]:
        return [frame for frame in self.broker.frames if frame.type == kind]

    @property
    def flows(self) -> list[int]:
        return [frame.command.flow.messagePermits for frame in self.heard(BaseCommand.FLOW)]

    @property
    def acks(self) -> list[list[tuple[int, list[int]]]]:
        return [
            [(data.entryId, list(data.ack_set)) for data in frame.command.ack.message_id]
            for frame in self.heard(BaseCommand.ACK)
        ]

    def send(self, *frames: Frame) -> None:
        written = b""
        for frame in frames:
            frame.command.message.consumer_id = self.consumer._id
            written += b"".join(encode_with_entry(frame.command, frame.entry))
        self.broker._protocols[-1].transport.write(written)


def answering(frame: Frame) -> list[BaseCommand]:
    command = frame.command.ack
    out = BaseCommand(type=BaseCommand.ACK_RESPONSE)
    out.ack_response.consumer_id, out.ack_response.request_id = command.consumer_id, command.request_id
    return [out]


def succeeding(frame: Frame) -> list[BaseCommand]:
    out = BaseCommand(type=BaseCommand.SUCCESS)
    out.success.request_id = frame.command.seek.request_id
    return [out]


@asynccontextmanager
async def staged(
    kind: ConsumerType = ConsumerType.Exclusive, start: MessageId | None = None, *, durable: bool = True
) -> AsyncIterator[Stage]:
    async with fake() as broker:
        context = Context(
            f"pulsar://127.0.0.1:{broker.port}",
            None,
            10.0,
            complete(ClientOptions, "", {}),
            entry_metadata=True,
        )
        broker.script[BaseCommand.ACK] = answering
        broker.script[BaseCommand.SEEK] = succeeding
        taking = Taking()
        how = Subscription(
            topic="persistent://public/default/t", name="s", consumer_name="c", type=kind, durable=durable
        )
        consumer = EntryConsumer(context, how, start, sink=taking)
        await consumer.start()
        yield Stage(broker, consumer, taking)
        await consumer.close()
        await context.close()


async def test_it_asks_for_what_brokers_know_of_entries() -> None:
    async with staged() as stage:
        flags = stage.heard(BaseCommand.CONNECT)[0].command.connect.feature_flags
        assert flags.supports_broker_entry_metadata


async def test_what_comes_in_one_read_is_one_run() -> None:
    async with staged() as stage:
        stage.consumer.flow(10)
        stage.send(delivery(1, b"a"), delivery(2, b"b", b"c"), delivery(3, b"d", b"e", ack_set=0b10))
        await until_async(lambda: len(stage.taking.entries) == 3)
        assert stage.taking.runs == 1
        assert [(one.count, one.mask) for one in stage.taking.entries] == [(1, 1), (2, 3), (2, 2)]
        assert stage.consumer.permits == 10 - 1 - 2 - 1
        assert stage.flows == [10]


async def test_permits_left_are_given_again_before_nothing_else_but_acknowledgements() -> None:
    async with staged() as stage:
        stage.broker.script[BaseCommand.ACK] = lambda frame: []  # the answer is lost
        stage.consumer.flow(10)
        stage.send(delivery(1, b"a"), delivery(2, b"b"))
        await until_async(lambda: len(stage.taking.entries) == 2)
        stage.consumer.acknowledge([(1, 1)])
        await until_async(lambda: len(stage.acks) == 1)
        stage.broker.heard.clear()
        stage.broker.close_connections()
        await until_async(lambda: "FLOW" in stage.broker.heard)
        assert stage.broker.heard == ["CONNECT", "LOOKUP", "SUBSCRIBE", "ACK", "FLOW"]
        assert stage.acks == [[(1, [])], [(1, [])]]
        assert stage.flows == [10, 8]
        assert stage.taking.resets == 1


async def test_what_was_not_handed_on_when_the_connection_broke_costs_no_permit() -> None:
    async with staged() as stage:
        stage.consumer.flow(5)
        link = stage.consumer._link
        assert link is not None
        frame = delivery(1, b"a")
        stage.consumer.received(frame)
        stage.consumer.lost(link, errors.ReadError("cut"))
        await until_async(lambda: stage.consumer.connected)
        await until_async(lambda: len(stage.flows) == 2)
        assert stage.flows == [5, 5]
        assert stage.taking.entries == []


async def test_messages_beyond_the_permits_are_paid_first_on_the_next_connection() -> None:
    async with staged() as stage:
        stage.consumer.flow(1)
        stage.send(delivery(1, b"a", b"b", b"c"))
        await until_async(lambda: stage.consumer.permits == -2)
        stage.broker.close_connections()
        await until_async(lambda: stage.taking.resets >= 1)
        await until_async(lambda: stage.consumer.connected)
        stage.consumer.flow(1)
        stage.consumer.flow(4)
        await until_async(lambda: len(stage.flows) == 2)
        assert stage.flows == [1, 3]
        assert stage.consumer.permits == 3


async def test_acknowledgements_of_a_moment_are_one_command_and_flush_waits_for_its_answer() -> None:
    async with staged() as stage:
        stage.consumer.acknowledge([(1, 1), (1, 2)])
        stage.consumer.acknowledge([(1, 3)])
        stage.consumer.acknowledge_part((1, 4), 0b101)
        await stage.consumer.flush()
        assert stage.acks == [[(1, []), (2, []), (3, []), (4, [0b101])]]
        await stage.consumer.flush()  # nothing to wait for


async def test_an_acknowledgement_that_is_refused_fails_the_flush() -> None:
    async with staged() as stage:

        def refused(frame: Frame) -> list[BaseCommand]:
            (answer,) = answering(frame)
            answer.ack_response.error = 1  # type: ignore[assignment]
            answer.ack_response.message = "no metadata"
            return [answer]

        stage.broker.script[BaseCommand.ACK] = refused
        stage.consumer.acknowledge([(1, 1)])
        with pytest.raises(errors.BrokerMetadataError, match="no metadata"):
            await stage.consumer.flush()


async def test_what_was_sent_before_everything_was_asked_for_again_is_dropped() -> None:
    async with staged() as stage:
        stage.consumer.flow(10)
        stage.consumer.redeliver_all()
        old, new = delivery(1, b"a"), delivery(1, b"a")
        old.command.message.consumer_epoch = 0
        new.command.message.consumer_epoch = 1
        stage.send(old, new)
        await until_async(lambda: len(stage.taking.entries) == 1)
        await until_async(lambda: stage.flows == [10, 1])
        (asked,) = stage.heard(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
        assert asked.command.redeliver_unacknowledged_messages.consumer_epoch == 1


async def test_what_comes_while_a_seek_is_on_its_way_is_of_before() -> None:
    async with staged() as stage:
        stage.consumer.flow(10)
        asked = asyncio.Event()

        def seeking(frame: Frame) -> list[BaseCommand]:
            stage.send(delivery(1, b"before"))
            asked.set()
            return succeeding(frame)

        stage.broker.script[BaseCommand.SEEK] = seeking
        await stage.consumer.seek(MessageId(1, 5))
        assert asked.is_set()
        assert stage.taking.resets == 1
        stage.send(delivery(5, b"itself"), delivery(6, b"after"))
        await until_async(lambda: len(stage.taking.entries) == 1)
        assert stage.taking.entries[0].entry_id == 6
        await stage.consumer.flush()
        assert stage.acks == [[(5, [])]]  # nobody gets it: it would stay in the backlog
        await until_async(lambda: sum(stage.flows) == 12)


async def test_a_seek_that_fails_changes_nothing() -> None:
    async with staged() as stage:
        stage.broker.script[BaseCommand.SEEK] = lambda frame: [error(frame.command.seek.request_id, 22)]
        stage.consumer.flow(10)
        with pytest.raises(errors.NotAllowedError):
            await stage.consumer.seek(MessageId(1, 5))
        stage.send(delivery(1, b"a"))
        await until_async(lambda: len(stage.taking.entries) == 1)
        assert stage.taking.resets == 0


async def test_one_that_is_not_durable_goes_on_after_what_came() -> None:
    async with staged(start=EARLIEST, durable=False) as stage:
        stage.consumer.flow(10)
        stage.send(delivery(1, b"a"), delivery(2, b"b"))
        await until_async(lambda: len(stage.taking.entries) == 2)
        stage.broker.close_connections()
        await until_async(lambda: len(stage.heard(BaseCommand.SUBSCRIBE)) == 2)
        start = stage.heard(BaseCommand.SUBSCRIBE)[1].command.subscribe.start_message_id
        assert (start.ledgerId, start.entryId) == (1, 2)
        await until_async(lambda: stage.consumer.connected)
        stage.send(delivery(2, b"b"), delivery(3, b"c"))  # brokers begin with the entry itself
        await until_async(lambda: len(stage.taking.entries) == 3)
        assert [one.entry_id for one in stage.taking.entries] == [1, 2, 3]
        assert stage.taking.resets == 0


async def test_an_end_that_reconnecting_cannot_help_is_told_once() -> None:
    async with staged() as stage:
        stage.broker.script[BaseCommand.SUBSCRIBE] = lambda frame: [
            error(frame.command.subscribe.request_id, 11, "it was deleted")
        ]
        stage.consumer.acknowledge([(1, 1)])
        stage.broker.close_connections()
        await until_async(lambda: len(stage.taking.errors) == 1)
        assert isinstance(stage.taking.errors[0], errors.TopicNotFound)
        with pytest.raises(errors.TopicNotFound):
            await stage.consumer.flush()


async def test_changes_and_ends_come_after_the_entries_before_them() -> None:
    async with staged(ConsumerType.Failover) as stage:
        order: list[str] = []
        stage.taking.arrived = lambda entries: order.append("entries")  # type: ignore[method-assign]
        stage.taking.active = lambda active: order.append(f"active {active}")  # type: ignore[method-assign]
        stage.taking.end_reached = lambda: order.append("end")  # type: ignore[method-assign]
        stage.send(delivery(1, b"a"))
        change = BaseCommand(type=BaseCommand.ACTIVE_CONSUMER_CHANGE)
        change.active_consumer_change.consumer_id = stage.consumer._id
        change.active_consumer_change.is_active = True
        end = BaseCommand(type=BaseCommand.REACHED_END_OF_TOPIC)
        end.reached_end_of_topic.consumer_id = stage.consumer._id
        stage.broker.say(change, end)
        await until_async(lambda: len(order) == 3)
        assert order == ["entries", "active True", "end"]


def test_what_brokers_know_of_an_entry_is_read() -> None:
    frame = delivery(3, b"a", b"b", version=7, redeliveries=2)
    data = b"".join(encode_with_entry(frame.command, frame.entry, broker_part(41, 5)))
    found = read_arrived(decode(data))
    assert (found.place, found.index, found.count, found.redeliveries) == ((1, 3), 41, 2, 2)
    assert found.schema_version == 7
    assert found.data == frame.entry
    assert read_arrived(frame).index is None


@pytest.mark.parametrize("data", [b"", b"\x0e\x01", b"\x0e\x01aaaa", b"\x00\x00\x00\xffxyz", b"\xff" * 40])
def test_an_entry_that_cannot_be_understood_is_one_message(data: bytes) -> None:
    found = read_arrived(delivery(3, data=data))
    assert (found.count, found.mask, found.data) == (1, 1, data)


@pytest.mark.parametrize(
    ("at", "inclusive", "durable", "wanted"),
    [
        (None, False, True, [7, 7, 7]),
        (EARLIEST, False, False, [7, 7, 7]),
        (LATEST, False, False, [7, 7, 7]),
        (MessageId(1, 2), False, False, [0, 0, 7]),
        (MessageId(1, 2), True, False, [0, 7, 7]),
        (MessageId(1, 2), False, True, [7, 0, 7]),  # of one that is durable, the cursor decides
        (MessageId(1, 2, -1, 0, 3), False, False, [0, 6, 7]),
        (MessageId(1, 2, -1, 1, 3), True, False, [0, 6, 7]),
        (MessageId(1, 2, -1, 2, 3), False, True, [7, 0, 7]),
    ],
)
def test_where_it_starts(at: MessageId | None, inclusive: bool, durable: bool, wanted: list[int]) -> None:
    start = Start(at, inclusive=inclusive, durable=durable)
    entries = [read_arrived(delivery(number, b"a", b"b", b"c")) for number in (1, 2, 3)]
    assert [start.wanted(one) for one in entries] == wanted


async def test_permits_are_taken_back_by_a_new_consumer_of_the_broker() -> None:
    async with staged() as stage:
        stage.consumer.flow(100)
        before = delivery(1, b"a")
        before.command.message.consumer_id = stage.consumer._id
        stage.consumer.restart()
        assert (stage.consumer.permits, stage.taking.resets) == (0, 1)
        await until_async(lambda: stage.consumer.connected)
        assert len(stage.heard(BaseCommand.CLOSE_CONSUMER)) == 1
        link = stage.consumer._link
        assert link is not None
        link._dispatch(before)  # it was on its way
        stage.send(delivery(2, b"b"))
        await until_async(lambda: len(stage.taking.entries) == 1)
        assert stage.taking.entries[0].entry_id == 2
        assert stage.flows == [100]


async def test_what_has_no_answer_is_not_sent_again_after_the_log_was_truncated() -> None:
    async with staged() as stage:
        stage.broker.script[BaseCommand.ACK] = lambda frame: []
        stage.consumer.flow(10)
        stage.consumer.acknowledge([(3, 1)])
        flushing = stage.consumer._context.tasks.spawn(stage.consumer.flush(), "flush")
        await until_async(lambda: len(stage.acks) == 1)
        assert stage.consumer.start_over()
        assert (stage.consumer.permits, stage.taking.resets) == (0, 1)
        with pytest.raises(errors.NotConnected):
            await flushing
        await until_async(lambda: stage.consumer.connected)
        stage.broker.script[BaseCommand.ACK] = answering
        assert not stage.consumer.start_over()
        await until_async(lambda: stage.consumer.connected)
        stage.consumer.acknowledge([(3, 2)])
        await stage.consumer.flush()
        assert [entry for group in stage.acks for entry, _ in group] == [1, 2]


@pytest.mark.parametrize("when", ["lookup", "answer"])
async def test_the_broker_is_looked_up_again_if_it_changes_while_the_consumer_connects(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged() as stage:
        consumer, lookup = stage.consumer, stage.consumer._context.lookup
        find, looked_up = lookup.link, []

        async def link(topic: str) -> Link:
            found = await find(topic)
            looked_up.append(topic)
            if when == "lookup" and len(looked_up) == 1:
                consumer.reconnect()
            return found

        monkeypatch.setattr(lookup, "link", link)
        present = consumer.connection
        assert present is not None
        ask = present.ask

        async def asked(command: Any, timeout_s: float) -> Any:
            found = await ask(command, timeout_s)
            if when == "answer" and len(looked_up) == 1 and isinstance(command, CommandSubscribe):
                asyncio.get_running_loop().call_soon(consumer.reconnect)  # before the answer is looked at
            return found

        monkeypatch.setattr(present, "ask", asked)
        stage.broker.frames.clear()
        consumer.flow(5)
        consumer.reconnect()
        await until_async(lambda: consumer.connected)
        stage.send(delivery(1, b"a"))
        await until_async(lambda: len(stage.taking.entries) == 1)
        assert len(looked_up) == 2
        left = 0 if when == "lookup" else 1
        assert len(stage.heard(BaseCommand.SUBSCRIBE)) == 1 + left
        assert len(stage.heard(BaseCommand.CLOSE_CONSUMER)) == 1 + left  # the first is of before
        await until_async(lambda: stage.flows == [5, 5])


async def test_a_late_refusal_of_a_broker_that_was_left_does_not_count() -> None:
    async with staged() as stage:
        stage.broker.script[BaseCommand.ACK] = lambda frame: []
        stage.consumer.acknowledge([(3, 1)])
        flushing = stage.consumer._context.tasks.spawn(stage.consumer.flush(), "flush")
        await until_async(lambda: len(stage.acks) == 1)
        stage.consumer.reconnect()
        await until_async(lambda: len(stage.acks) == 2)  # over the same connection
        assert stage.taking.resets == 1
        first, second = stage.heard(BaseCommand.ACK)
        (refusal,), (answer,) = answering(first), answering(second)
        refusal.ack_response.error = ServerError.ServiceNotReady
        refusal.ack_response.message = "another process owns it"
        write = stage.broker._protocols[-1].transport.write
        write(encode(refusal))
        await asyncio.sleep(0)
        write(encode(answer))
        await flushing
