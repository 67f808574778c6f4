"""A consumer's half of one topic or partition: an `Inbox`, connected again when it has to be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from penstock.client.errors import AlreadyClosed, NotConnected, OperationNotSupported, PulsarException
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.schema.schema import Schema
from penstock.client.session import commands
from penstock.client.session.commands import Subscription
from penstock.client.session.inbox import Inbox
from penstock.client.session.redelivery import Receiving
from penstock.model.names import TopicName
from penstock.wire.frames import Frame
from penstock.wire.metadata import signed
from penstock.wire.pulsar_pb2 import BaseCommand, CommandCloseConsumer, CommandGetLastMessageId, CommandSeek

from .context import Context
from .link import Link
from .tasks import Reconnecting, log, within

_AGAIN_S = 0.1  # before a schema is asked for again


class Owner(Protocol):
    """The consumer or reader that takes a receiver's messages."""

    def arrived(self, receiver: Receiver, messages: list[Message]) -> None:
        """Messages came."""

    def forget(self, receiver: Receiver) -> int:
        """The messages that were not taken yet are void; returns how many they were."""

    def give_up(self, receiver: Receiver, messages: list[Message]) -> Coroutine[Any, Any, None]:
        """Publish messages to the dead-letter topic, then acknowledge them."""

    def ended(self, receiver: Receiver, error: PulsarException) -> None:
        """No more messages will come."""

    def wants(self) -> int:
        """The number of callers that wait for a message; used without a queue."""


