"""Readers for asyncio: consumers that keep no subscription."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .incoming import Incoming
from .receiver import Receiver


class Reader:
    """Reads a topic from a position of its own, made by `Client.create_reader`."""

    def __init__(self, incoming: Incoming) -> None:
        self.incoming = incoming  # the blocking client reads through it, too

    def topic(self) -> str:
        """The topic."""
        return self.incoming.topic

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self.incoming.connected

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Wait for the next message.

        Args:
            timeout_millis: How long to wait; for ever when it is None.

        Raises:
            Timeout: There was none in time.
        """
        return await self.incoming.receive(None if timeout_millis is None else timeout_millis / 1000)

    async def has_message_available(self) -> bool:
        """Whether there is a message to be read now."""
        incoming = self.incoming
        if incoming.arrivals:
            return True
        incoming.settle()
        for receiver in incoming.receivers.values():
            if await _has_more(receiver):
                return True
        return False

    async def seek(self, messageid: MessageId | int) -> None:
        """Go to after a message, or to the first one published at a time, in ms."""
        await self.incoming.seek(messageid)

    async def close(self) -> None:
        """Leave the topic."""
        await self.incoming.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.incoming.receive(None)
        except AlreadyClosed:
            raise StopAsyncIteration from None


async def _has_more(receiver: Receiver) -> bool:
    """Whether the topic has a message after the last one that was taken."""
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
