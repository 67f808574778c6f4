"""The replies that a producer's requests wait for (PIP-371), on their way to its socket.

When a wait ends, a call-back puts its frame before the one task that writes them: no request has a task.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from penstock.broker.producer import Reply, ReplyOrError, Request
from penstock.model.errors import ErrorKind, PenstockError

from .backlog import Backlog
from .frames import ProducerReply, encode
from .socket import Socket

WAITS_MAX: Final = 10_000  # of one socket
DUE_BYTES_MAX: Final = 32 * 1024 * 1024  # replies that came and were not taken; one more may overdraw it
GROUP_MAX: Final = 64  # replies written before others have their turn on the loop
GROUP_BYTES: Final = 64 * 1024  # of them, written at once; one more may overdraw it


class _Asked(msgspec.Struct, gc=False):
    message_id: str
    context: str | None


class _Due(msgspec.Struct, gc=False):
    """The end of a wait: a reply, or why there is none."""

    asked: _Asked
    reply: Reply | None
    result: str
    size: int
    value: Any = UNSET
    arrived_ms: int = 0

    def frame(self) -> bytes:
        reply = self.reply
        version = None if reply is None else reply.schema_version
        return encode(
            ProducerReply(
                result=self.result,
                request_message_id=self.asked.message_id,
                reply_content=UNSET if reply is None else reply.content,
                is_error_result=False if reply is None else reply.is_error,
                schema_version=UNSET if version is None else version,
                reply_value=self.value,
                context=UNSET if self.asked.context is None else self.asked.context,
            )
        )


class Replies:
    """The open requests of one socket; `value_of` gives a reply as JSON where it names a schema."""

    def __init__(self, socket: Socket, value_of: Callable[[Reply], Any]) -> None:
        self._socket = socket
        self._value_of = value_of
        self._open: dict[Request, _Asked | None] = {}  # None until the receipt is written
        self._due: Backlog[_Due] = Backlog(2 * WAITS_MAX, DUE_BYTES_MAX)

    def check_room(self) -> None:
        """Raise TOO_MANY_REQUESTS when too many wait."""
        if len(self._open) >= WAITS_MAX:
            raise PenstockError(
                ErrorKind.TOO_MANY_REQUESTS, f"{WAITS_MAX} requests of this socket wait for their replies"
            )

    def opened(self, request: Request) -> None:
        """A request begins."""
        self._open[request] = None

    def withdraw(self, request: Request) -> None:
        """A request was not published, or its sender got that answer."""
        if self._open.pop(request, self) is not self:
            request.withdraw()

    def follow(self, request: Request, message_id: str, context: str | None) -> None:
        """The receipt is written: from now on the reply may be."""
        if request in self._open:
            self._open[request] = _Asked(message_id, context)
            request.call_when_ended(self._ended)

    def _ended(self, request: Request, ended: ReplyOrError) -> None:
        asked = self._open.pop(request, None)
        if asked is None:
            return
        if isinstance(ended, PenstockError):
            self._end(asked, "timeout" if ended.kind is ErrorKind.REQUEST_TIMEOUT else ended.message)
        elif self._due.full:
            self._end(asked, "the reply was dropped: this socket is not read")
        else:
            self._due.add(_Due(asked, ended, "ok", len(ended.content), self._value_of(ended)))

    def _end(self, asked: _Asked, result: str) -> None:
        self._due.add(_Due(asked, None, result, 0))

    async def run(self) -> None:
        """Write what comes, until `close`: what came in one turn of the loop with one write, within bounds."""
        while group := await self._due.take(GROUP_MAX):
            await self._write(group)
            if len(group) == GROUP_MAX:
                await asyncio.sleep(0)
            del group  # it would stay while the next is waited for

    async def _write(self, group: list[_Due]) -> None:
        send_all = self._socket.send_all
        frames: list[bytes] = []
        size = 0
        for due in group:
            frames.append(due.frame())
            size += due.size
            if size >= GROUP_BYTES:
                await send_all(frames)
                frames, size = [], 0
        if frames:
            await send_all(frames)

    def close(self, reason: str = "") -> None:
        """The requester waits no more. With a `reason` the peer is still there, and gets it."""
        for request in list(self._open):
            if not reason:
                self.withdraw(request)
                continue
            text = f"{reason}; the request is stored, nobody waits for its reply"
            request.fail(PenstockError(ErrorKind.UNAVAILABLE, text))
        self._open.clear()
        self._due.close()
