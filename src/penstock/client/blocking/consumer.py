"""Consumers for programs without a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.aio import consumer as aio
from penstock.client.aio.tasks import log
from penstock.client.enums import ConsumerType
from penstock.client.errors import (
    AlreadyClosed,
    CumulativeAcknowledgementNotAllowedError,
    InvalidConfiguration,
    PulsarException,
)
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .loop import LoopThread


class Consumer:
    """Receives from one topic or several, made by `Client.subscribe`."""

    def __init__(
        self,
        loop: LoopThread,
        inner: aio.Consumer,
        listener: Callable[[Consumer, Message], Any] | None = None,
    ) -> None:
        self._loop = loop
        self._inner = inner
        self._settle_at = max(1, inner._queue_size // 4)
        self._going = threading.Event()
        self._going.set()
        self._listener = listener
        if listener is not None:
            if inner._queue_size == 0:
                raise InvalidConfiguration("a message listener needs a receiver queue")
            threading.Thread(target=self._listen, name="penstock-listener", daemon=True).start()

    def topic(self) -> str:
        """The topic, or the several topics or the pattern by commas."""
        return self._inner.topic()

    def subscription_name(self) -> str:
        """The subscription's name."""
        return self._inner.subscription_name()

    def consumer_name(self) -> str:
        """The consumer's name."""
        return self._inner.consumer_name()

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._inner.is_connected()

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Wait for a message.

        Args:
            timeout_millis: How long to wait; for ever when it is None.

        Raises:
            Timeout: There was none in time.
        """
        if self._listener is not None and threading.current_thread().name != "penstock-listener":
            raise InvalidConfiguration("this consumer's messages go to its listener")
        return self._next(timeout_millis)

    def batch_receive(self) -> list[Message]:
        """Wait for as many messages as the batch receive policy says; fewer, or none, when its time is over."""
        return self._loop.call(self._inner.batch_receive())

    def acknowledge(
        self, message: Message | MessageId, reply: bytes | None = None, is_error: bool = False
    ) -> None:
        """Acknowledge a message: it will not be delivered again.

        Args:
            message: The message or its id.
            reply: What to reply to a request (PIP-371).
            is_error: Whether the reply tells of an error.

        Raises:
            OperationNotSupported: The broker does not know replies, or the id's topic is not known.
        """
        if reply is not None:
            self._loop.call(self._inner.acknowledge(message, reply, is_error))
            return
        self._check(message)
        self._loop.post(self._inner._acknowledge, message, None, False)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it.

        Raises:
            CumulativeAcknowledgementNotAllowedError: The subscription is Shared or KeyShared.
        """
        kind = self._inner._kind
        if kind in (ConsumerType.Shared, ConsumerType.KeyShared):
            raise CumulativeAcknowledgementNotAllowedError(
                f"a {kind.name} subscription has no order to acknowledge up to"
            )
        self._check(message)
        self._loop.post(self._inner._acknowledge_cumulative, message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Let a message be delivered again after `negative_ack_redelivery_delay_ms`."""
        self._check(message)
        self._loop.post(self._inner._negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Let every message that is not acknowledged be delivered again, now."""
        self._loop.post(self._inner.redeliver_unacknowledged_messages)

    def pause_message_listener(self) -> None:
        """Let the listener rest after the message it has."""
        self._going.clear()

    def resume_message_listener(self) -> None:
        """Let the listener go on."""
        self._going.set()

    def seek(self, messageid: MessageId | int) -> None:
        """Move the subscription to after a message, or to the first one published at a time, in ms."""
        self._loop.call(self._inner.seek(messageid))

    def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message. Raises OperationNotSupported with several topics."""
        return self._loop.call(self._inner.get_last_message_id())

    def unsubscribe(self, force: bool = False) -> None:
        """Delete the subscription, then close.

        Args:
            force: Although other consumers use it.
        """
        self._loop.call(self._inner.unsubscribe(force))
        self._going.set()

    def close(self) -> None:
        """Leave; what was not acknowledged goes to other consumers."""
        self._loop.call(self._inner.close())
        self._going.set()

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except AlreadyClosed:
                return

    def _next(self, timeout_millis: int | None) -> Message:
        inner = self._inner
        message = inner._arrivals.take() if inner._error is None else None
        if message is not None:
            # Accounted for in groups: the broker is told in halves of the queue anyway.
            inner._unsettled.append(message)
            if len(inner._unsettled) >= self._settle_at or not inner._arrivals:
                self._loop.post(inner._settle)
            return message
        return self._loop.call(inner.receive(timeout_millis))

    def _check(self, message: Message | MessageId) -> None:
        """Errors are for whoever calls, not for the loop."""
        message_id = message._id if isinstance(message, Message) else message
        error = self._inner._receiver_of(message_id).error
        if error is not None:
            raise error

    def _listen(self) -> None:
        assert self._listener is not None
        while True:
            try:
                message = self._next(None)
            except PulsarException:
                return
            self._going.wait()
            try:
                self._listener(self, message)
            except Exception:
                log.exception("a message listener failed")
