"""Producers for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.client.builder import MessageBuilder
from penstock.client.draft import Draft, ReplyResult, draft
from penstock.client.errors import (
    InvalidConfiguration,
    OperationNotSupported,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from penstock.client.interceptor import ProducerInterceptor
from penstock.client.message_id import MessageId
from penstock.client.schema.key_value import KeyValueSchema
from penstock.client.schema.schema import Schema
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage

from .partitions import Partitions
from .publisher import Publisher
from .tokens import Awaited, AwaitedReply
from .watched import Interceptors, Watched

Callback = Callable[[PulsarException | None, MessageId | None], Any]

REQUEST_TIMEOUT_MS = 30_000


class Prepared(NamedTuple):
    """A message that is encoded; `schema` None: the producer's own."""

    message: OutMessage
    schema: Schema | None
    made: Draft


class AsyncMessageBuilder(MessageBuilder):
    """A message in the making, of an asyncio producer."""

    def __init__(self, producer: Producer, value: Any, schema: Schema | None) -> None:
        super().__init__(value, schema)
        self._producer = producer

    async def send(self) -> MessageId:
        """Send it and wait for its id."""
        return await self._producer._send(self.draft)

    async def request(self, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Send it as a request and wait for the reply (PIP-371)."""
        return await self._producer._request(self.draft, timeout_ms)


class Producer:
    """Publishes to a topic, made by `Client.create_producer`."""

    def __init__(
        self,
        partitions: Partitions,
        schema: Schema,
        *,
        max_pending: int,
        block_if_queue_full: bool,
        interceptors: Sequence[ProducerInterceptor],
        multi_schema: bool,
    ) -> None:
        self._partitions = partitions
        self._schema = schema
        self._max_pending = max_pending
        self._block = block_if_queue_full
        self._interceptors = Interceptors(interceptors)
        self._multi_schema = multi_schema
        self._room: list[asyncio.Future[None]] = []
        partitions.on_settled = self._make_room
        # A message that is nothing but its payload takes the short way.
        self._short = not (interceptors or partitions.looks or isinstance(schema, KeyValueSchema))

    def topic(self) -> str:
        """The topic."""
        return self._partitions.topic

    def producer_name(self) -> str:
        """The producer's name, which the broker chooses where none was given."""
        return self._partitions.name

    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker has, -1 when it has none."""
        return self._partitions.last_sequence_id

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._partitions.connected

    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message and wait until the broker has it.

        Args:
            content: The value, as the producer's schema takes it; None is the null value.
            properties: Texts that travel with it.
            partition_key: Its key; messages of one key go to one partition, in order.
            ordering_key: What a KeyShared subscription goes by instead of the key.
            sequence_id: Its number, for deduplication; by default the producer counts.
            replication_clusters: Which clusters it is replicated to.
            disable_replication: Do not replicate it.
            event_timestamp: When what it tells of happened, in ms since the epoch.
            deliver_at: Not to be delivered before this time, in ms since the epoch.
            deliver_after: Not to be delivered before this time has passed.

        Raises:
            PulsarException: The message was not stored; Timeout where that is not known.
        """
        if (
            self._short
            and content is not None
            and not (
                properties or partition_key or ordering_key or replication_clusters or disable_replication
            )
            and sequence_id is None
            and not (event_timestamp or deliver_at or deliver_after)
        ):
            return await self._send_plain(self._schema.encode(content))
        made = draft(
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        return await self._send(made)

    def send_async(self, content: Any, callback: Callback | None = None, **options: Any) -> None:
        """Publish a message; `callback(error, message_id)` is told when the broker has it.

        `options` are those of `send`. This does not wait, not even for room.

        Raises:
            ProducerQueueIsFull: As many messages wait for receipts as `max_pending_messages` allows.
        """
        if self._partitions.count >= self._max_pending:
            raise ProducerQueueIsFull(f"{self._max_pending} messages wait for receipts")
        if self._short and not options and content is not None:
            self._partitions.any(None).post_plain(self._schema.encode(content), callback)
            return
        self._post(self._prepare(draft(content, **options)), callback)

    def new_message(self, value: Any = None, schema: Schema | None = None) -> AsyncMessageBuilder:
        """Put a message together step by step.

        Args:
            value: What to send.
            schema: The message's own schema (PIP-43); the producer's where it is None.
        """
        return AsyncMessageBuilder(self, value, schema)

    async def request(self, content: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Publish a request and wait for a consumer's reply (PIP-371).

        Args:
            content: The value, as the producer's schema takes it.
            timeout_ms: How long to wait.

        Raises:
            TimeoutError: Nobody replied in time.
            OperationNotSupported: The broker does not know requests.
        """
        return await self._request(Draft(value=content), timeout_ms)

    async def flush(self) -> None:
        """Wait until the broker has everything sent so far."""
        await self._partitions.flush()

    async def close(self) -> None:
        """Send what there is, then leave the topic."""
        self._interceptors.close()
        await self._partitions.close()
        self._make_room()

    # -- the way of a message

    async def _send(self, made: Draft) -> MessageId:
        prepared = self._prepare(made)
        if self._partitions.count >= self._max_pending:
            await self._wait_for_room()
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        self._post(prepared, Awaited(future)).awaited()
        return await future

    async def _send_plain(self, payload: bytes) -> MessageId:
        """`_send` of a message that is nothing but its payload, faster."""
        if self._partitions.count >= self._max_pending:
            await self._wait_for_room()
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        publisher = self._partitions.any(None)
        publisher.post_plain(payload, Awaited(future))
        publisher.awaited()
        return await future

    async def _request(self, made: Draft, timeout_ms: int) -> ReplyResult:
        if timeout_ms <= 0:
            raise InvalidConfiguration(f"a request waits for at least 1 ms, not {timeout_ms}")
        await self._wait_for_room()
        made.properties = {**(made.properties or {}), REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)}
        future: asyncio.Future[ReplyResult] = asyncio.get_running_loop().create_future()
        token = AwaitedReply(future)
        publisher = self._post(self._prepare(made), token, request=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError as error:
            if isinstance(error, PulsarException):
                raise
            raise Timeout(f"no reply within {timeout_ms} ms") from None
        finally:
            publisher.outbox.waits.forget(token)

    def _prepare(self, made: Draft) -> Prepared:
        """Encode a message. Raises what is wrong with it."""
        made = self._interceptors.before_send(self, made) if self._interceptors else made
        schema: Schema | None = made.schema
        if schema is not None and not self._multi_schema:
            raise InvalidConfiguration(
                "this producer was made with multi_schema=False: its messages have no schemas of their own"
            )
        encoded = (schema or self._schema).encode_message(made.value)
        key, key_is_base64 = made.key, made.key_bytes is not None
        if encoded.key is not None:
            key, key_is_base64 = encoded.key, True
        message = OutMessage(
            payload=encoded.payload or b"",
            key=key or None,
            key_is_base64=key_is_base64,
            ordering_key=made.ordering_key,
            properties=made.properties or None,
            event_time=made.event_timestamp,
            deliver_at=made.deliver_at,
            sequence_id=made.sequence_id,
            replicate_to=made.replication_clusters,
            null_value=encoded.payload is None,
        )
        _check_texts(message)
        if schema is not None and schema.identity == self._schema.identity:
            schema = None
        return Prepared(message, schema, made)

    def _post(self, prepared: Prepared, token: Any, *, request: bool = False) -> Publisher:
        message, schema, made = prepared
        if self._interceptors:
            token = Watched(self._interceptors, self, made, token)
        publisher = self._partitions.any(message)
        if request and not publisher.supports_requests:
            raise OperationNotSupported(
                "the broker does not know requests (PIP-371): it does not announce supports_request_reply"
            )
        publisher.post(message, token, schema, alone=request or message.deliver_at > 0)
        return publisher

    async def _wait_for_room(self) -> None:
        while self._partitions.count >= self._max_pending:
            if not self._block:
                raise ProducerQueueIsFull(f"{self._max_pending} messages wait for receipts")
            room = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room

    def _make_room(self) -> None:
        """Whoever waits looks again."""
        if self._room and self._partitions.count < self._max_pending:
            waiting, self._room = self._room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)


def _check_texts(message: OutMessage) -> None:
    """Properties are texts; protobuf would say so too late, for the whole batch."""
    texts: Any = message.properties or {}
    for name, value in texts.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"properties are texts: {name!r}: {value!r}")
