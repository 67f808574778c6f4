"""The commands a client sends, as frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.client.enums import (
    ConsumerType,
    InitialPosition,
    KeySharedMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from penstock.client.message_id import MessageId
from penstock.client.policies import ConsumerKeySharedPolicy
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire.fields import integer, schema_version_bytes
from penstock.wire.frames import encode, entry_head
from penstock.wire.pulsar_pb2 import BaseCommand, MessageIdData, Schema

_UINT64 = 2**64


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer presents itself."""

    topic: str
    name: str | None = None
    schema: SchemaInfo | None = None
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    properties: dict[str, str] = {}
    initial_subscription: str | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer presents itself."""

    topic: str
    name: str
    consumer_name: str
    type: ConsumerType = ConsumerType.Exclusive
    durable: bool = True
    initial_position: InitialPosition = InitialPosition.Latest
    read_compacted: bool = False
    schema: SchemaInfo | None = None
    properties: dict[str, str] = {}
    priority: int = 0
    key_shared: ConsumerKeySharedPolicy | None = None
    replicate_state: bool = False


def wire_id(message_id: MessageId) -> MessageIdData:
    """An id as the wire has it."""
    data = MessageIdData(ledgerId=message_id.ledger_id() % _UINT64, entryId=message_id.entry_id() % _UINT64)
    if message_id.partition() >= 0:
        data.partition = message_id.partition()
    if message_id.batch_index() >= 0:
        data.batch_index = message_id.batch_index()
    return data


def wire_schema(info: SchemaInfo) -> Schema:
    """A schema as the wire has it."""
    number = int(info.type) if info.type >= 0 else 21 if info.type is SchemaType.AUTO_CONSUME else 0
    schema = Schema(name=info.name, schema_data=info.data, type=number)  # type: ignore[arg-type]
    _pairs(schema.properties, info.properties)
    return schema


def schema_info(schema: Any) -> SchemaInfo:
    """A schema as the wire brought it."""
    try:
        kind = SchemaType(schema.type)
    except ValueError:
        kind = SchemaType.BYTES
    return SchemaInfo(kind, schema.schema_data, schema.name, {p.key: p.value for p in schema.properties})


def producer(
    request_id: int,
    producer_id: int,
    how: Publication,
    epoch: int,
    topic_epoch: int | None,
    given: str | None,
) -> bytes:
    """Create a producer; `epoch` counts its connections, so that the broker knows the newest.

    `given` is the name that the broker gave it before.
    """
    command = BaseCommand(type=BaseCommand.PRODUCER)
    made = command.producer
    made.topic, made.producer_id, made.request_id, made.epoch = how.topic, producer_id, request_id, epoch
    made.user_provided_producer_name = how.name is not None
    name = given if how.name is None else how.name
    if name is not None:
        made.producer_name = name
    _pairs(made.metadata, how.properties)
    if how.schema is not None:
        made.schema.CopyFrom(wire_schema(how.schema))
    made.producer_access_mode = int(how.access_mode)  # type: ignore[assignment]
    if topic_epoch is not None:
        made.topic_epoch = topic_epoch
    if how.initial_subscription:
        made.initial_subscription_name = how.initial_subscription
    return encode(command)


def send(producer_id: int, sequence_id: int, highest: int, count: int, entry: bytes, *, chunk: bool) -> bytes:
    """What goes before an entry. By hand, because each entry pays for it."""
    body = b"\x08" + integer(producer_id) + b"\x10" + integer(sequence_id)
    if count != 1:
        body += b"\x18" + integer(count) + b"\x30" + integer(highest)
    if chunk:
        body += b"\x38\x01"
    return entry_head(b"\x08\x06\x32" + integer(len(body)) + body, len(entry))


def subscribe(request_id: int, consumer_id: int, how: Subscription, start: MessageId | None) -> bytes:
    """Create a consumer; `start` is where one that is not durable begins."""
    command = BaseCommand(type=BaseCommand.SUBSCRIBE)
    made = command.subscribe
    made.topic, made.subscription, made.consumer_name = how.topic, how.name, how.consumer_name
    made.consumer_id, made.request_id = consumer_id, request_id
    made.subType = int(how.type)  # type: ignore[assignment]
    made.durable, made.read_compacted = how.durable, how.read_compacted
    made.initialPosition = int(how.initial_position)  # type: ignore[assignment]
    made.priority_level = how.priority
    if how.replicate_state:
        made.replicate_subscription_state = True
    if start is not None:
        made.start_message_id.CopyFrom(wire_id(start))
    if how.schema is not None:
        made.schema.CopyFrom(wire_schema(how.schema))
    _pairs(made.metadata, how.properties)
    if how.key_shared is not None:
        made.keySharedMeta.keySharedMode = int(how.key_shared.key_shared_mode)  # type: ignore[assignment]
        made.keySharedMeta.allowOutOfOrderDelivery = how.key_shared.allow_out_of_order_delivery
        if how.key_shared.key_shared_mode is KeySharedMode.Sticky:
            for first, last in how.key_shared.sticky_ranges:
                made.keySharedMeta.hashRanges.add(start=first, end=last)
    return encode(command)


def flow(consumer_id: int, permits: int) -> bytes:
    """Let the broker send so many messages more."""
    command = BaseCommand(type=BaseCommand.FLOW)
    command.flow.consumer_id, command.flow.messagePermits = consumer_id, permits
    return encode(command)


def acknowledge(
    consumer_id: int, ids: Iterable[MessageIdData], *, cumulative: bool = False, request_id: int | None = None
) -> bytes:
    """Acknowledge single messages, or all up to one."""
    command = BaseCommand(type=BaseCommand.ACK)
    ack = command.ack
    ack.consumer_id = consumer_id
    ack.ack_type = ack.Cumulative if cumulative else ack.Individual
    ack.message_id.extend(ids)
    if request_id is not None:
        ack.request_id = request_id
    return encode(command)


def reply(consumer_id: int, data: MessageIdData, to: str, content: bytes, *, is_error: bool) -> bytes:
    """Acknowledge a request with a reply (PIP-371)."""
    command = BaseCommand(type=BaseCommand.ACK)
    ack = command.ack
    ack.consumer_id, ack.ack_type = consumer_id, ack.Individual
    ack.message_id.append(data)
    ack.reply_to_client, ack.reply_payload, ack.reply_is_error = to, content, is_error
    return encode(command)


def discard(consumer_id: int, data: MessageIdData, reason: int) -> bytes:
    """Acknowledge what could not be handed on, and say why."""
    command = BaseCommand(type=BaseCommand.ACK)
    ack = command.ack
    ack.consumer_id, ack.ack_type = consumer_id, ack.Individual
    ack.message_id.append(data)
    ack.validation_error = reason  # type: ignore[assignment]
    return encode(command)


def redeliver(consumer_id: int, ids: Sequence[MessageIdData]) -> bytes:
    """Ask for messages again; without ids, for all that are not acknowledged."""
    command = BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES)
    command.redeliver_unacknowledged_messages.consumer_id = consumer_id
    command.redeliver_unacknowledged_messages.message_ids.extend(ids)
    return encode(command)


def seek(request_id: int, consumer_id: int, to: MessageId | int) -> bytes:
    """Move a subscription to a message, or to a time in ms."""
    command = BaseCommand(type=BaseCommand.SEEK)
    command.seek.consumer_id, command.seek.request_id = consumer_id, request_id
    if isinstance(to, MessageId):
        command.seek.message_id.CopyFrom(wire_id(to))
    else:
        command.seek.message_publish_time = to
    return encode(command)


def unsubscribe(request_id: int, consumer_id: int, *, force: bool = False) -> bytes:
    """Delete a subscription."""
    command = BaseCommand(type=BaseCommand.UNSUBSCRIBE)
    made = command.unsubscribe
    made.consumer_id, made.request_id, made.force = consumer_id, request_id, force
    return encode(command)


def last_message_id(request_id: int, consumer_id: int) -> bytes:
    """Ask where the topic ends."""
    command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID)
    made = command.get_last_message_id
    made.consumer_id, made.request_id = consumer_id, request_id
    return encode(command)


def close_producer(request_id: int, producer_id: int) -> bytes:
    """End a producer."""
    command = BaseCommand(type=BaseCommand.CLOSE_PRODUCER)
    command.close_producer.producer_id, command.close_producer.request_id = producer_id, request_id
    return encode(command)


def close_consumer(request_id: int, consumer_id: int) -> bytes:
    """End a consumer."""
    command = BaseCommand(type=BaseCommand.CLOSE_CONSUMER)
    command.close_consumer.consumer_id, command.close_consumer.request_id = consumer_id, request_id
    return encode(command)


def partitions(request_id: int, topic: str) -> bytes:
    """Ask how many partitions a topic has."""
    command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
    command.partitioned_metadata.topic, command.partitioned_metadata.request_id = topic, request_id
    return encode(command)


def lookup(request_id: int, topic: str, *, authoritative: bool, listener: str | None) -> bytes:
    """Ask which broker serves a topic."""
    command = BaseCommand(type=BaseCommand.LOOKUP)
    made = command.lookup
    made.topic, made.request_id, made.authoritative = topic, request_id, authoritative
    if listener is not None:
        made.advertised_listener_name = listener
    return encode(command)


def topics(request_id: int, namespace: str, mode: RegexSubscriptionMode) -> bytes:
    """Ask for a namespace's topics."""
    command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
    made = command.get_topics_of_namespace
    made.namespace, made.request_id = namespace, request_id
    made.mode = int(mode)  # type: ignore[assignment]
    return encode(command)


def get_schema(request_id: int, topic: str, version: int | None) -> bytes:
    """Ask for a version of a topic's schema, None for the latest."""
    command = BaseCommand(type=BaseCommand.GET_SCHEMA)
    command.get_schema.topic, command.get_schema.request_id = topic, request_id
    if version is not None:
        command.get_schema.schema_version = schema_version_bytes(version)
    return encode(command)


def get_or_create_schema(request_id: int, topic: str, info: SchemaInfo) -> bytes:
    """Ask for a schema's version, registering it where it is new (PIP-43)."""
    command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
    made = command.get_or_create_schema
    made.topic, made.request_id = topic, request_id
    made.schema.CopyFrom(wire_schema(info))
    return encode(command)


def _pairs(into: Any, values: Mapping[str, str]) -> None:
    for key, value in values.items():
        into.add(key=key, value=value)