class Receiver:
    """`start` is the position of a consumer that is not durable."""

    def __init__(
        self,
        context: Context,
        owner: Owner,
        how: Subscription,
        receiving: Receiving,
        schema: Schema,
        start: MessageId | None,
        *,
        inclusive: bool,
    ) -> None:
        name = TopicName.parse(how.topic)
        self.topic = how.topic
        self.error: PulsarException | None = None
        self.position = start if how.durable is False else None  # after it; None: the broker knows
        self.inclusive = self._inclusive = inclusive
        self.by_time = False  # only the broker knows the position of a seek by time
        self._context = context
        self._owner = owner
        self._how = how
        self._id = next(context.numbers)
        self._base = str(name.base)
        self.inbox = Inbox(self._id, how.topic, name.partition, receiving, schema)
        self.inbox.start_at(self.position, inclusive=inclusive)
        self._receiving = receiving
        self._link: Link | None = None
        self._fetching = self._settling = False
        self._waits_for: int | None = None  # a schema that is not fetched yet: logged once
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._reconnecting = Reconnecting(f"the consumer of {how.topic}", self._connect, self._end)

    # -- coming and going

    async def start(self) -> None:
        """Subscribe. Raises the error that prevents it."""
        await within(self._connect, self._context.timeout_s)
        self._context.tasks.spawn(self._reconnecting.run(), f"keep the consumer of {self.topic}")

    @property
    def connected(self) -> bool:
        return self.inbox.attached

    async def _connect(self) -> None:
        link = await self._context.lookup.link(self.topic)
        link.consumers[self._id] = self
        start = None if self._how.durable else self.position
        try:
            await link.ask(commands.subscribe(self._id, self._how, start), self._context.timeout_s)
        except BaseException:
            link.consumers.pop(self._id, None)
            raise
        if link.consumers.get(self._id) is not self:
            raise NotConnected("the connection broke")
        self._link = link
        self._owner.forget(self)  # untaken messages are redelivered
        if not self._how.durable:
            self.inbox.start_at(self.position, inclusive=self.inclusive)
        self.inbox.attach()
        if self._receiving.queue_size == 0 and self._owner.wants():
            self.inbox.ask()
        self._settle()

    def lost(self, link: Link, error: PulsarException) -> None:
        if self._link is link:
            self._link = None
        self.inbox.detach()
        self._owner.forget(self)
        if self.error is None:
            self._reconnecting.lost()

    def _end(self, error: PulsarException) -> None:
        self.error = error
        self._owner.ended(self, error)

    async def close(self) -> None:
        """Send pending acknowledgements, then leave."""
        if self.error is not None:
            return
        self.inbox.flush()
        link, self._link = self._link, None
        self.error = AlreadyClosed("the consumer is closed")
        if self._timer is not None:
            self._timer.cancel()
        if link is not None and not link.closed:
            link.write(self.inbox.take())
            link.consumers.pop(self._id, None)
            await link.ask(CommandCloseConsumer(consumer_id=self._id), self._context.timeout_s)

    async def ask(self, command: Any) -> Any:
        """Send the broker a command about this consumer."""
        if self.error is not None:
            raise self.error
        link = self._link
        if link is None:
            raise NotConnected(f"there is no connection to the broker of {self.topic} now")
        self.inbox.flush()
        self._settle()
        command.consumer_id = self._id
        return await link.ask(command, self._context.timeout_s)

    async def seek(self, to: MessageId | int) -> None:
        """Move the subscription."""
        exact = to if isinstance(to, MessageId) else None
        command = CommandSeek()
        if isinstance(to, MessageId):
            command.message_id.CopyFrom(commands.wire_id(to))
        else:
            command.message_publish_time = to
        self.inbox.muted = True
        try:
            await self.ask(command)
        except BaseException:
            self.inbox.muted = False
            raise
        self.by_time = exact is None
        self.inclusive = self._inclusive
        if not self._how.durable:
            self.position = exact or MessageId.earliest
        self.inbox.start_at(exact, inclusive=self._inclusive)
        dropped = self._owner.forget(self)
        self.inbox.sought(dropped)
        if self._receiving.queue_size == 0 and self._owner.wants() and self.inbox.attached:
            self.inbox.ask()
        self._settle()

    async def last_message_id(self) -> tuple[MessageId, MessageId | None]:
        """The last message of the topic, and the position of this subscription, if the broker says it."""
        answer = await self.ask(CommandGetLastMessageId())
        partition = self.inbox.partition
        last = _message_id(answer.last_message_id, partition, self.topic)
        done = answer.consumer_mark_delete_position
        known = answer.HasField("consumer_mark_delete_position")
        return last, _message_id(done, partition, self.topic) if known else None

    # -- the application's side

    def taken(self, message: Message, now: float) -> None:
        """The application has a message."""
        self.inbox.consumed(1)
        self.inbox.handed_out(message._id, now)
        if not self._how.durable:
            self.position, self.inclusive, self.by_time = message._id, False, False
            if self.error is None:  # the broker need not remember the position
                self.inbox.acknowledge_up_to(message._id, now)
        self._settle_soon()

    def acknowledge(self, message_id: MessageId) -> None:
        self._check()
        self.inbox.acknowledge(message_id, time.time())
        self._settle_soon()

    def acknowledge_up_to(self, message_id: MessageId) -> None:
        self._check()
        self.inbox.acknowledge_up_to(message_id, time.time())
        self._settle_soon()

    def reply(self, message_id: MessageId, to: str, content: bytes, *, is_error: bool) -> None:
        self._check()
        if self._link is None:
            raise NotConnected("there is no connection to reply over now")
        if not self._link.session.supports_request_reply:
            raise OperationNotSupported(
                "the broker does not know replies (PIP-371): it does not announce supports_request_reply"
            )
        self.inbox.reply(message_id, to, content, is_error=is_error, now=time.time())
        self._settle()

    def refuse(self, message_id: MessageId) -> None:
        self._check()
        self.inbox.refuse(message_id, time.time())
        self._settle()

    def redeliver_all(self) -> None:
        self.inbox.redeliver_all()
        self._settle()

    def ask_for(self, count: int) -> None:
        self.inbox.ask(count)
        self._settle()

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    # -- the broker's side

    def received(self, frame: Frame) -> None:
        if frame.type == BaseCommand.MESSAGE:
            self.inbox.deliver(frame)
            self._settle()

    def _settle_soon(self) -> None:
        """Once for all that happens in this turn of the loop."""
        if not self._settling:
            self._settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Do what the inbox has to be done."""
        self._settling = False
        inbox = self.inbox
        if inbox.rewound:
            inbox.rewound = False
            inbox.consumed(self._owner.forget(self))
        arrived = inbox.arrived()
        if arrived:
            self._owner.arrived(self, arrived)
        if inbox.wanted is not None and not self._fetching and self._link is not None:
            self._fetching = True
            self._context.tasks.spawn(self._fetch(inbox.wanted), f"fetch a schema of {self.topic}")
        for messages in inbox.dead():
            self._context.tasks.spawn(self._owner.give_up(self, messages), f"dead letters of {self.topic}")
        if self._link is not None:
            out = inbox.take()
            if out:
                self._link.write(out)
        due = inbox.deadline()
        if due is not None and due < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = due
            self._timer = self._loop.call_later(max(0.0, due - time.time()), self._tick)

    def _tick(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if self.error is None:
            self.inbox.tick(time.time())
            self._settle()

    async def _fetch(self, version: int) -> None:
        """Fetch a schema; while that fails for want of a connection, the messages wait."""
        link = self._link
        try:
            if link is not None:
                info = await self._context.schemas.version(link, self._base, version)
                self.inbox.writer(version, info)
                if self._waits_for == version:
                    self._waits_for = None
                    log.info("schema %d of %s was fetched", version, self._base)
        except PulsarException as error:
            if error.can_retry:
                if self._waits_for != version:
                    self._waits_for = version
                    log.warning(
                        "schema %d of %s cannot be fetched, trying again: %s", version, self._base, error
                    )
                await asyncio.sleep(_AGAIN_S)
            else:
                log.warning("schema %d of %s cannot be had: %s", version, self._base, error)
                self.inbox.writer(version, None)
        finally:
            self._fetching = False
        self._settle()


def _message_id(data: Any, partition: int, topic: str) -> MessageId:
    ledger, entry = signed(data.ledgerId), signed(data.entryId)
    index = data.batch_index if data.HasField("batch_index") else -1
    return MessageId(partition, ledger, entry, index, data.batch_size if index >= 0 else 0, topic)
