"""Producers for programs without a loop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock.client.aio import producer as aio
from penstock.client.builder import MessageBuilder
from penstock.client.draft import Draft, ReplyResult, draft
from penstock.client.errors import OperationNotSupported, ProducerQueueIsFull, PulsarException
from penstock.client.message_id import MessageId
from penstock.client.result import Result
from penstock.client.schema.schema import Schema

from .loop import LoopThread
from .straight import send_straight
from .waiter import Waiter

Callback = Callable[[Result, MessageId | None], Any]


class _OfficialCallback:
    """A callback in the official client's form."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        self._callback(Result.Ok if error is None else error.error(), message_id)


class BlockingMessageBuilder(MessageBuilder):
    """A message in the making, of a blocking producer."""

    def __init__(self, producer: Producer, value: Any, schema: Schema | None) -> None:
        super().__init__(value, schema)
        self._producer = producer

    def send(self) -> MessageId:
        """Send it and wait for its id."""
        return self._producer._send(self.draft)

    def send_async(self, callback: Callback | None = None) -> None:
        """Send it; `callback(result, message_id)` is told when the broker has it."""
        self._producer._send_async(self.draft, callback)

    def request(self, timeout_ms: int = aio.REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Send it as a request and wait for the reply (PIP-371)."""
        return self._producer._request(self.draft, timeout_ms)


class Producer:
    """Publishes to a topic, made by `Client.create_producer`."""

    def __init__(self, loop: LoopThread, inner: aio.Producer) -> None:
        self._loop = loop
        self._inner = inner

    def topic(self) -> str:
        """The topic."""
        return self._inner.topic()

    def producer_name(self) -> str:
        """The producer's name, which the broker chooses where none was given."""
        return self._inner.producer_name()

    def last_sequence_id(self) -> int:
        """The highest sequence id that the broker has, -1 when it has none."""
        return self._inner.last_sequence_id()

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._inner.is_connected()

    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
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
            self._inner._short
            and content is not None
            and not (
                properties or partition_key or ordering_key or replication_clusters or disable_replication
            )
            and sequence_id is None
            and not (event_timestamp or deliver_at or deliver_after)
        ):
            self._check_room()
            waiter, payload = Waiter(), self._inner._schema.encode(content)
            only = self._inner._partitions.only
            if only is None or not send_straight(self._loop, only, payload, waiter):
                self._loop.post(self._post_plain_now, payload, waiter)
            return waiter.wait()
        return self._send(
            draft(
                content,
                properties,
                partition_key,
                ordering_key,
                sequence_id,
                replication_clusters,
                disable_replication,
                event_timestamp,
                deliver_at,
                deliver_after,
            )
        )

    def send_async(
        self,
        content: Any,
        callback: Callback | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Publish a message; `callback(result, message_id)` is told when the broker has it.

        The callback is called in the client's own thread and must not wait for the client. With
        `block_if_queue_full` this waits for room; else a full queue is told to the callback.
        """
        if not self._room(callback):
            return
        inner = self._inner
        if (
            inner._short
            and content is not None
            and not (
                properties or partition_key or ordering_key or replication_clusters or disable_replication
            )
            and sequence_id is None
            and not (event_timestamp or deliver_at or deliver_after)
        ):
            payload = inner._schema.encode(content)
            self._loop.post(
                self._post_plain, payload, None if callback is None else _OfficialCallback(callback)
            )
            return
        made = draft(
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        self._send_async(made, callback, room=True)

    def new_message(self, value: Any = None, schema: Schema | None = None) -> BlockingMessageBuilder:
        """Put a message together step by step.

        Args:
            value: What to send.
            schema: The message's own schema (PIP-43); the producer's where it is None.
        """
        return BlockingMessageBuilder(self, value, schema)

    def request(self, content: Any, timeout_ms: int = aio.REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Publish a request and wait for a consumer's reply (PIP-371).

        Args:
            content: The value, as the producer's schema takes it.
            timeout_ms: How long to wait.

        Raises:
            TimeoutError: Nobody replied in time.
            OperationNotSupported: The broker does not know requests.
        """
        return self._request(Draft(value=content), timeout_ms)

    def flush(self) -> None:
        """Wait until the broker has everything sent so far."""
        self._loop.call(self._inner.flush())

    def close(self) -> None:
        """Send what there is, then leave the topic."""
        self._loop.call(self._inner.close())

    # -- the way of a message

    def _send(self, made: Draft) -> MessageId:
        self._check_room()
        waiter = Waiter()
        self._loop.post(self._post, self._inner._prepare(made), waiter, True)
        return waiter.wait()

    def _send_async(self, made: Draft, callback: Callback | None, *, room: bool = False) -> None:
        if room or self._room(callback):
            token = None if callback is None else _OfficialCallback(callback)
            self._loop.post(self._post, self._inner._prepare(made), token, False)

    def _request(self, made: Draft, timeout_ms: int) -> ReplyResult:
        return self._loop.call(self._inner._request(made, timeout_ms))

    def _check_room(self) -> None:
        self._loop.check()
        if not self._room(None):
            raise ProducerQueueIsFull(f"{self._inner._max_pending} messages wait for receipts")

    def _room(self, callback: Callback | None) -> bool:
        inner = self._inner
        while inner._partitions.count + self._loop.posted >= inner._max_pending:
            if not inner._block:
                if callback is not None:
                    callback(Result.ProducerQueueIsFull, None)
                return False
            self._loop.call(inner._wait_for_room())
        return True

    def _post(self, prepared: aio.Prepared, token: Any, now: bool) -> None:
        try:
            publisher = self._inner._post(prepared, token)
            if now:
                publisher.flush_now()
        except Exception as error:
            _fail(token, error)

    def _post_plain(self, payload: bytes, token: Any) -> None:
        try:
            self._inner._partitions.any(None).post_plain(payload, token)
        except Exception as error:
            _fail(token, error)

    def _post_plain_now(self, payload: bytes, token: Any) -> None:
        try:
            self._inner._partitions.any(None).post_now(payload, token)
        except Exception as error:
            _fail(token, error)


def _fail(token: Any, error: Exception) -> None:
    if token is not None:
        token(error if isinstance(error, PulsarException) else PulsarException(str(error)), None)
    elif not isinstance(error, OperationNotSupported):
        raise error
