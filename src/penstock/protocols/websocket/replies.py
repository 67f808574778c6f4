"""The replies that a producer's requests wait for (PIP-371), on their way to its socket.

When a wait ends, a call-back makes its frame and queues it: no request has a task. Frames wait here only while the socket takes
nothing.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from penstock.broker.producer import Reply, ReplyOrError, Request
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.backlog import Backlog

from .frames import ProducerReply, encode, encode_reply
from .socket import Socket

WAITS_MAX: Final = 10_000  # of one socket
DUE_BYTES_MAX: Final = 32 * 1024 * 1024  # replies that the socket does not take; one more may overdraw it
GROUP_MAX: Final = 64  # frames that waited, written before others have their turn on the loop


class _Due(msgspec.Struct, gc=False):
    """The end of a wait, before its socket takes it."""

    message_id: bytes
    context: str | None
    ended: ReplyOrError
    size: int
    arrived_ms: int = 0


class Replies:
    """The open requests of one socket; `value_of` gives a reply as JSON if it names a schema."""

    def __init__(self, socket: Socket, value_of: Callable[[Reply], Any]) -> None:
        self._socket = socket
        self._value_of = value_of
        self._open: set[Request] = set()
        self._due: Backlog[_Due] = Backlog(2 * WAITS_MAX, DUE_BYTES_MAX)
        self._waiting = 0  # of them, and of those that `run` is about to write

    def check_room(self, more: int = 0) -> None:
        """Raise TOO_MANY_REQUESTS when too many wait, with `more` that are about to."""
        if len(self._open) + more >= WAITS_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"{WAITS_MAX} requests of this socket wait for their replies"
            )

    def opened(self, requests: Iterable[Request | None]) -> None:
        """Requests begin."""
        self._open.update([request for request in requests if request is not None])

    def withdraw(self, request: Request) -> None:
        """A request was not published, or its sender got that answer."""
        if request in self._open:
            self._open.discard(request)
            request.withdraw()

    def follow(self, receipts: Iterable[tuple[Request, bytes, str | None]]) -> None:
        """Receipts are queued: from now on the replies may be. Each has the request, its message's id, and the context."""
        for request, message_id, context in receipts:
            if request in self._open:
                request.call_when_ended(partial(self._ended, message_id, context))

    def _ended(self, message_id: bytes, context: str | None, request: Request, ended: ReplyOrError) -> None:
        self._open.discard(request)
        socket = self._socket
        if not self._waiting and socket.writable.is_set():
            socket.queue(self._frame(message_id, context, ended))
            return
        if isinstance(ended, Reply) and self._due.full:
            ended = PenstockError(ErrorKind.UNAVAILABLE, "the reply was dropped: this socket is not read")
        size = len(ended.content) if isinstance(ended, Reply) else 0
        self._waiting += 1
        self._due.add(_Due(message_id, context, ended, size))

    def _frame(self, message_id: bytes, context: str | None, ended: ReplyOrError) -> bytes:
        if type(ended) is Reply and ended.schema_version is None:
            return encode_reply(message_id, ended.content, ended.is_error, context)
        made = ProducerReply(
            request_message_id=message_id.decode(), context=UNSET if context is None else context
        )
        if isinstance(ended, PenstockError):
            made.result = "timeout" if ended.kind is ErrorKind.REQUEST_TIMEOUT else ended.message
        else:
            made.reply_content, made.is_error_result = ended.content, ended.is_error
            made.schema_version = UNSET if ended.schema_version is None else ended.schema_version
            made.reply_value = self._value_of(ended)
        return encode(made)

    async def run(self) -> None:
        """Write what the socket did not take, when it does, until `close`."""
        while group := await self._due.take(GROUP_MAX):
            await self._socket.writable.wait()
            for due in group:
                self._socket.queue(self._frame(due.message_id, due.context, due.ended))
            self._waiting -= len(group)
            if len(group) == GROUP_MAX:
                await asyncio.sleep(0)
            del due, group  # they would stay while the next is waited for
        self._socket.flush()

    def close(self, reason: str = "") -> None:
        """The requester waits no more. With a `reason` the peer is still there, and gets it."""
        for request in list(self._open):
            if not reason:
                self.withdraw(request)
                continue
            text = f"{reason}; the request is stored, its reply will be dropped"
            request.fail(PenstockError(ErrorKind.UNAVAILABLE, text))
        self._open.clear()
        self._due.close()
