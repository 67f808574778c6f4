"""Threads that wait for what a producer sends."""

from __future__ import annotations

import threading

from penstock.client.errors import PulsarException
from penstock.client.message_id import MessageId


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
        """The id. Raises why there is none."""
        self._lock.acquire()
        if self.message_id is None:
            raise self.error or PulsarException("the message was not sent")
        return self.message_id
