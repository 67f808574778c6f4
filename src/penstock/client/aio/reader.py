"""Readers for asyncio: consumers without a durable subscription."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Final

from penstock.client.enums import ConsumerType
from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.options import ReaderOptions
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.redelivery import Receiving

from .context import Context
from .incoming import AnyReader, Incoming
from .lookup import topic_name
from .receiver import Receiver
from .subscribing import Subscribing

_TOTAL_QUEUE_SIZE: Final = 50_000  # of all partitions together


class Reader(AnyReader):
    """Reads a topic from its own position, created by `Client.create_reader`."""

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Wait for the next message.

        Args:
            timeout_millis: The longest wait; unlimited if None.

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


async def open_reader(
    context: Context,
    topic: str,
    start_message_id: MessageId,
    schema: Schema | None,
    options: ReaderOptions,
) -> Reader:
    """A reader of a topic or of all its partitions; `options` are complete."""
    name = str(topic_name(topic))
    role = options["subscription_role_prefix"]
    prefix = f"{role}-" if role else ""
    subscription = f"{prefix}reader-{secrets.token_hex(5)}"
    size = options["receiver_queue_size"]
    incoming = Incoming(name, subscription, options["reader_name"] or "", ConsumerType.Exclusive, size)
    schema = schema or BytesSchema()
    how = Subscription(
        topic="",
        name=subscription,
        consumer_name=options["reader_name"] or subscription,
        durable=False,
        read_compacted=options["is_read_compacted"],
        schema=schema.schema_info() if schema.registered else None,
    )
    subscribing = Subscribing(
        context=context,
        incoming=incoming,
        how=how,
        receiving=Receiving(queue_size=size, crypto=options["crypto_failure_action"]),
        schema=schema,
        total_queue_size=_TOTAL_QUEUE_SIZE,
        start=start_message_id,
        inclusive=options["start_message_id_inclusive"],
    )
    await subscribing.topics([name])
    if start_message_id == MessageId.latest and options["start_message_id_inclusive"]:
        for receiver in incoming.receivers.values():
            last, _ = await receiver.last_message_id()
            if last.entry_id() >= 0:
                await receiver.seek(last)
    return Reader(incoming)
