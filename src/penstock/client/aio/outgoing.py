"""A producer's messages on their way to the publishers: what the producers of both clients do alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.client.draft import Draft, ReplyResult, draft
from penstock.client.errors import (
    InvalidConfiguration,
    OperationNotSupported,
    ProducerQueueIsFull,
    PulsarException,
    Timeout,
)
from penstock.client.interceptor import Intercepted, Interceptors, ProducerInterceptor
from penstock.client.message_id import MessageId
from penstock.client.schema.key_value import KeyValueSchema
from penstock.client.schema.schema import Schema
from penstock.model.message import REQUEST_TIMEOUT_PROPERTY, OutMessage

from .partitions import Partitions
from .publisher import Publisher

Token = (
    Callable[[PulsarException | None, MessageId | None], Any] | None
)  # called with what becomes of a message

REQUEST_TIMEOUT_MS = 30_000


class Prepared(NamedTuple):
    """A message that is encoded; `schema` None: the producer's own."""

    message: OutMessage
    schema: Schema | None
    made: Draft


class Outgoing:
    """Encodes messages, waits for room, and posts them to the publisher of their partition.

    `draft`, `encode` and `prepare` may be called in any thread, and `partitions.count` read; all else is for
    the loop's thread.
    """

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
        self.partitions = partitions
        self.max_pending = max_pending
        self.block_if_queue_full = block_if_queue_full
        self.producer: Any = None  # what the interceptors are given
        self.encode = schema.encode
        self._schema = schema
        self._interceptors = Interceptors(interceptors)
        self._multi_schema = multi_schema
        self._room: list[asyncio.Future[None]] = []
        partitions.on_settled = self._make_room
        # A message that is nothing but its payload takes the short way.
        self._short = not (interceptors or partitions.looks or isinstance(schema, KeyValueSchema))

    def draft(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        *more: Any,
    ) -> Draft | None:
        """The arguments of `send` as a draft; None for a message that is nothing but its payload."""
        if (
            self._short
            and content is not None
            and sequence_id is None
            and not (properties or partition_key or ordering_key or any(more))
        ):
            return None
        return draft(content, properties, partition_key, ordering_key, sequence_id, *more)

    async def send(self, made: Draft) -> MessageId:
        """Send a message and wait for its id."""
        prepared = self.prepare(made)
        if self.partitions.count >= self.max_pending:
            await self.wait_for_room()
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        self.post(prepared, Awaited(future)).awaited()
        return await future

    async def send_plain(self, payload: bytes) -> MessageId:
        """`send` of a message that is nothing but its payload, faster."""
        if self.partitions.count >= self.max_pending:
            await self.wait_for_room()
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        publisher = self.partitions.any(None)
        publisher.post_plain(payload, Awaited(future))
        publisher.awaited()
        return await future

    async def request(self, made: Draft, timeout_ms: int) -> ReplyResult:
        """Send a request and wait for its reply."""
        if timeout_ms <= 0:
            raise InvalidConfiguration(f"a request waits for at least 1 ms, not {timeout_ms}")
        await self.wait_for_room()
        made.properties = {**(made.properties or {}), REQUEST_TIMEOUT_PROPERTY: str(timeout_ms)}
        future: asyncio.Future[ReplyResult] = asyncio.get_running_loop().create_future()
        token = AwaitedReply(future)
        publisher = self.post(self.prepare(made), token, request=True)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError as error:
            if isinstance(error, PulsarException):
                raise
            raise Timeout(f"no reply within {timeout_ms} ms") from None
        finally:
            publisher.outbox.waits.forget(token)

    def prepare(self, made: Draft) -> Prepared:
        """Encode a message. Raises the error of a message that cannot be encoded."""
        made = self._interceptors.before_send(self.producer, made) if self._interceptors else made
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

    def post(self, prepared: Prepared, token: Token, *, request: bool = False) -> Publisher:
        """Send a message; the token is called with the result. Raises the error that prevents sending."""
        message, schema, made = prepared
        if self._interceptors:
            token = Intercepted(self._interceptors, self.producer, made, token)
        publisher = self.partitions.any(message)
        if request and not publisher.supports_requests:
            raise OperationNotSupported(
                "the broker does not know requests (PIP-371): it does not announce supports_request_reply"
            )
        publisher.post(message, token, schema, alone=request or message.deliver_at > 0)
        return publisher

    def post_now(self, prepared: Prepared, token: Token) -> None:
        """`post` of a message that does not wait for others."""
        self.post(prepared, token).flush_now()

    def post_plain(self, payload: bytes, token: Token) -> None:
        """`post` of a message that is nothing but its payload."""
        self.partitions.any(None).post_plain(payload, token)

    def post_plain_now(self, payload: bytes, token: Token) -> None:
        """`post_now` of a message that is nothing but its payload."""
        self.partitions.any(None).post_now(payload, token)

    async def wait_for_room(self) -> None:
        """Until fewer than `max_pending` messages wait for receipts. Raises ProducerQueueIsFull."""
        while self.partitions.count >= self.max_pending:
            if not self.block_if_queue_full:
                raise ProducerQueueIsFull(f"{self.max_pending} messages wait for receipts")
            room = asyncio.get_running_loop().create_future()
            self._room.append(room)
            await room

    def _make_room(self) -> None:
        """Those that wait for room look again."""
        if self._room and self.partitions.count < self.max_pending:
            waiting, self._room = self._room, []
            for room in waiting:
                if not room.done():
                    room.set_result(None)

    async def close(self) -> None:
        """Send what there is, then leave the topic."""
        self._interceptors.close()
        await self.partitions.close()
        self._make_room()


class AnyProducer:
    """What the producers of both clients know without asking the broker."""

    def __init__(self, outgoing: Outgoing) -> None:
        self.outgoing = outgoing  # for the clients alone

    def topic(self) -> str:
        """The topic."""
        return self.outgoing.partitions.topic

    def producer_name(self) -> str:
        """The producer's name, which the broker chooses if none was given."""
        return self.outgoing.partitions.name

    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker has, -1 when it has none."""
        return self.outgoing.partitions.last_sequence_id

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self.outgoing.partitions.connected


class Awaited:
    """A coroutine that awaits the message's id."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[MessageId]) -> None:
        self.future = future

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif message_id is not None:
            self.future.set_result(message_id)


class AwaitedReply:
    """A coroutine that awaits the reply to a request; the message's id alone does not end the wait."""

    __slots__ = ("future",)
    is_request = True

    def __init__(self, future: asyncio.Future[ReplyResult]) -> None:
        self.future = future

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        if error is not None and not self.future.done():
            self.future.set_exception(error)

    def replied(self, result: ReplyResult) -> None:
        """The reply came, perhaps before the message's receipt."""
        if not self.future.done():
            self.future.set_result(result)


def _check_texts(message: OutMessage) -> None:
    """Properties are texts; protobuf would say so too late, for the whole batch."""
    texts: Any = message.properties or {}
    for name, value in texts.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ValueError(f"properties are texts: {name!r}: {value!r}")
