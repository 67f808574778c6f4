"""A consumer of one topic or partition that takes whole entries, connected again when it has to be.

Permits bound the messages in flight: each costs one. Permits that a connection did not use are given
again on the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec

from penstock.client.aio.link import Link
from penstock.client.aio.lookup import BrokerLookup
from penstock.client.aio.tasks import Reconnecting, Tasks, within
from penstock.client.enums import SHARED_TYPES
from penstock.client.errors import AlreadyClosed, NotConnected, PulsarException, Timeout
from penstock.client.message_id import MessageId as WireId
from penstock.client.session import commands
from penstock.client.session.acks import wire_place
from penstock.client.session.commands import Subscription
from penstock.model.message_id import MessageId
from penstock.model.names import TopicName
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandCloseConsumer,
    CommandGetLastMessageId,
    CommandRedeliverUnacknowledgedMessages,
    CommandSeek,
    CommandUnsubscribe,
)

from .acknowledging import Acknowledging
from .acks import AckSink
from .arrived import Arrived, Place, read_arrived, read_id
from .sink import Sink
from .start import Start

MOVED: Final = "the topic has another broker"


class EntryContext(Protocol):
    """What it uses of a client's `Context`."""

    @property
    def lookup(self) -> BrokerLookup: ...
    @property
    def numbers(self) -> Iterator[int]: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def timeout_s(self) -> float: ...


