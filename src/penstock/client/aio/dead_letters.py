"""Messages that were redelivered often enough, to a topic of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from penstock.client.draft import Draft
from penstock.client.message import Message
from penstock.client.policies import ConsumerDeadLetterPolicy
from penstock.client.schema import AutoProduceBytesSchema, BytesSchema
from penstock.client.schema.schema import Encoded, Schema
from penstock.model.schema import SchemaInfo

if TYPE_CHECKING:
    from .producer import Producer

REAL_TOPIC: Final = "REAL_TOPIC"  # the names of Pulsar's clients
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"

Create = Callable[[str, str | None], "Awaitable[Producer]"]
SchemaOf = Callable[[Message], Awaitable[SchemaInfo | None]]


class DeadLetters:
    """One consumer's. Producers are made when the first message dies."""

    def __init__(
        self, policy: ConsumerDeadLetterPolicy, subscription: str, create: Create, schema_of: SchemaOf
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._create = create
        self._schema_of = schema_of
        self._producers: dict[str, Producer] = {}

    async def bury(self, topic: str, message: Message) -> None:
        """Publish a message of `topic` where the dead letters go."""
        target = self._policy.dead_letter_topic or f"{topic}-{self._subscription}-DLQ"
        producer = self._producers.get(target)
        if producer is None:
            producer = await self._create(target, self._policy.initial_subscription_name)
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


class _AsIs(Schema):
    """A message's payload as it is, under the schema it came with."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema.schema_info())

    def encode_message(self, obj: Message) -> Encoded:
        return Encoded(None if obj.has_null_value() else obj.data())
