"""The commands a client sends, as frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock.client.enums import ConsumerType, InitialPosition, KeySharedMode, ProducerAccessMode
from penstock.client.message_id import MessageId
from penstock.client.policies import ConsumerKeySharedPolicy
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.wire.frames import FIELD, encode
from penstock.wire.metadata import Memo, integer, unsigned
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandAck,
    CommandFlow,
    CommandProducer,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    IntRange,
    KeySharedMeta,
    KeyValue,
    MessageIdData,
    Schema,
)

_UINT64: Final = 2**64

# The number and the field of a command by the class of its body.
_KINDS: Final[dict[type, tuple[int, str]]] = {
    type(getattr(BaseCommand(), field)): (kind, field) for kind, field in FIELD.items()
}

# The bytes before the body of SEND, by its size: both sizes and the type of the command.
_FRONTS: Final = tuple((4 + size).to_bytes(4, "big") + b"\x08\x06\x32" + bytes((size,)) for size in range(64))
_PRODUCER_ID: Final[Memo[int, bytes]] = Memo(lambda number: b"\x08" + integer(number) + b"\x10")


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer presents itself."""

    topic: str
    name: str | None = None
    schema: SchemaInfo | None = None
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared
    properties: dict[str, str] = {}
    initial_subscription: str | None = None
    transactions: bool = False  # the topic takes part in some
    encrypted: bool = False  # all its messages are: brokers that want that ask for it here


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
    key_shared: ConsumerKeySharedPolicy | None = None
    replicate_state: bool = False
    priority: int = 0
    subscription_properties: dict[str, str] = {}  # of a subscription that is new
    create_topic: bool = True


def framed(body: Any) -> bytes:
    """The frame of a command, such as a `CommandSeek`."""
    kind, field = _KINDS[type(body)]
    return encode(BaseCommand(**{"type": kind, field: body}))


def wire_id(message_id: MessageId) -> MessageIdData:
    """An id as the wire has it."""
    partition, index = message_id.partition(), message_id.batch_index()
    return MessageIdData(
        ledgerId=message_id.ledger_id() % _UINT64,
        entryId=message_id.entry_id() % _UINT64,
        partition=partition if partition >= 0 else None,
        batch_index=index if index >= 0 else None,
    )


def wire_schema(info: SchemaInfo) -> Schema:
    """A schema as the wire has it."""
    number = int(info.type) if info.type >= 0 else 21 if info.type is SchemaType.AUTO_CONSUME else 0
    pairs = _pairs(info.properties)
    return Schema(name=info.name, schema_data=info.data, type=number, properties=pairs)  # type: ignore[arg-type]


def schema_info(schema: Any) -> SchemaInfo:
    """A schema as the wire brought it."""
    try:
        kind = SchemaType(schema.type)
    except ValueError:
        kind = SchemaType.BYTES
    return SchemaInfo(kind, schema.schema_data, schema.name, {p.key: p.value for p in schema.properties})


def producer(
    producer_id: int, how: Publication, epoch: int, topic_epoch: int | None, given: str | None
) -> CommandProducer:
    """Create a producer; `epoch` counts its connections, so that the broker knows the newest.

    `given` is the name that the broker gave it before.
    """
    return CommandProducer(
        topic=how.topic,
        producer_id=producer_id,
        encrypted=how.encrypted or None,
        epoch=epoch,
        user_provided_producer_name=how.name is not None,
        producer_name=given if how.name is None else how.name,
        metadata=_pairs(how.properties),
        schema=None if how.schema is None else wire_schema(how.schema),
        producer_access_mode=int(how.access_mode),  # type: ignore[arg-type]
        topic_epoch=topic_epoch,
        initial_subscription_name=how.initial_subscription or None,
        txn_enabled=how.transactions or None,
    )


def send(
    producer_id: int,
    sequence_id: int,
    highest: int,
    count: int,
    entry: bytes,
    *,
    chunk: bool,
    transaction: tuple[int, int] | None = None,
    entry_each: bool = False,
) -> bytes:
    """What goes before an entry. By hand, because each entry pays for it. `transaction`: its most and least bits.
    `entry_each`: the broker stores each message of the batch as an entry."""
    body = _PRODUCER_ID[producer_id] + integer(sequence_id)
    if count != 1:
        body += b"\x18" + integer(count) + b"\x30" + integer(highest)
    if transaction is not None:
        body += b"\x28" + unsigned(transaction[0]) + b"\x20" + unsigned(transaction[1])
    if chunk:
        body += b"\x38\x01"
    if entry_each:
        body += b"\xa0\x01\x01"
    front = _FRONTS[len(body)]
    return (len(front) + len(body) + len(entry)).to_bytes(4, "big") + front + body


def subscribe(
    consumer_id: int, how: Subscription, start: MessageId | None, epoch: int | None = None
) -> CommandSubscribe:
    """Create a consumer; `start` is the position of one that is not durable, `epoch` how often it asked for everything
    again, for brokers to say which messages were sent before."""
    return CommandSubscribe(
        topic=how.topic,
        subscription=how.name,
        consumer_name=how.consumer_name,
        consumer_id=consumer_id,
        subType=int(how.type),  # type: ignore[arg-type]
        durable=how.durable,
        read_compacted=how.read_compacted,
        initialPosition=int(how.initial_position),  # type: ignore[arg-type]
        priority_level=how.priority,
        replicate_subscription_state=True if how.replicate_state else None,
        start_message_id=None if start is None else wire_id(start),
        schema=None if how.schema is None else wire_schema(how.schema),
        metadata=_pairs(how.properties),
        keySharedMeta=None if how.key_shared is None else _key_shared(how.key_shared),
        subscription_properties=_pairs(how.subscription_properties),
        force_topic_creation=None if how.create_topic else False,
        consumer_epoch=epoch,
    )


def _key_shared(policy: ConsumerKeySharedPolicy) -> KeySharedMeta:
    ranges = policy.sticky_ranges if policy.key_shared_mode is KeySharedMode.Sticky else ()
    return KeySharedMeta(
        keySharedMode=int(policy.key_shared_mode),  # type: ignore[arg-type]
        allowOutOfOrderDelivery=policy.allow_out_of_order_delivery,
        hashRanges=[IntRange(start=first, end=last) for first, last in ranges],
    )


def flow(consumer_id: int, permits: int) -> bytes:
    """Let the broker send so many messages more."""
    return framed(CommandFlow(consumer_id=consumer_id, messagePermits=permits))


def acknowledge(
    consumer_id: int, ids: Iterable[MessageIdData], *, cumulative: bool = False, **more: Any
) -> bytes:
    """Acknowledge single messages, or all up to one.

    `more`: `validation_error` says why they could not be handed on; `reply_to_client`, `reply_payload` and
    `reply_is_error` reply to a request (PIP-371).
    """
    kind = CommandAck.Cumulative if cumulative else CommandAck.Individual
    return framed(CommandAck(consumer_id=consumer_id, ack_type=kind, message_id=ids, **more))


def redeliver(consumer_id: int, ids: Iterable[MessageIdData]) -> bytes:
    """Ask for messages again; without ids, for all that are not acknowledged."""
    return framed(CommandRedeliverUnacknowledgedMessages(consumer_id=consumer_id, message_ids=ids))


def _pairs(values: Mapping[str, str]) -> list[KeyValue]:
    return [KeyValue(key=key, value=value) for key, value in values.items()]
