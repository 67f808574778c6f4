"""Sending one message and waiting for its receipt without changing threads.

The usual way leads through the loop's thread and back, which costs more than all else a message needs. Where
the loop has nothing to do it is stopped instead, and the caller itself writes to the connection and reads what
comes, whomever it concerns, until the receipt is there. A broker that takes longer is waited for in the usual way.
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import Final

from penstock.client.aio.link import Link
from penstock.client.aio.publisher import Publisher
from penstock.client.errors import PulsarException
from penstock.client.message_id import MessageId

from .loop import LoopThread

PATIENCE_S: Final = 0.002  # how long the loop may stand still
READ_BYTES: Final = 32 * 1024  # what costs no system call to allocate


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
    until = time.monotonic() + PATIENCE_S
    fileno, left_s = link.fileno, PATIENCE_S
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
