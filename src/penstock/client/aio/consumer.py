"""Consumers for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from penstock.client.enums import ConsumerType
from penstock.client.errors import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    OperationNotSupported,
    PulsarException,
    Timeout,
)
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.policies import ConsumerBatchReceivePolicy
from penstock.client.session import commands

from .arrivals import Arrivals
from .dead_letters import DeadLetters
from .receiver import Receiver
from .tasks import log

BATCH_RECEIVE = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)  # as in Pulsar's clients


class Consumer:
    """Receives from one topic or several, made by `Client.subscribe`."""

    def __init__(
        self,
        topic: str,
        subscription: str,
        name: str,
        kind: ConsumerType,
        *,
        queue_size: int,
        batch_policy: ConsumerBatchReceivePolicy | None = None,
    ) -> None:
        self._topic = topic
        self._subscription = subscription
        self._name = name
        self._kind = kind
        self._queue_size = queue_size
        self._batch_policy = batch_policy or BATCH_RECEIVE
        self._arrivals = Arrivals()
        self._unsettled: deque[Message] = deque()  # what it took, to be accounted for
        self._receivers: dict[str, Receiver] = {}
        self._dead_letters: DeadLetters | None = None
        self._error: PulsarException | None = None
        self._jobs: list[asyncio.Task[Any]] = []

    def topic(self) -> str:
        """The topic, or the several topics or the pattern by commas."""
        return self._topic

    def subscription_name(self) -> str:
        """The subscription's name."""
        return self._subscription

    def consumer_name(self) -> str:
        """The consumer's name."""
        return self._name

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._error is None and all(r.connected for r in self._receivers.values())

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Wait for a message.

        Args:
            timeout_millis: How long to wait; for ever when it is None.

        Raises:
            Timeout: There was none in time.
        """
        while (message := self._arrivals.take()) is None:
            await self._wait(None if timeout_millis is None else timeout_millis / 1000)
        self._taken(message, time.time())
        return message

    async def batch_receive(self) -> list[Message]:
        """Wait for as many messages as the batch receive policy says; fewer, or none, when its time is over."""
        policy, loop = self._batch_policy, asyncio.get_running_loop()
        until = loop.time() + policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
        messages: list[Message] = []
        size = 0
        while not 0 < policy.max_num_message <= len(messages) and not 0 < policy.max_num_bytes <= size:
            left = None if until is None else until - loop.time()
            message = self._arrivals.take()
            if message is None:
                if left is not None and left <= 0:
                    break
                try:
                    await self._wait(left)
                except Timeout:
                    break
                continue
            self._taken(message, time.time())
            messages.append(message)
            size += len(message.data())
        return messages

    async def acknowledge(
        self, message: Message | MessageId, reply: bytes | None = None, is_error: bool = False
    ) -> None:
        """Acknowledge a message: it will not be delivered again.

        Args:
            message: The message or its id.
            reply: What to reply to a request (PIP-371).
            is_error: Whether the reply tells of an error.

        Raises:
            OperationNotSupported: The broker does not know replies, or the id's topic is not known.
        """
        self._acknowledge(message, reply, is_error)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it.

        Raises:
            CumulativeAcknowledgementNotAllowedError: The subscription is Shared or KeyShared.
        """
        self._acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Let a message be delivered again after `negative_ack_redelivery_delay_ms`."""
        self._negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Let every message that is not acknowledged be delivered again, now."""
        for receiver in self._receivers.values():
            receiver.redeliver_all()

    async def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription to after a message, or to the first one published at a time, in ms.

        An id moves the topic it belongs to; earliest, latest and times move all topics.
        """
        everywhere = isinstance(messageid, int) or messageid in (MessageId.earliest, MessageId.latest)
        if everywhere:
            await asyncio.gather(*(r.seek(messageid) for r in self._receivers.values()))
        elif isinstance(messageid, MessageId):
            await self._receiver_of(messageid).seek(messageid)
        else:
            raise ValueError(f"seek takes a MessageId or a time in ms, not {type(messageid).__name__}")

    async def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message. Raises OperationNotSupported with several topics."""
        if len(self._receivers) != 1:
            raise OperationNotSupported("several topics have no one last message")
        (receiver,) = self._receivers.values()
        return (await receiver.last_message_id())[0]

    async def unsubscribe(self, force: bool = False) -> None:
        """Delete the subscription, then close.

        Args:
            force: Although other consumers use it.
        """
        for receiver in list(self._receivers.values()):
            await receiver.ask(
                lambda number, consumer_id: commands.unsubscribe(number, consumer_id, force=force)
            )
        await self.close()

    async def close(self) -> None:
        """Leave; what was not acknowledged goes to other consumers."""
        if isinstance(self._error, AlreadyClosed):
            return
        self._error = AlreadyClosed("the consumer is closed")
        for job in self._jobs:
            if job is not asyncio.current_task():
                job.cancel()
        self._arrivals.wake()
        await asyncio.gather(*(receiver.close() for receiver in self._receivers.values()))
        self._arrivals.clear()
        if self._dead_letters is not None:
            await self._dead_letters.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    # -- what needs no waiting, for the blocking driver, too

    def _acknowledge(self, message: Message | MessageId, reply: bytes | None, is_error: bool) -> None:
        message_id = message._id if isinstance(message, Message) else message
        receiver = self._receiver_of(message_id)
        if reply is None:
            receiver.acknowledge(message_id)
            return
        to = message.producer_name() if isinstance(message, Message) else ""
        receiver.reply(message_id, to, reply, is_error=is_error)

    def _acknowledge_cumulative(self, message: Message | MessageId) -> None:
        if self._kind in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"a {self._kind.name} subscription has no order to acknowledge up to"
            )
        message_id = message._id if isinstance(message, Message) else message
        self._receiver_of(message_id).acknowledge_up_to(message_id)

    def _negative_acknowledge(self, message: Message | MessageId) -> None:
        message_id = message._id if isinstance(message, Message) else message
        self._receiver_of(message_id).refuse(message_id)

    def _taken(self, message: Message, now: float) -> None:
        receiver = self._receivers.get(message._topic)
        if receiver is not None:
            receiver.taken(message, now)

    def _settle(self) -> None:
        """Account for what the blocking driver took."""
        now = time.time()
        while self._unsettled:
            self._taken(self._unsettled.popleft(), now)

    def _receiver_of(self, message_id: MessageId) -> Receiver:
        receivers = self._receivers
        found = receivers.get(message_id.topic_name())
        if found is not None:
            return found
        fitting = list(receivers.values())
        if len(fitting) > 1:
            fitting = [r for r in fitting if r.inbox.partition == message_id.partition()]
        if len(fitting) != 1:
            raise OperationNotSupported(
                "the message id does not say which of the topics it belongs to: use the message, or "
                "MessageId.deserialize(data, topic)"
            )
        return fitting[0]

    # -- the receivers' side

    def arrived(self, receiver: Receiver, messages: list[Message]) -> None:
        self._arrivals.put(messages)

    def forget(self, receiver: Receiver) -> int:
        self._settle()
        return self._arrivals.drop(receiver.topic)

    async def bury(self, receiver: Receiver, messages: list[Message]) -> None:
        assert self._dead_letters is not None
        for message in messages:
            try:
                await self._dead_letters.bury(receiver.topic, message)
                receiver.acknowledge(message._id)
            except PulsarException as error:
                log.warning("%r could not become a dead letter: %s", message, error)
                receiver.refuse(message._id)

    def ended(self, receiver: Receiver, error: PulsarException) -> None:
        if self._error is None and len(self._receivers) == 1:
            self._error = error
            self._arrivals.wake()

    def wants(self) -> int:
        return self._arrivals.waiting

    # -- waiting

    async def _wait(self, timeout_s: float | None) -> None:
        self._check()
        if self._queue_size == 0:
            for receiver in self._receivers.values():
                receiver.ask_for(1)
        await self._arrivals.wait(timeout_s)
        if not self._arrivals:
            self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
