"""Readers for programs without a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.aio import reader as aio
from penstock.client.aio.tasks import log
from penstock.client.errors import AlreadyClosed, PulsarException
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .loop import LoopThread


class Reader:
    """Reads a topic from a position of its own, made by `Client.create_reader`."""

    def __init__(
        self,
        loop: LoopThread,
        inner: aio.Reader,
        listener: Callable[[Reader, Message], Any] | None = None,
    ) -> None:
        self._loop = loop
        self._inner = inner
        if listener is not None:
            threading.Thread(
                target=self._listen, args=(listener,), name="penstock-listener", daemon=True
            ).start()

    def topic(self) -> str:
        """The topic."""
        return self._inner.topic()

    def is_connected(self) -> bool:
        """Whether there is a connection to every broker concerned."""
        return self._inner.is_connected()

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Wait for the next message.

        Args:
            timeout_millis: How long to wait; for ever when it is None.

        Raises:
            Timeout: There was none in time.
        """
        consumer = self._inner._consumer
        message = consumer._arrivals.take() if consumer._error is None else None
        if message is not None:
            consumer._unsettled.append(message)
            self._loop.post(self._settle, message)
            return message
        return self._loop.call(self._inner.read_next(timeout_millis))

    def has_message_available(self) -> bool:
        """Whether there is a message to be read now."""
        return self._loop.call(self._inner.has_message_available())

    def seek(self, messageid: MessageId | int) -> None:
        """Go to after a message, or to the first one published at a time, in ms."""
        self._loop.call(self._inner.seek(messageid))

    def close(self) -> None:
        """Leave the topic."""
        self._loop.call(self._inner.close())

    def __iter__(self) -> Iterator[Message]:
        while True:
            try:
                yield self.read_next()
            except AlreadyClosed:
                return

    def _settle(self, message: Message) -> None:
        self._inner._consumer._settle()
        self._inner._done(message)

    def _listen(self, listener: Callable[[Reader, Message], Any]) -> None:
        while True:
            try:
                message = self.read_next()
            except PulsarException:
                return
            try:
                listener(self, message)
            except Exception:
                log.exception("a reader listener failed")
