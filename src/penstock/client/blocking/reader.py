"""Readers for programs without a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.aio import reader as aio
from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .following import LISTENER, follow, receive
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
            listen = listener
            follow(LISTENER, "a reader listener", self.read_next, lambda message: listen(self, message))

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
        return receive(self._loop, self._inner.incoming, timeout_millis)

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
