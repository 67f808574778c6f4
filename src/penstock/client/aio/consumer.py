"""Consumers for asyncio."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator

from penstock.client.enums import SHARED_TYPES, ConsumerType
from penstock.client.errors import AlreadyClosed, OperationNotSupported, Timeout
from penstock.client.message import Message
from penstock.client.message_id import MessageId
from penstock.client.options import ConsumerOptions
from penstock.client.policies import ConsumerBatchReceivePolicy
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.redelivery import Receiving
from penstock.wire.pulsar_pb2 import CommandUnsubscribe

from .context import Context
from .dead_letters import DeadLetters
from .incoming import AnyConsumer, Incoming
from .lookup import topic_name
from .subscribing import Subscribing

BATCH_RECEIVE = ConsumerBatchReceivePolicy(-1, 10 * 1024 * 1024, 100)  # as in Pulsar's clients


class Consumer(AnyConsumer):
    """Receives from one topic or several, made by `Client.subscribe`."""

    def __init__(self, incoming: Incoming, batch_policy: ConsumerBatchReceivePolicy | None) -> None:
        super().__init__(incoming)
        self._batch_policy = batch_policy or BATCH_RECEIVE

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Wait for a message.

        Args:
            timeout_millis: The longest wait; unlimited if None.

        Raises:
            Timeout: There was none in time.
        """
        return await self.incoming.receive(None if timeout_millis is None else timeout_millis / 1000)

    async def batch_receive(self) -> list[Message]:
        """Wait for as many messages as the batch receive policy says; fewer, or none, after its timeout."""
        policy, loop = self._batch_policy, asyncio.get_running_loop()
        until = loop.time() + policy.timeout_ms / 1000 if policy.timeout_ms > 0 else None
        messages: list[Message] = []
        size = 0
        while not 0 < policy.max_num_message <= len(messages) and not 0 < policy.max_num_bytes <= size:
            left = None if until is None else until - loop.time()
            if left is not None and left <= 0 and not self.incoming.arrivals:
                break
            try:
                message = await self.incoming.receive(left)
            except Timeout:
                break
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
            is_error: Whether the reply is an error.

        Raises:
            OperationNotSupported: The broker does not know replies, or the id's topic is not known.
        """
        self.incoming.acknowledge(message, reply, is_error)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it.

        Raises:
            CumulativeAcknowledgementNotAllowedError: The subscription is Shared or KeyShared.
        """
        self.incoming.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Let a message be delivered again after `negative_ack_redelivery_delay_ms`."""
        self.incoming.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Let every message that is not acknowledged be delivered again, now."""
        self.incoming.redeliver_all()

    async def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription to after a message, or to the first one published at a time, in ms.

        An id moves the topic it belongs to; earliest, latest and times move all topics.
        """
        await self.incoming.seek(messageid)

    async def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message. Raises OperationNotSupported with several topics."""
        if len(self.incoming.receivers) != 1:
            raise OperationNotSupported("several topics have no one last message")
        (receiver,) = self.incoming.receivers.values()
        return (await receiver.last_message_id())[0]

    async def unsubscribe(self, force: bool = False) -> None:
        """Delete the subscription, then close.

        Args:
            force: Although other consumers use it.
        """
        for receiver in list(self.incoming.receivers.values()):
            await receiver.ask(CommandUnsubscribe(force=force))
        await self.close()

    async def close(self) -> None:
        """Leave; unacknowledged messages go to other consumers."""
        await self.incoming.close()

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except AlreadyClosed:
            raise StopAsyncIteration from None


async def open_consumer(
    context: Context,
    topic: str | list[str] | re.Pattern[str],
    subscription_name: str,
    consumer_type: ConsumerType,
    schema: Schema | None,
    options: ConsumerOptions,
) -> Consumer:
    """A consumer of one topic or several; `options` are complete."""
    names = topic if isinstance(topic, list) else [topic.pattern if isinstance(topic, re.Pattern) else topic]
    kind = consumer_type
    shared = kind in SHARED_TYPES
    policy = options["dead_letter_policy"] if shared else None
    if isinstance(topic, str) and not options["is_pattern_topic"]:
        names = [str(topic_name(topic))]
    incoming = Incoming(
        ",".join(names),
        subscription_name,
        options["consumer_name"] or secrets.token_hex(5),
        kind,
        options["receiver_queue_size"],
    )
    schema = schema or BytesSchema()
    how = Subscription(
        topic="",
        name=subscription_name,
        consumer_name=incoming.name,
        type=kind,
        initial_position=options["initial_position"],
        read_compacted=options["is_read_compacted"],
        schema=schema.schema_info() if schema.registered else None,
        properties=options["properties"] or {},
        key_shared=options["key_shared_policy"] if kind is ConsumerType.KeyShared else None,
        replicate_state=options["replicate_subscription_state_enabled"],
    )
    receiving = Receiving(
        type=kind,
        queue_size=incoming.queue_size,
        nack_delay_s=options["negative_ack_redelivery_delay_ms"] / 1000,
        unacked_timeout_s=(options["unacked_messages_timeout_ms"] or 0) / 1000,
        batch_index_ack=options["batch_index_ack_enabled"],
        dead_after=policy.max_redeliver_count if policy is not None else None,
        chunked_max=options["max_pending_chunked_message"],
        ack_oldest_chunked=options["auto_ack_oldest_chunked_message_on_queue_full"],
        crypto=options["crypto_failure_action"],
    )
    if policy is not None:
        incoming.dead_letters = DeadLetters(context, policy, subscription_name)
    subscribing = Subscribing(
        context=context,
        incoming=incoming,
        how=how,
        receiving=receiving,
        schema=schema,
        total_queue_size=options["max_total_receiver_queue_size_across_partitions"],
        inclusive=options["start_message_id_inclusive"],
    )
    if isinstance(topic, re.Pattern) or options["is_pattern_topic"]:
        await subscribing.pattern(
            names[0], options["regex_subscription_mode"], options["pattern_auto_discovery_period"]
        )
    else:
        await subscribing.topics(names)
    return Consumer(incoming, options["batch_receive_policy"])
