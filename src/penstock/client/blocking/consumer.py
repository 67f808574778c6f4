"""Consumers for programs without a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.client.aio import consumer as aio
from penstock.client.aio.incoming import AnyConsumer, Incoming
from penstock.client.aio.tasks import log
from penstock.client.errors import AlreadyClosed, InvalidConfiguration, PulsarException
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .loop import LoopThread

LISTENER: Final = "penstock-listener"  # the threads that call listeners


class Consumer(AnyConsumer):
    """Receives from one topic or several, made by `Client.subscribe`."""

    def __init__(
        self,
        loop: LoopThread,
        inner: aio.Consumer,
        listener: Callable[[Consumer, Message], Any] | None = None,
    ) -> None:
        super().__init__(inner.incoming)
        self._loop = loop
        self._inner = inner
        self._going = threading.Event()
        self._going.set()
        self._listener = listener
        if listener is not None:
            if inner.incoming.queue_size == 0:
                raise InvalidConfiguration("a message listener needs a receiver queue")
            follow(LISTENER, "a message listener", self.receive, self._listen)

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Wait for a message.

        Args:
            timeout_millis: The longest wait; unlimited if None.

        Raises:
            Timeout: There was none in time.
        """
        if self._listener is not None and threading.current_thread().name != LISTENER:
            raise InvalidConfiguration("this consumer's messages go to its listener")
        return receive(self._loop, self.incoming, timeout_millis)

    def batch_receive(self) -> list[Message]:
        """Wait for as many messages as the batch receive policy says; fewer, or none, after its timeout."""
        return self._loop.call(self._inner.batch_receive())

    def acknowledge(
        self, message: Message | MessageId, reply: bytes | None = None, is_error: bool = False
    ) -> None:
        """Acknowledge a message: it will not be delivered again.

        Args:
            message: The message or its id.
            reply: What to reply to a request (PIP-371).
            is_error: Whether the reply is an error.

        Raises:
            OperationNotSupported: The broker does not know replies, or the id's topic is not known.
        """
        if reply is not None:
            self._loop.call(self._inner.acknowledge(message, reply, is_error))
            return
        self.incoming.check(message)  # here: errors are for the caller, not for the loop
        self._loop.post(self.incoming.acknowledge, message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge a message and all before it.

        Raises:
            CumulativeAcknowledgementNotAllowedError: The subscription is Shared or KeyShared.
        """
        self.incoming.check_order()
        self.incoming.check(message)
        self._loop.post(self.incoming.acknowledge_cumulative, message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Let a message be delivered again after `negative_ack_redelivery_delay_ms`."""
        self.incoming.check(message)
        self._loop.post(self.incoming.negative_acknowledge, message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Let every message that is not acknowledged be delivered again, now."""
        self._loop.post(self.incoming.redeliver_all)

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
        """Leave; unacknowledged messages go to other consumers."""
        self._loop.call(self._inner.close())
        self._going.set()

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.receive()
            except AlreadyClosed:
                return

    def _listen(self, message: Message) -> None:
        assert self._listener is not None
        self._going.wait()
        self._listener(self, message)


def receive(loop: LoopThread, incoming: Incoming, timeout_millis: int | None) -> Message:
    """Wait for a message. One that is here already is taken without the loop, which accounts for it later."""
    message = incoming.take()
    if message is None:
        return loop.call(incoming.receive(None if timeout_millis is None else timeout_millis / 1000))
    if incoming.settle_due:
        loop.post(incoming.settle)
    return message


def follow(thread: str, what: str, receive: Callable[[], Message], work: Callable[[Message], Any]) -> None:
    """Start a thread that passes messages to `work` one by one, until the consumer is closed."""

    def run() -> None:
        while True:
            try:
                message = receive()
            except PulsarException:
                return
            try:
                work(message)
            except Exception:
                log.exception("%s failed", what)

    threading.Thread(target=run, name=thread, daemon=True).start()
