"""What the consumers and readers of the blocking client do alike: take a message, and follow in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from penstock.client.aio.incoming import Incoming
from penstock.client.aio.tasks import log
from penstock.client.errors import PulsarException
from penstock.client.message import Message

from .loop import LoopThread

LISTENER: Final = "penstock-listener"  # the threads that call listeners


def receive(loop: LoopThread, incoming: Incoming, timeout_millis: int | None) -> Message:
    """Wait for a message. One that is here already is taken without the loop, which accounts for it later."""
    message = incoming.take()
    if message is None:
        return loop.call(incoming.receive(None if timeout_millis is None else timeout_millis / 1000))
    if incoming.settle_due:
        loop.post(incoming.settle)
    return message


def follow(thread: str, what: str, receive: Callable[[], Message], work: Callable[[Message], Any]) -> None:
    """Start a thread that gives `work` one message after the other, until there are no more."""

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
