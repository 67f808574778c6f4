"""Readers for programs without a loop, and the tables made by them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.aio import reader as aio
from penstock.client.aio.incoming import AnyReader
from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message
from penstock.client.message_id import MessageId

from .consumer import LISTENER, follow, receive
from .loop import LoopThread

Seen = Callable[[str, Any], Any]


class Reader(AnyReader):
    """Reads a topic from its own position, created by `Client.create_reader`."""

    def __init__(
        self,
        loop: LoopThread,
        inner: aio.Reader,
        listener: Callable[[Reader, Message], Any] | None = None,
    ) -> None:
        super().__init__(inner.incoming)
        self._loop = loop
        self._inner = inner
        if listener is not None:
            listen = listener
            follow(LISTENER, "a reader listener", self.read_next, lambda message: listen(self, message))

    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Wait for the next message.

        Args:
            timeout_millis: The longest wait; unlimited if None.

        Raises:
            Timeout: There was none in time.
        """
        return receive(self._loop, self.incoming, timeout_millis)

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


class TableView:
    """A topic as a table, the last value of each key, made by `Client.create_table_view`; what the topic held then is there at once, what follows comes later."""

    def __init__(self, topic: str, subscription: str | None, reader: Reader) -> None:
        self._topic = topic
        self._subscription = subscription
        self._reader = reader
        self._lock = threading.Lock()
        self._rows: dict[str, Any] = {}
        self._listeners: list[Seen] = []
        while reader.has_message_available():
            self._see(reader.read_next())
        follow("penstock-table-view", "a table view", reader.read_next, self._see)

    def get(self, key: str) -> Any:
        """The value of a key, None when it has none."""
        with self._lock:
            return self._rows.get(key)

    def for_each(self, callback: Seen) -> None:
        """Call `callback(key, value)` for every key."""
        with self._lock:
            rows = dict(self._rows)
        for key, value in rows.items():
            callback(key, value)

    def for_each_and_listen(self, callback: Seen) -> None:
        """Call `callback(key, value)` for every key, and again whenever one changes."""
        with self._lock:
            self._listeners.append(callback)
            rows = dict(self._rows)
        for key, value in rows.items():
            callback(key, value)

    def close(self) -> None:
        """Follow the topic no more."""
        self._reader.close()

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        if self._subscription is None:
            return f"TableView(topic={self._topic})"
        return f"TableView(topic={self._topic}, subscription={self._subscription})"

    def _see(self, message: Message) -> None:
        key = message.partition_key()
        value = message.value()
        with self._lock:
            if message.has_null_value() or not message.data():
                self._rows.pop(key, None)
            else:
                self._rows[key] = value
            listeners = list(self._listeners)
        for listener in listeners:
            listener(key, value)
