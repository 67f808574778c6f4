"""Producers for programs without a loop.

A single `send` goes without changing threads: the usual way through the loop's thread and back costs more than all
else that a message needs (docs/decisions/0045-blocking-client-event-loop.md). If the loop is idle it is
stopped instead, and the caller itself writes to the connection and reads what comes, for any producer or consumer, until the
receipt is there. A broker that takes longer is waited for in the usual way.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from penstock.client.aio import producer as aio
from penstock.client.aio.link import Link
from penstock.client.aio.outgoing import REQUEST_TIMEOUT_MS, AnyProducer, Token
from penstock.client.aio.publisher import Publisher
from penstock.client.draft import Draft, MessageBuilder, ReplyResult
from penstock.client.enums import Result
from penstock.client.errors import OperationNotSupported, ProducerQueueIsFull, PulsarException
from penstock.client.message_id import MessageId
from penstock.client.schema.schema import Schema

from .loop import LoopThread

STRAIGHT_S: Final = 0.002  # the longest pause of the loop
READ_BYTES: Final = 32 * 1024  # what costs no system call to allocate

Callback = Callable[[Result, MessageId | None], Any]


class BlockingMessageBuilder(MessageBuilder):
    """A message in the making, of a blocking producer."""

    def __init__(self, producer: Producer, value: Any, schema: Schema | None) -> None:
        super().__init__(value, schema)
        self._producer = producer

    def send(self) -> MessageId:
        """Send it and wait for its id."""
        return self._producer._send(self.draft)

    def send_async(self, callback: Callback | None = None) -> None:
        """Send it; `callback(result, message_id)` is called when the broker has it."""
        self._producer._send_async(self.draft, callback)

    def request(self, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Send it as a request and wait for the reply (PIP-371)."""
        return self._producer._request(self.draft, timeout_ms)


class Producer(AnyProducer):
    """Publishes to a topic, made by `Client.create_producer`."""

    def __init__(self, loop: LoopThread, inner: aio.Producer) -> None:
        super().__init__(inner.outgoing)
        self._loop = loop
        self._inner = inner

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
            ordering_key: The key that KeyShared subscriptions use in place of the key.
            sequence_id: Its number, for deduplication; by default the producer counts.
            replication_clusters: Which clusters it is replicated to.
            disable_replication: Do not replicate it.
            event_timestamp: When what it describes happened, in ms since the epoch.
            deliver_at: Not to be delivered before this time, in ms since the epoch.
            deliver_after: Not to be delivered before this time has passed.

        Raises:
            PulsarException: The message was not stored; Timeout if that is not known.
        """
        outgoing = self.outgoing
        made = outgoing.draft(
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        if made is not None:
            return self._send(made)
        self._check_room()
        waiter, payload = Waiter(), outgoing.encode(content)
        only = outgoing.partitions.only
        if only is None or not send_straight(self._loop, only, payload, waiter):
            self._post(outgoing.post_plain_now, payload, waiter)
        return waiter.wait()

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
        """Publish a message; `callback(result, message_id)` is called when the broker has it.

        The callback is called in the client's own thread and must not wait for the client. With
        `block_if_queue_full` this waits for room; else the callback gets ProducerQueueIsFull.
        """
        if not self._room(callback):
            return
        outgoing = self.outgoing
        made = outgoing.draft(
            content, properties, partition_key, ordering_key, sequence_id, replication_clusters,
            disable_replication, event_timestamp, deliver_at, deliver_after,
        )  # fmt: skip
        if made is None:
            self._post(outgoing.post_plain, outgoing.encode(content), _token(callback))
        else:
            self._post(outgoing.post, outgoing.prepare(made), _token(callback))

    def new_message(self, value: Any = None, schema: Schema | None = None) -> BlockingMessageBuilder:
        """Put a message together step by step.

        Args:
            value: What to send.
            schema: The schema of the message (PIP-43); that of the producer if None.
        """
        return BlockingMessageBuilder(self, value, schema)

    def request(self, content: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> ReplyResult:
        """Publish a request and wait for a consumer's reply (PIP-371).

        Args:
            content: The value, as the producer's schema takes it.
            timeout_ms: How long to wait.

        Raises:
            TimeoutError: No reply came in time.
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
        self._post(self.outgoing.post_now, self.outgoing.prepare(made), waiter)
        return waiter.wait()

    def _send_async(self, made: Draft, callback: Callback | None) -> None:
        if self._room(callback):
            self._post(self.outgoing.post, self.outgoing.prepare(made), _token(callback))

    def _request(self, made: Draft, timeout_ms: int) -> ReplyResult:
        return self._loop.call(self.outgoing.request(made, timeout_ms))

    def _check_room(self) -> None:
        self._loop.check()
        if not self._room(None):
            raise ProducerQueueIsFull(f"{self.outgoing.max_pending} messages wait for receipts")

    def _room(self, callback: Callback | None) -> bool:
        outgoing = self.outgoing
        while outgoing.partitions.count + self._loop.posted >= outgoing.max_pending:
            if not outgoing.block_if_queue_full:
                if callback is not None:
                    callback(Result.ProducerQueueIsFull, None)
                return False
            self._loop.call(outgoing.wait_for_room())
        return True

    def _post(self, post: Callable[[Any, Token], object], message: Any, token: Token) -> None:
        self._loop.post(_posted, post, message, token)


def _posted(post: Callable[[Any, Token], object], message: Any, token: Token) -> None:
    """In the loop: post a message; the token is called if that fails."""
    try:
        post(message, token)
    except Exception as error:
        if token is not None:
            token(error if isinstance(error, PulsarException) else PulsarException(str(error)), None)
        elif not isinstance(error, OperationNotSupported):
            raise


def _token(callback: Callback | None) -> Token:
    return None if callback is None else _OfficialCallback(callback)


class _OfficialCallback:
    """A callback in the official client's form; a closure would cost the garbage collector more."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callback) -> None:
        self._callback = callback

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        self._callback(Result.Ok if error is None else error.error(), message_id)


class Waiter:
    """A thread that waits for the message's id."""

    __slots__ = ("_lock", "done", "error", "message_id")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.error: PulsarException | None = None
        self.message_id: MessageId | None = None
        self.done = False

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        self.error, self.message_id, self.done = error, message_id, True
        self._lock.release()

    def wait(self) -> MessageId:
        """The id. Raises the error of the message."""
        self._lock.acquire()
        if self.message_id is None:
            raise self.error or PulsarException("the message was not sent")
        return self.message_id


def send_straight(loop: LoopThread, publisher: Publisher, payload: bytes, waiter: Waiter) -> bool:
    """Send a message that is nothing but its payload; False when that has to go the usual way."""
    link = publisher.idle_link
    if link is None or not hasattr(select, "poll") or not loop.enter():
        return False
    try:
        link = publisher.idle_link
        if link is None or link.fileno < 0:
            return False
        link.borrow()
        try:
            publisher.post_now(payload, waiter)
            _read_until(link, waiter)
        finally:
            link.give_back(linger=waiter.done)
        return True
    finally:
        loop.leave()


def _read_until(link: Link, waiter: Waiter) -> None:
    until = time.monotonic() + STRAIGHT_S
    fileno, left_s = link.fileno, STRAIGHT_S
    if link.poll is None:
        link.poll = select.poll()
        link.poll.register(fileno, select.POLLIN)
    while left_s > 0 and link.poll.poll(left_s * 1000):
        try:
            data = os.read(fileno, READ_BYTES)
        except OSError:
            return
        if not data:
            return  # the loop will see the end, too
        link.data_received(data)
        if waiter.done:
            return
        left_s = until - time.monotonic()
