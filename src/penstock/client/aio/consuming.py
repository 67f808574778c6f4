"""Making consumers."""

from __future__ import annotations

import re
import secrets

from penstock.client.enums import ConsumerType
from penstock.client.message import Message
from penstock.client.options import ConsumerOptions, ProducerOptions, complete
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.redelivery import Receiving
from penstock.model.schema import SchemaInfo, SchemaType

from .consumer import Consumer
from .context import Context
from .dead_letters import DeadLetters
from .incoming import Incoming
from .producer import Producer
from .producing import open_producer
from .subscribing import Subscribing, topic_name


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
    shared = kind in (ConsumerType.Shared, ConsumerType.KeyShared)
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
        graves = _Graves(context)
        incoming.dead_letters = DeadLetters(policy, subscription_name, graves.producer, graves.schema_of)
    subscribing = Subscribing(
        context,
        incoming,
        how,
        receiving,
        schema,
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


class _Graves:
    """What dead letters need of a client."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def producer(self, topic: str, subscription: str | None) -> Producer:
        """A producer of a dead-letter topic."""
        return await open_producer(
            self._context,
            topic,
            None,
            None,
            complete(
                ProducerOptions,
                "create_producer",
                {
                    "batching_enabled": False,
                    "block_if_queue_full": True,
                    "initial_subscription_name": subscription,
                },
            ),
        )

    async def schema_of(self, message: Message) -> SchemaInfo | None:
        """The schema that a message was written with."""
        version = message.int_schema_version()
        if version < 0:
            return None
        topic = message.topic_name()
        link = await self._context.link(topic)
        info = await self._context.schemas.version(link, str(topic_name(topic).base), version)
        return None if info is None or info.type in (SchemaType.BYTES, SchemaType.NONE) else info
