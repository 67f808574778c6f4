"""Dead-letter topics: the destination of messages that no consumer could process.

Each message is published at once and by itself. A message that the dead-letter topic refuses (terminated, over quota, too
large, schema, permission) waits and is retried with back-off; it holds up no other message. A message that is durable in the
dead-letter topic is never published again.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Generic, TypeVar

import msgspec

from penstock.broker.acting import acting_key
from penstock.broker.delivery import DeliverySource
from penstock.broker.names import dead_letter_topic
from penstock.broker.producer import Producer
from penstock.broker.schemas import Schemas
from penstock.broker.subscription import DeadLetterStats
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import Message, OutMessage
from penstock.model.names import TopicName
from penstock.model.policy import DeadLetter, ProducerOptions
from penstock.runtime.clock import Clock, Timer
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.tasks import Locks, Tasks

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
RETRY_MS: Final = 1000  # back-off after the first failure; it doubles with each failed round
RETRY_MAX_MS: Final = 60_000
FAILED_MAX: Final = 20  # failures in a row that end a round, so that a topic that refuses all costs little
WAITING_MAX: Final = 10_000  # messages; further ones are redelivered instead
WAITING_BYTES_MAX: Final = 8 * 1024 * 1024  # of entries held for them; the same


class DeadLetters:
    """Publishes messages to dead-letter topics with their origin."""

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

        None if the topic has schemas that it may not follow: the letter goes without a version rather than not at all.
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


class EntryDeadLetters(msgspec.Struct):
    """The dead letters of one entry.

    `load` returns the entry; raises MESSAGE_NOT_FOUND if it was deleted. `bury` publishes the message of an index and
    acknowledges it; returns when it is durable, or was acknowledged already. `again` redelivers the remaining messages
    after some ms.
    """

    indexes: deque[int]
    load: Callable[[], Awaitable[Entry]]
    bury: Callable[[Entry, int], Awaitable[None]]
    again: Callable[["EntryDeadLetters", int], None]
    bytes: int = 0  # held in memory for it
    waiting: int = 0  # messages counted as waiting

    @property
    def mask(self) -> int:
        """The remaining messages, as bits."""
        return sum(1 << index for index in self.indexes)


class DeadLetterQueue:
    """`stats` are those of its subscription, which may have several queues; `subject` names it."""

    def __init__(
        self, stats: DeadLetterStats, subject: str, failures: Failures, clock: Clock, tasks: Tasks
    ) -> None:
        self._stats = stats
        self._subject = subject
        self._failures = failures
        self._clock = clock
        self._tasks = tasks
        self._parts: deque[EntryDeadLetters] = deque()  # with messages to retry
        self._bytes = 0
        self._delay_ms = RETRY_MS
        self._timer: Timer | None = None
        self._epoch = 0  # `forget` starts another; work of earlier ones is dropped

    def add(self, part: EntryDeadLetters) -> None:
        """Publish dead letters, and retry those that fail."""
        self._tasks.spawn(self._first(part, self._epoch), f"dead letters of {self._subject}")

    def forget(self) -> None:
        """Drop all: the cursor moved, or the subscription ends."""
        self._epoch += 1
        for part in self._parts:
            self._stats.waiting -= part.waiting
        self._parts.clear()
        self._bytes = 0
        self._delay_ms = RETRY_MS
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._stats.waiting:
            self._stats.error = None
            self._failures.dropped(FailureKind.DEAD_LETTER, self._subject)

    async def _first(self, part: EntryDeadLetters, epoch: int) -> None:
        await self._send(part)
        if part.indexes and epoch == self._epoch:
            self._keep(part)

    def _keep(self, part: EntryDeadLetters) -> None:
        """Schedule a retry of a part."""
        left = len(part.indexes)
        full = self._stats.waiting + left > WAITING_MAX or self._bytes + part.bytes > WAITING_BYTES_MAX
        if full and self._parts:
            part.again(part, self._delay_ms)
            return
        part.waiting = left
        self._stats.waiting += left
        self._bytes += part.bytes
        self._parts.append(part)
        if self._timer is None:
            self._timer = self._clock.call_later(self._delay_ms, self._due)

    def _due(self) -> None:
        self._tasks.spawn(self._retry(self._epoch), f"dead letters of {self._subject}, again")

    async def _retry(self, epoch: int) -> None:
        """Publish the waiting parts again, in turn. A round that ends early continues with the next part later."""
        failed = 0
        for _ in range(len(self._parts)):
            part = self._parts.popleft()
            before = part.waiting
            self._bytes -= part.bytes
            failed = await self._send(part, failed)
            if epoch != self._epoch:  # `forget` has counted the parts in the queue
                self._stats.waiting -= before
                return
            self._stats.waiting -= before - len(part.indexes)
            part.waiting = len(part.indexes)
            if part.indexes:
                self._bytes += part.bytes
                self._parts.append(part)
            if failed >= FAILED_MAX:
                break
        self._timer = None
        if self._parts:
            self._delay_ms = min(2 * self._delay_ms, RETRY_MAX_MS)
            self._timer = self._clock.call_later(self._delay_ms, self._due)
            return
        self._delay_ms = RETRY_MS
        if not self._stats.waiting:
            self._stats.error = None
            self._failures.recovered(FailureKind.DEAD_LETTER, self._subject)

    async def _send(self, part: EntryDeadLetters, failed: int = 0) -> int:
        """Publish the messages of a part, until too many fail in a row; failed ones stay in it, at the end. `failed` counts
        the failures in a row before; returns the count after."""
        epoch = self._epoch
        try:
            entry = await part.load()
        except Exception as error:
            if isinstance(error, PenstockError) and error.kind is ErrorKind.MESSAGE_NOT_FOUND:
                part.indexes.clear()
                return failed
            self._fail(error, epoch)
            return failed + 1
        for _ in range(len(part.indexes)):
            index = part.indexes.popleft()
            try:
                await part.bury(entry, index)
            except Exception as error:  # any error: the other messages are still published
                part.indexes.append(index)
                failed += 1
                self._fail(error, epoch)
                if failed >= FAILED_MAX:
                    break
            else:
                failed = 0
            if epoch != self._epoch:
                break
        return failed

    def _fail(self, error: Exception, epoch: int) -> None:
        message = error.message if isinstance(error, PenstockError) else repr(error)
        self._stats.failed += 1
        if epoch == self._epoch:
            self._stats.error = message
            self._failures.failed(FailureKind.DEAD_LETTER, self._subject, message)