class EntryConsumer:
    """`start` is the position of a consumer that is not durable: after it, or at it if `inclusive`. A topic that was
    deleted is created again by a consumer that reconnects if it `recreates`.

    One that is not durable loses nothing and repeats nothing when it connects again: it goes on after the last entry
    that arrived, and there is no `reset`.
    """

    def __init__(
        self,
        context: EntryContext,
        how: Subscription,
        start: MessageId | None = None,
        *,
        sink: Sink,
        inclusive: bool = False,
        recreates: bool = True,
    ) -> None:
        self.topic = how.topic
        self.error: PulsarException | None = None
        self.permits = 0  # of messages that may still come; below zero if a batch overdrew them
        self._context = context
        self._how = how
        self._sink = sink
        self._id = next(context.numbers)
        self._start = Start(start, inclusive=inclusive, durable=how.durable)
        # Entries of a non-persistent topic all have the same place.
        self._goes_on = not how.durable and TopicName.parse(how.topic).persistent
        self._recreates = recreates
        self._link: Link | None = None
        self._epoch = 0  # counts requests for redelivery, so that earlier deliveries are recognized
        self._acks = Acknowledging(self._id, how.topic, context.timeout_s)
        self._arrived: list[Arrived] = []
        self._debt = 0  # messages that were sent beyond the permits of this connection
        self._muted = False  # while a seek is on its way, what comes is of before
        self._dropped = 0  # dropped messages: their permits are given again
        self._due = False
        self._loop = asyncio.get_running_loop()
        self._keeping: asyncio.Task[Any] | None = None
        self._asking: asyncio.Task[Any] | None = None  # to subscribe
        self._reconnects = 0  # how often `reconnect` was called
        self._reconnecting = Reconnecting(f"the consumer of {how.topic}", self._connect, self._end)

    # -- coming and going

    async def start(self) -> None:
        """Subscribe. Raises the error that prevents it."""
        await within(self._connect, self._context.timeout_s)
        self._keeping = self._context.tasks.spawn(
            self._reconnecting.run(), f"keep the consumer of {self.topic}"
        )

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def connection(self) -> Link | None:
        return self._link

    async def _connect(self) -> None:
        """Subscribe at the topic's broker, which is looked up again if `reconnect` is called during it."""
        while True:
            asked = self._reconnects
            link = await self._context.lookup.link(self.topic)
            if asked == self._reconnects and await self._subscribe(link):
                break
        self._link = link
        if not self._recreates:
            self._how = msgspec.structs.replace(self._how, create_topic=False)
        self._muted = False
        self._acks.attach(link)
        self._debt = max(0, -self.permits)
        if self.permits > 0:
            link.write([commands.flow(self._id, self.permits)])

    async def _subscribe(self, link: Link) -> bool:
        """Returns False, and has left, if `reconnect` was called during it."""
        asked = self._reconnects
        link.consumers[self._id] = self
        epoch = None if self._how.type in SHARED_TYPES else self._epoch
        try:
            command = commands.subscribe(self._id, self._how, self._start.wire_id, epoch)
            self._asking = self._loop.create_task(link.ask(command, self._context.timeout_s))
            await self._asking
        except BaseException as error:
            link.consumers.pop(self._id, None)
            if isinstance(error, asyncio.CancelledError | Timeout):  # the broker may have it all the same
                self._close_at(link)
            task = asyncio.current_task()
            if (
                asked != self._reconnects
                and isinstance(error, asyncio.CancelledError)
                and not (task and task.cancelling())
            ):
                return False
            raise
        finally:
            self._asking = None
        if asked != self._reconnects:
            link.consumers.pop(self._id, None)
            self._close_at(link)
            return False
        if link.consumers.get(self._id) is not self:
            raise NotConnected("the connection broke")
        return True

    def _close_at(self, link: Link) -> None:
        """Let a broker close the consumer; entries in flight are dropped."""
        link.write([commands.framed(CommandCloseConsumer(consumer_id=self._id, request_id=0))])
        self._id = self._acks.consumer_id = next(self._context.numbers)

    def lost(self, link: Link, error: PulsarException) -> None:
        if self._link is link:
            self._link = None
            self._acks.detach()
        if not self._how.durable:
            self._hand_on()
        self._forget_arrived()
        self.permits += self._dropped
        self._dropped = 0
        if self._how.durable:
            self._sink.reset()
        if self.error is None:
            self._reconnecting.lost()

    def restart(self) -> None:
        """Take the permits back, which only a new consumer of the broker's can: `reset` follows, unless it is not durable."""
        if self._link is not None:
            self._acks.send()
            self.permits = 0
            self._come_again("its permits were taken back")

    def start_over(self) -> bool:
        """The log was truncated: `restart` without the acknowledgements that have no answer. A flush that waits for it fails. Returns
        whether there were any."""
        dropped = self._acks.drop(NotConnected(f"{self.topic} lost messages, and acknowledgements with them"))
        self.restart()
        return dropped

    def reconnect(self) -> None:
        """Leave the connection, also one that is not complete yet, and look the broker up again."""
        self._reconnects += 1
        if self._asking is not None:
            self._asking.cancel()
        self._come_again(MOVED)

    def _come_again(self, why: str) -> None:
        link = self._link
        if link is None:
            return
        link.consumers.pop(self._id, None)
        self._close_at(link)
        self.lost(link, NotConnected(why))

    def _end(self, error: PulsarException) -> None:
        self.error = error
        self._sink.ended(error)  # it may take the acknowledgements
        self._acks.drop(error)

    async def close(self) -> None:
        """Send the acknowledgements, then leave."""
        if self.error is not None:
            return
        self._acks.send()
        link, self.error = self._leave(), AlreadyClosed("the consumer is closed")
        try:
            if link is not None and not link.closed:
                await link.ask(CommandCloseConsumer(consumer_id=self._id), self._context.timeout_s)
        finally:
            self._acks.drop(self.error)

    def _leave(self) -> Link | None:
        """Receive nothing more, and do not reconnect; returns the connection that it had."""
        link, self._link = self._link, None
        if link is not None:
            link.consumers.pop(self._id, None)
        if self._keeping is not None:
            self._keeping.cancel()
        return link

    async def _ask(self, command: Any) -> Any:
        if self.error is not None:
            raise self.error
        link = self._link
        if link is None:
            raise NotConnected(f"there is no connection to the broker of {self.topic} now")
        self._acks.send()
        command.consumer_id = self._id
        return await link.ask(command, self._context.timeout_s)

    # -- in

    @property
    def due(self) -> int:
        """Permitted messages that the sink has not got yet, including those that came in this turn of the loop."""
        came = sum(one.mask.bit_count() for one in self._arrived) if self._arrived else 0
        return self.permits + self._dropped + came

    def flow(self, permits: int) -> None:
        """Let the broker send so many messages more."""
        self.permits += permits
        paid = min(self._debt, permits)
        self._debt -= paid
        if self._link is not None and permits > paid:
            self._link.write([commands.flow(self._id, permits - paid)])

    def received(self, frame: Frame) -> None:
        kind = frame.type
        if kind == BaseCommand.MESSAGE:
            self._receive(frame)
        elif kind == BaseCommand.ACTIVE_CONSUMER_CHANGE:
            self._hand_on()
            self._sink.active(frame.command.active_consumer_change.is_active)
        elif kind == BaseCommand.REACHED_END_OF_TOPIC:
            self._hand_on()
            self._sink.end_reached()

    def _receive(self, frame: Frame) -> None:
        command = frame.command.message
        entry = read_arrived(frame)
        cost = entry.mask.bit_count()
        self.permits -= cost
        if self._muted or (command.HasField("consumer_epoch") and command.consumer_epoch < self._epoch):
            self._drop(cost)
            return
        wanted = self._start.wanted(entry)
        if wanted != entry.mask:
            self._drop(cost - wanted.bit_count())
            if not wanted:
                return
            entry = msgspec.structs.replace(entry, mask=wanted)
        self._arrived.append(entry)
        self._soon()

    def _forget_arrived(self) -> None:
        """Entries that came and were not handed on will be redelivered."""
        arrived, self._arrived = self._arrived, []
        self._drop(sum(one.mask.bit_count() for one in arrived))

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._soon()

    def _soon(self) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._hand_on)

    def _hand_on(self) -> None:
        """Once for all that came in this turn of the loop."""
        self._due = False
        if self._dropped and not self._muted and self._link is not None:
            dropped, self._dropped = self._dropped, 0
            self.flow(dropped)
        if not self._arrived:
            return
        arrived, self._arrived = self._arrived, []
        if self._goes_on:
            self._start = self._start.after(arrived[-1])
        self._sink.arrived(arrived)

    # -- answers

    def acknowledge(self, places: Iterable[Place]) -> None:
        """Whole entries are done; the broker has them after `flush`, or soon."""
        self._acks.add(places)

    def acknowledge_part(self, place: Place, open_bits: int) -> None:
        """All messages of an entry but those of `open_bits` are done, for clusters that keep that."""
        self._acks.add_part(place, open_bits)

    def acknowledge_up_to(self, place: Place, open_bits: int = 0) -> None:
        """All entries before `place` are done, and that one but for the messages of `open_bits`."""
        self._acks.add_up_to(place, open_bits)

    async def reply(
        self, message_id: MessageId, content: bytes, *, is_error: bool, schema_version: int | None
    ) -> str:
        """Acknowledge one message with the reply to it, durably (PIP-371); returns what became of the reply. Raises the broker's
        error: it knows no replies, or the message is not out here."""
        command = CommandAck(
            ack_type=CommandAck.Individual,
            message_id=[commands.wire_id(WireId._of(message_id))],
            reply_payload=content,
            reply_is_error=is_error,
            reply_schema_version=schema_version,
        )
        answer = await self._ask(command)
        return str(answer.message)

    async def flush(self) -> None:
        """Wait until the broker has answered all acknowledgements. Raises what it says, and Timeout."""
        if self.error is not None:
            raise self.error
        await self._acks.flush()

    def give_unstored_to(self, to: AckSink) -> bool:
        """Acknowledge over another connection, in place of this one, what has no answer; returns True."""
        self._acks.give_to(to)
        return True

    def redeliver(self, places: Iterable[Place]) -> None:
        """Ask for entries again (Shared and Key_Shared); they come with separate permits."""
        self._acks.send()
        if self._link is not None:
            self._link.write([commands.redeliver(self._id, [wire_place(place) for place in places])])

    def redeliver_all(self) -> None:
        """Ask for all that is not acknowledged again, in order."""
        self._acks.send()
        self._forget_arrived()
        command = CommandRedeliverUnacknowledgedMessages(consumer_id=self._id)
        if self._how.type not in SHARED_TYPES:
            self._epoch += 1
            command.consumer_epoch = self._epoch
        if self._link is not None:
            self._link.write([commands.framed(command)])

    # -- the subscription

    async def seek(self, to: MessageId | int, *, inclusive: bool = False) -> None:
        """Go on after a message (or with it), or with the first one published at or after a time (ms)."""
        await self.flush()
        command = CommandSeek()
        if isinstance(to, MessageId):
            command.message_id.CopyFrom(commands.wire_id(WireId._of(to)))
        else:
            command.message_publish_time = to
        link, before = self._link, self._start
        self._start = before.sought(to, inclusive=inclusive)  # the consumer may be back before the answer is
        self._muted = True
        try:
            await self._ask(command)
        except BaseException:
            self._muted = False
            self._start = before
            self._soon()
            raise
        if isinstance(to, MessageId) and self._start.passes_over:
            self.acknowledge([(to.ledger, to.entry)])  # the broker begins with it
        if link is self._link:  # the broker kept the connection
            self._muted = False
            self._forget_arrived()
            self._sink.reset()

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The last message of the topic, and the position of the subscription, if the broker says it."""
        answer = await self._ask(CommandGetLastMessageId())
        last = read_id(answer.last_message_id)
        done = answer.HasField("consumer_mark_delete_position")
        return last, read_id(answer.consumer_mark_delete_position) if done else None

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription, and close the consumer. Raises the broker's error: without `force` it refuses while
        there are other consumers, and the consumer stays open."""
        await self._ask(CommandUnsubscribe(force=force))
        self._leave()
        self.error = AlreadyClosed("the subscription was deleted")
        self._acks.drop(self.error)
