"""Dead letters: messages that reached the maximum of redeliveries go to a separate topic."""

from __future__ import annotations

from typing import Final

from penstock.client.draft import Draft
from penstock.client.message import Message
from penstock.client.options import ProducerOptions, complete
from penstock.client.policies import ConsumerDeadLetterPolicy
from penstock.client.schema import AutoProduceBytesSchema, BytesSchema
from penstock.client.schema.schema import Encoded, Schema
from penstock.model.schema import SchemaInfo, SchemaType

from .context import Context
from .lookup import topic_name
from .producer import Producer, open_producer

REAL_TOPIC: Final = "REAL_TOPIC"  # the names of Pulsar's clients
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"


class DeadLetters:
    """One consumer's. Producers are made when the first message dies."""

    def __init__(self, context: Context, policy: ConsumerDeadLetterPolicy, subscription: str) -> None:
        self._context = context
        self._policy = policy
        self._subscription = subscription
        self._producers: dict[str, Producer] = {}

    async def publish(self, topic: str, message: Message) -> None:
        """Publish a message of `topic` to the dead-letter topic."""
        target = self._policy.dead_letter_topic or f"{topic}-{self._subscription}-DLQ"
        producer = self._producers.get(target)
        if producer is None:
            options: ProducerOptions = {
                "batching_enabled": False,
                "block_if_queue_full": True,
                "initial_subscription_name": self._policy.initial_subscription_name,
            }
            producer = await open_producer(
                self._context, target, None, None, complete(ProducerOptions, "create_producer", options)
            )
            self._producers[target] = producer
        stored = message._stored
        info = await self._schema_of(message)
        made = Draft(
            value=message,
            schema=_AsIs(BytesSchema() if info is None else AutoProduceBytesSchema(Schema(info))),
            key=stored.key,
            key_bytes=message.key_bytes() if stored.key_is_base64 else None,
            ordering_key=stored.ordering_key,
            properties={
                **stored.properties,
                REAL_TOPIC: stored.properties.get(REAL_TOPIC, message.topic_name()),
                ORIGIN_MESSAGE_ID: stored.properties.get(ORIGIN_MESSAGE_ID, str(message.message_id())),
            },
            event_timestamp=stored.event_time,
        )
        await producer.outgoing.send(made)

    async def close(self) -> None:
        """Leave the topics."""
        for producer in self._producers.values():
            await producer.close()

    async def _schema_of(self, message: Message) -> SchemaInfo | None:
        """The schema that a message was written with."""
        version = message.int_schema_version()
        if version < 0:
            return None
        topic = message.topic_name()
        link = await self._context.lookup.link(topic)
        info = await self._context.schemas.version(link, str(topic_name(topic).base), version)
        return None if info is None or info.type in (SchemaType.BYTES, SchemaType.NONE) else info


class _AsIs(Schema):
    """A message's payload as it is, under the schema it came with."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema.schema_info())

    def encode_message(self, obj: Message) -> Encoded:
        return Encoded(None if obj.has_null_value() else obj.data())
