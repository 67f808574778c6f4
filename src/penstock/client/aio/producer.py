"""Producers for asyncio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock.client.draft import Draft, MessageBuilder, ReplyResult, draft
from penstock.client.enums import PartitionsRoutingMode
from penstock.client.errors import InvalidConfiguration, OperationNotSupported, ProducerQueueIsFull
from penstock.client.message_id import MessageId
from penstock.client.options import ProducerOptions
from penstock.client.schema import AutoProduceBytesSchema, BytesSchema, Schema
from penstock.client.session.batch import Sending
from penstock.client.session.commands import Publication
from penstock.model.partitioning import PARTITIONER_CLIENT, PARTITIONER_PROPERTY

from .context import Context
from .lookup import topic_name
from .outgoing import REQUEST_TIMEOUT_MS, AnyProducer, Outgoing, Token
from .partitions import Partitions


class AsyncMessageBuilder(MessageBuilder):
    """A message in the making, of an asyncio producer."""

    def __init__(self, outgoing: Outgoing, value: Any, schema: Schema | None) -> None:
        super().__init__(value, schema)
        self._outgoing = outgoing

    async def send(self) -> MessageId:
        """Send it and wait for its id."""
        return await self._outgoing.send(self.draft)

    async def request(self, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Send it as a request and wait for the reply (PIP-371)."""
        return await self._outgoing.request(self.draft, timeout_ms)


class Producer(AnyProducer):
    """Publishes to a topic, made by `Client.create_producer`."""

    def __init__(self, outgoing: Outgoing) -> None:
        super().__init__(outgoing)
        outgoing.producer = self

    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message and wait until the broker has it.

        Args:
            content: The value, as the producer's schema takes it; None is the null value.
            properties: Texts that travel with it.
            partition_key: Its key; messages of one key go to one partition, in order.
            ordering_key: The key that KeyShared subscriptions use in place of the key.
            sequence_id: Its number, for deduplication; by default the producer counts.
            replication_clusters: Which clusters it is replicated to.
            disable_replication: Do not replicate it.
            event_timestamp: When what it describes happened, in ms since the epoch.
            deliver_at: Not to be delivered before this time, in ms since the epoch.
            deliver_after: Not to be delivered before this time has passed.

        Raises:
            PulsarException: The message was not stored; Timeout if that is not known.
        """
        outgoing = self.outgoing
        made = outgoing.draft(
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        return await (outgoing.send_plain(outgoing.encode(content)) if made is None else outgoing.send(made))

    def send_async(self, content: Any, callback: Token = None, **options: Any) -> None:
        """Publish a message; `callback(error, message_id)` is called when the broker has it.

        `options` are those of `send`. This does not wait, not even for room.

        Raises:
            ProducerQueueIsFull: As many messages wait for receipts as `max_pending_messages` allows.
        """
        outgoing = self.outgoing
        if outgoing.partitions.count >= outgoing.max_pending:
            raise ProducerQueueIsFull(f"{outgoing.max_pending} messages wait for receipts")
        made = draft(content, **options) if options else outgoing.draft(content)
        if made is None:
            outgoing.post_plain(outgoing.encode(content), callback)
        else:
            outgoing.post(outgoing.prepare(made), callback)

    def new_message(self, value: Any = None, schema: Schema | None = None) -> AsyncMessageBuilder:
        """Put a message together step by step.

        Args:
            value: What to send.
            schema: The schema of the message (PIP-43); that of the producer if None.
        """
        return AsyncMessageBuilder(self.outgoing, value, schema)

    async def request(self, content: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Publish a request and wait for a consumer's reply (PIP-371).

        Args:
            content: The value, as the producer's schema takes it.
            timeout_ms: How long to wait.

        Raises:
            TimeoutError: No reply came in time.
            OperationNotSupported: The broker does not know requests.
        """
        return await self.outgoing.request(Draft(value=content), timeout_ms)

    async def flush(self) -> None:
        """Wait until the broker has everything sent so far."""
        await self.outgoing.partitions.flush()

    async def close(self) -> None:
        """Send what there is, then leave the topic."""
        await self.outgoing.close()


async def open_producer(
    context: Context,
    topic: str,
    producer_name: str | None,
    schema: Schema | None,
    options: ProducerOptions,
) -> Producer:
    """A producer of a topic or of all its partitions; `options` are complete."""
    if options["encryption_key"] is not None or options["crypto_key_reader"] is not None:
        raise OperationNotSupported("this client does not encrypt messages")
    name = topic_name(topic)
    if (
        options["message_routing_mode"] is PartitionsRoutingMode.CustomPartition
        and options["message_router"] is None
    ):
        raise InvalidConfiguration("PartitionsRoutingMode.CustomPartition needs a message_router")
    count = 0 if name.partition >= 0 else await context.lookup.partitions(str(name))
    schema = await _resolved(context, schema or BytesSchema(), str(name))
    how = Publication(
        topic=str(name),
        name=producer_name,
        schema=schema.schema_info() if schema.registered else None,
        access_mode=options["access_mode"],
        properties=_properties(options),
        initial_subscription=options["initial_subscription_name"],
    )
    sending = Sending(
        batching=options["batching_enabled"],
        batch_messages_max=options["batching_max_messages"],
        batch_bytes_max=options["batching_max_allowed_size_in_bytes"],
        batch_delay_s=options["batching_max_publish_delay_ms"] / 1000,
        batching_type=options["batching_type"],
        compression=options["compression_type"],
        chunking=options["chunking_enabled"],
        timeout_s=options["send_timeout_millis"] / 1000,
        initial_sequence_id=options["initial_sequence_id"],
    )
    partitions = Partitions(
        context,
        how,
        sending,
        schema,
        options["message_routing_mode"],
        options["message_router"],
        lazy=options["lazy_start_partitioned_producers"],
    )
    await partitions.open(count)
    pending = options["max_pending_messages"] or 2**31
    return Producer(
        Outgoing(
            partitions,
            schema,
            max_pending=min(
                pending * max(1, count), max(pending, options["max_pending_messages_across_partitions"])
            ),
            block_if_queue_full=options["block_if_queue_full"],
            interceptors=options["interceptors"],
            multi_schema=options["multi_schema"],
        )
    )


def _properties(options: ProducerOptions) -> dict[str, str]:
    """A producer's properties; one with a message router asks the broker to keep the partitions that it chooses."""
    given = options["properties"] or {}
    if options["message_router"] is None:
        return given
    return {PARTITIONER_PROPERTY: PARTITIONER_CLIENT, **given}


async def _resolved(context: Context, schema: Schema, topic: str) -> Schema:
    """An AutoProduceBytesSchema takes the topic's schema."""
    if not isinstance(schema, AutoProduceBytesSchema) or schema.resolved:
        return schema
    link = await context.lookup.link(topic)
    return schema.resolve(await context.schemas.latest(link, topic))
