"""Who waits for what a producer sends."""

from __future__ import annotations

import asyncio

from penstock.client.draft import ReplyResult
from penstock.client.errors import PulsarException
from penstock.client.message_id import MessageId


class Awaited:
    """A coroutine that awaits the message's id."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[MessageId]) -> None:
        self.future = future

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif message_id is not None:
            self.future.set_result(message_id)


class AwaitedReply:
    """A coroutine that awaits the reply to a request; the message's id alone tells it nothing."""

    __slots__ = ("future",)
    is_request = True

    def __init__(self, future: asyncio.Future[ReplyResult]) -> None:
        self.future = future

    def __call__(self, error: PulsarException | None, message_id: MessageId | None) -> None:
        if error is not None and not self.future.done():
            self.future.set_exception(error)

    def replied(self, result: ReplyResult) -> None:
        """The reply came, perhaps before the message's receipt."""
        if not self.future.done():
            self.future.set_result(result)
