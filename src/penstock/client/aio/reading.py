"""Making readers."""

from __future__ import annotations

import secrets
from typing import Final

from penstock.client.enums import ConsumerType
from penstock.client.message_id import MessageId
from penstock.client.options import ReaderOptions
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.redelivery import Receiving

from .context import Context
from .incoming import Incoming
from .reader import Reader
from .subscribing import Subscribing, topic_name

_TOTAL_QUEUE_SIZE: Final = 50_000  # of all partitions together


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
        context,
        incoming,
        how,
        Receiving(queue_size=size, crypto=options["crypto_failure_action"]),
        schema,
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
