"""Making consumers."""

from __future__ import annotations

import re
import secrets
from typing import Any

from penstock.client.enums import (
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    RegexSubscriptionMode,
)
from penstock.client.message import Message
from penstock.client.policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from penstock.client.schema import BytesSchema, Schema
from penstock.client.session.commands import Subscription
from penstock.client.session.inbox import Receiving
from penstock.model.schema import SchemaInfo, SchemaType

from .consumer import Consumer
from .context import Context
from .dead_letters import DeadLetters
from .producer import Producer
from .producing import open_producer
from .subscribing import Subscribing, topic_name


async def open_consumer(
    context: Context,
    topic: str | list[str] | re.Pattern[str],
    subscription_name: str,
    consumer_type: ConsumerType,
    schema: Schema | None,
    *,
    receiver_queue_size: int = 1000,
    max_total_receiver_queue_size_across_partitions: int = 50_000,
    consumer_name: str | None = None,
    unacked_messages_timeout_ms: int | None = None,
    broker_consumer_stats_cache_time_ms: int = 30_000,
    negative_ack_redelivery_delay_ms: int = 60_000,
    is_read_compacted: bool = False,
    properties: dict[str, str] | None = None,
    pattern_auto_discovery_period: int = 60,
    initial_position: InitialPosition = InitialPosition.Latest,
    crypto_key_reader: Any = None,
    replicate_subscription_state_enabled: bool = False,
    max_pending_chunked_message: int = 10,
    auto_ack_oldest_chunked_message_on_queue_full: bool = False,
    start_message_id_inclusive: bool = False,
    batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
    key_shared_policy: ConsumerKeySharedPolicy | None = None,
    batch_index_ack_enabled: bool = False,
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    is_pattern_topic: bool = False,
) -> Consumer:
    """A consumer of one topic or several; `options.ConsumerOptions` describes the arguments."""
    names = topic if isinstance(topic, list) else [topic.pattern if isinstance(topic, re.Pattern) else topic]
    kind = consumer_type
    shared = kind in (ConsumerType.Shared, ConsumerType.KeyShared)
    policy = dead_letter_policy if shared else None
    if isinstance(topic, str) and not is_pattern_topic:
        names = [str(topic_name(topic))]
    consumer = Consumer(
        ",".join(names),
        subscription_name,
        consumer_name or secrets.token_hex(5),
        kind,
        queue_size=receiver_queue_size,
        batch_policy=batch_receive_policy,
    )
    schema = schema or BytesSchema()
    how = Subscription(
        topic="",
        name=subscription_name,
        consumer_name=consumer.consumer_name(),
        type=kind,
        initial_position=initial_position,
        read_compacted=is_read_compacted,
        schema=schema.schema_info() if schema.registered else None,
        properties=properties or {},
        key_shared=key_shared_policy if kind is ConsumerType.KeyShared else None,
        replicate_state=replicate_subscription_state_enabled,
    )
    receiving = Receiving(
        type=kind,
        queue_size=receiver_queue_size,
        nack_delay_s=negative_ack_redelivery_delay_ms / 1000,
        unacked_timeout_s=(unacked_messages_timeout_ms or 0) / 1000,
        batch_index_ack=batch_index_ack_enabled,
        dead_after=policy.max_redeliver_count if policy is not None else None,
        chunked_max=max_pending_chunked_message,
        crypto=crypto_failure_action,
    )
    if policy is not None:
        graves = _Graves(context)
        consumer._dead_letters = DeadLetters(policy, subscription_name, graves.producer, graves.schema_of)
    subscribing = Subscribing(
        context,
        consumer,
        how,
        receiving,
        schema,
        total_queue_size=max_total_receiver_queue_size_across_partitions,
        inclusive=start_message_id_inclusive,
    )
    if isinstance(topic, re.Pattern) or is_pattern_topic:
        await subscribing.pattern(names[0], regex_subscription_mode, pattern_auto_discovery_period)
    else:
        await subscribing.topics(names)
    return consumer


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
            batching_enabled=False,
            block_if_queue_full=True,
            initial_subscription_name=subscription,
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
