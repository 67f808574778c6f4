"""Readers for asyncio: consumers that keep no subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .consumer import Consumer
from .receiver import Receiver


class Reader:
    """Reads a topic from a position of its own, made by `Client.create_reader`."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def topic(self) -> str:
        """The topic."""
        return self._consumer.topic()

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._consumer.is_connected()

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Wait for the next message.

        Args:
            timeout_millis: How long to wait; for ever when it is None.

        Raises:
            Timeout: There was none in time.
        """
        message = await self._consumer.receive(timeout_millis)
        self._done(message)
        return message

    async def has_message_available(self) -> bool:
        """Whether there is a message to be read now."""
        if self._consumer._arrivals:
            return True
        for receiver in self._consumer._receivers.values():
            if await _has_more(receiver):
                return True
        return False

    async def seek(self, messageid: MessageId | int) -> None:
        """Go to after a message, or to the first one published at a time, in ms."""
        await self._consumer.seek(messageid)

    async def close(self) -> None:
        """Leave the topic."""
        await self._consumer.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        message = await self._consumer.__anext__()
        self._done(message)
        return message

    def _done(self, message: Message) -> None:
        """The broker need not remember what was read."""
        receiver = self._consumer._receivers.get(message._topic)
        if receiver is not None and receiver.error is None:
            receiver.acknowledge_up_to(message._id)


async def _has_more(receiver: Receiver) -> bool:
    last, done = await receiver.last_message_id()
    if last.entry_id() < 0:
        return False
    position = receiver.position
    if position is None or position == MessageId.latest or receiver.by_time:
        return done is None or last > done
    if position == MessageId.earliest:
        return True
    if last.batch_index() < 0 or position.batch_index() < 0:  # one of them names a whole entry
        ends = (last.ledger_id(), last.entry_id()), (position.ledger_id(), position.entry_id())
        return ends[0] >= ends[1] if receiver.inclusive else ends[0] > ends[1]
    return last >= position if receiver.inclusive else last > position
