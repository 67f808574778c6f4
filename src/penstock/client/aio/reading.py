"""Making readers."""

from __future__ import annotations

import secrets
from typing import Any, Final

from penstock.client.enums import ConsumerCryptoFailureAction, ConsumerType
from penstock.client.message_id import MessageId
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.inbox import Receiving

from .consumer import Consumer
from .context import Context
from .reader import Reader
from .subscribing import Subscribing, topic_name

_TOTAL_QUEUE_SIZE: Final = 50_000  # of all partitions together


async def open_reader(
    context: Context,
    topic: str,
    start_message_id: MessageId,
    schema: Schema | None,
    *,
    receiver_queue_size: int = 1000,
    reader_name: str | None = None,
    subscription_role_prefix: str | None = None,
    is_read_compacted: bool = False,
    crypto_key_reader: Any = None,
    start_message_id_inclusive: bool = False,
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
) -> Reader:
    """A reader of a topic or of all its partitions; `options.ReaderOptions` describes the arguments."""
    name = str(topic_name(topic))
    prefix = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
    subscription = f"{prefix}reader-{secrets.token_hex(5)}"
    consumer = Consumer(
        name, subscription, reader_name or "", ConsumerType.Exclusive, queue_size=receiver_queue_size
    )
    schema = schema or BytesSchema()
    how = Subscription(
        topic="",
        name=subscription,
        consumer_name=reader_name or subscription,
        durable=False,
        read_compacted=is_read_compacted,
        schema=schema.schema_info() if schema.registered else None,
    )
    subscribing = Subscribing(
        context,
        consumer,
        how,
        Receiving(queue_size=receiver_queue_size, crypto=crypto_failure_action),
        schema,
        total_queue_size=_TOTAL_QUEUE_SIZE,
        start=start_message_id,
        inclusive=start_message_id_inclusive,
    )
    await subscribing.topics([name])
    if start_message_id == MessageId.latest and start_message_id_inclusive:
        for receiver in consumer._receivers.values():
            last, _ = await receiver.last_message_id()
            if last.entry_id() >= 0:
                await receiver.seek(last)
    return Reader(consumer)
