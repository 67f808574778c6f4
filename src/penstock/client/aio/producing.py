"""Making producers."""

from __future__ import annotations

from penstock.client.enums import PartitionsRoutingMode
from penstock.client.errors import InvalidConfiguration, OperationNotSupported
from penstock.client.options import ProducerOptions
from penstock.client.schema import AutoProduceBytesSchema, BytesSchema, Schema
from penstock.client.session.batch import Sending
from penstock.client.session.commands import Publication

from .context import Context
from .outgoing import Outgoing
from .partitions import Partitions
from .producer import Producer
from .subscribing import topic_name


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
        properties=options["properties"] or {},
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


async def _resolved(context: Context, schema: Schema, topic: str) -> Schema:
    """An AutoProduceBytesSchema takes the topic's schema."""
    if not isinstance(schema, AutoProduceBytesSchema) or schema.resolved:
        return schema
    link = await context.link(topic)
    return schema.resolve(await context.schemas.latest(link, topic))
