"""Making producers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.client.enums import (
    BatchingType,
    CompressionType,
    PartitionsRoutingMode,
    ProducerAccessMode,
)
from penstock.client.errors import InvalidConfiguration, OperationNotSupported
from penstock.client.interceptor import ProducerInterceptor
from penstock.client.options import MessageRouter
from penstock.client.schema import AutoProduceBytesSchema, BytesSchema, Schema
from penstock.client.session.batch import Sending
from penstock.client.session.commands import Publication

from .context import Context
from .partitions import Partitions
from .producer import Producer
from .subscribing import topic_name


async def open_producer(
    context: Context,
    topic: str,
    producer_name: str | None,
    schema: Schema | None,
    *,
    initial_sequence_id: int | None = None,
    send_timeout_millis: int = 30_000,
    compression_type: CompressionType = CompressionType.NONE,
    max_pending_messages: int = 1000,
    max_pending_messages_across_partitions: int = 50_000,
    block_if_queue_full: bool = False,
    batching_enabled: bool = True,
    batching_max_messages: int = 1000,
    batching_max_allowed_size_in_bytes: int = 128 * 1024,
    batching_max_publish_delay_ms: int = 10,
    chunking_enabled: bool = False,
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
    lazy_start_partitioned_producers: bool = False,
    properties: dict[str, str] | None = None,
    batching_type: BatchingType = BatchingType.Default,
    encryption_key: str | None = None,
    crypto_key_reader: Any = None,
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
    message_router: MessageRouter | None = None,
    multi_schema: bool = True,
    interceptors: Sequence[ProducerInterceptor] = (),
    initial_subscription_name: str | None = None,
) -> Producer:
    """A producer of a topic or of all its partitions; `options.ProducerOptions` describes the arguments."""
    if encryption_key is not None or crypto_key_reader is not None:
        raise OperationNotSupported("this client does not encrypt messages")
    name = topic_name(topic)
    if message_routing_mode is PartitionsRoutingMode.CustomPartition and message_router is None:
        raise InvalidConfiguration("PartitionsRoutingMode.CustomPartition needs a message_router")
    count = 0 if name.partition >= 0 else await context.lookup.partitions(str(name))
    schema = await _resolved(context, schema or BytesSchema(), str(name))
    how = Publication(
        topic=str(name),
        name=producer_name,
        schema=schema.schema_info() if schema.registered else None,
        access_mode=access_mode,
        properties=properties or {},
        initial_subscription=initial_subscription_name,
    )
    sending = Sending(
        batching=batching_enabled,
        batch_messages_max=batching_max_messages,
        batch_bytes_max=batching_max_allowed_size_in_bytes,
        batch_delay_s=batching_max_publish_delay_ms / 1000,
        batching_type=batching_type,
        compression=compression_type,
        chunking=chunking_enabled,
        timeout_s=send_timeout_millis / 1000,
        initial_sequence_id=initial_sequence_id,
    )
    partitions = Partitions(
        context,
        how,
        sending,
        schema,
        message_routing_mode,
        message_router,
        lazy=lazy_start_partitioned_producers,
    )
    await partitions.open(count)
    pending = max_pending_messages or 2**31
    return Producer(
        partitions,
        schema,
        max_pending=min(pending * max(1, count), max(pending, max_pending_messages_across_partitions)),
        block_if_queue_full=block_if_queue_full,
        interceptors=interceptors,
        multi_schema=multi_schema,
    )


async def _resolved(context: Context, schema: Schema, topic: str) -> Schema:
    """An AutoProduceBytesSchema takes the topic's schema."""
    if not isinstance(schema, AutoProduceBytesSchema) or schema.resolved:
        return schema
    link = await context.link(topic)
    return schema.resolve(await context.schemas.latest(link, topic))
