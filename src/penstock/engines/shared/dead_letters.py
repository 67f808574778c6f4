"""Where messages go that no consumer could process."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

from penstock.broker.acting import acting_key
from penstock.broker.delivery import DeliverySource
from penstock.broker.names import dead_letter_topic
from penstock.broker.producer import Producer
from penstock.broker.schemas import Schemas
from penstock.model.entry import Entry
from penstock.model.errors import PenstockError
from penstock.model.message import Message, OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import DeadLetter, ProducerOptions
from penstock.runtime.tasks import Locks

# What a dead letter says of itself; the first three are the names that Pulsar's clients use.
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_SUBSCRIPTION: Final = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
REASON: Final = "DEAD_LETTER_REASON"
PRODUCERS_MAX: Final = 100  # that are kept open

P = TypeVar("P", bound=Producer)

Decode = Callable[[Entry], list[Message]]  # raises CHECKSUM, BAD_ENCODING
# A producer of a topic, for one letter; whether that is encrypted.
Lend = Callable[[TopicName, bool], AbstractAsyncContextManager[Producer]]


class DeadLetters:
    """Publishes messages to dead-letter topics with where they came from."""

    def __init__(self, decode: Decode, lend: Lend, schemas: Schemas) -> None:
        self._decode = decode
        self._lend = lend
        self._schemas = schemas

    async def bury(
        self, subscription: DeliverySource, entry: Entry, index: int, letter: DeadLetter, redeliveries: int
    ) -> None:
        """Publish message `index` of `entry` to the dead-letter topic; completes when durable there."""
        source = subscription.topic
        messages = self._decode(entry)
        message = messages[index if len(messages) > 1 else 0]
        alone = message.index < 0
        properties = dict(message.properties)
        properties[REAL_TOPIC] = str(source.name)
        properties[REAL_SUBSCRIPTION] = subscription.name
        properties[ORIGIN_MESSAGE_ID] = str(source.id_of(entry, -1 if alone else index))
        properties[REASON] = f"not acknowledged after {redeliveries + 1} deliveries"
        target = dead_letter_topic(source.name, subscription.name, letter.topic)
        async with self._lend(target, message.encryption is not None) as producer:
            (result,) = await producer.publish(
                [
                    OutMessage(
                        payload=message.payload,
                        key=message.key,
                        key_is_base64=message.key_is_base64,
                        ordering_key=message.ordering_key,
                        properties=properties,
                        event_time=message.event_time,
                        null_value=message.null_value,
                        encryption=message.encryption,
                        schema_version=await self._version(source.name, message.schema_version, producer),
                    )
                ]
            )
        if isinstance(result, PenstockError):
            raise result

    async def _version(self, source: TopicName, version: int | None, producer: Producer) -> int | None:
        """The schema that the message was written with, as a version of the dead-letter topic.

        None where the topic has schemas that it may not follow: the letter goes without, rather than not at all.
        """
        if version is None:
            return None
        try:
            return await producer.schema_version(self._schemas.version(source, version).schema)
        except PenstockError:
            return None


class KeptProducers(Generic[P]):
    """Producers that the server itself opens, each kept for the next time: of a cluster, they cost a lookup to open. `stateless`: as in
    `ProducerOptions`. `by_caller`: each caller has other ones."""

    def __init__(
        self,
        open_producer: Callable[[TopicName, ProducerOptions], Awaitable[P]],
        most: int = PRODUCERS_MAX,
        *,
        stateless: bool = False,
        by_caller: bool = False,
    ) -> None:
        self._open = open_producer
        self._most = most
        self._stateless = stateless
        self._by_caller = by_caller
        self._producers: dict[tuple[TopicName, bool, str], P] = {}
        self._opening: Locks[tuple[TopicName, bool, str]] = Locks()

    @asynccontextmanager
    async def lend(self, target: TopicName, encrypted: bool = False) -> AsyncIterator[P]:
        """The producer of a topic; raises why it cannot be opened."""
        key = target, encrypted, acting_key() if self._by_caller else ""
        async with self._opening.hold(key):
            found = self._producers.pop(key, None)
            if found is None or found.closed:
                options = ProducerOptions(stateless=self._stateless, encrypted=encrypted)
                found = await self._open(target, options)
            self._producers[key] = found  # the last one used is the last to go
            if len(self._producers) > self._most:
                self._producers.pop(next(iter(self._producers))).close()
        yield found

    def close(self) -> None:
        """Close the producers."""
        for producer in self._producers.values():
            producer.close()
        self._producers.clear()
