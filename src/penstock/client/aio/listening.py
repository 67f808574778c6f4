"""Calling listeners: one message after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from penstock.client.errors import AlreadyClosed
from penstock.client.message import Message

from .consumer import Consumer
from .reader import Reader
from .tasks import log


async def listen(consumer: Consumer, listener: Callable[[Consumer, Message], Any]) -> None:
    """Call `listener` with each message; the messages it fails for are not acknowledged."""
    await _call(consumer.receive, consumer, listener)


async def read_on(reader: Reader, listener: Callable[[Reader, Message], Any]) -> None:
    """Call `listener` with each message read."""
    await _call(reader.read_next, reader, listener)


async def _call(receive: Callable[[], Any], source: Any, listener: Callable[[Any, Message], Any]) -> None:
    while True:
        try:
            message = await receive()
        except AlreadyClosed:
            return
        try:
            outcome = listener(source, message)
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a message listener failed")
        await asyncio.sleep(0)  # a full queue must not keep the loop
