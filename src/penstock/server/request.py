"""One request of a connection: its body as it comes, and its answer as bytes.

A whole answer is written by one call, head and body together; ASGI's events are for what comes or goes in parts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from penstock.protocols.http.answers import Header
from penstock.protocols.http.exchange import Event, Exchange, Named, Scope
from penstock.protocols.rates import SCOPE_KEY
from penstock.protocols.transport import PIECE_BYTES

from .heads import Heads
from .lines import HEADER_LINES, STATUS_LINES

log = logging.getLogger(__name__)

Serve = Callable[[Exchange], Awaitable[None]]


_BODILESS: Final = (204, 304)
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE: Final = b"connection: close\r\n"


class Carrier(Protocol):
    """What a request needs of its connection."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    write_paused: bool

    @property
    def default_lines(self) -> bytes:
        """The headers of every answer."""
        ...

    async def writable(self) -> None:
        """Completes when the peer has taken enough of the written bytes."""

    def resume_reading(self) -> None:
        """Resume reading, if paused."""

    def release(self, size: int) -> None:
        """So many bytes of the request are held no more."""

    def keep_alive_probes(self) -> None:
        """Have the system find out that a silent peer is gone."""

    def on_answered(self) -> None:
        """The answer is complete."""

    def hang_up(self) -> None:
        """Close the connection once the answer is written."""


class Request(Exchange):
    """`answered`: the answer is complete. `more_body`: the body is not."""

    __slots__ = (
        "_body",
        "_carrier",
        "_changed",
        "_chunked",
        "_head",
        "_left",
        "_news",
        "_when_gone",
        "_whole",
        "answered",
        "cut",
        "disconnected",
        "expects_continue",
        "keep_alive",
        "more_body",
        "streams",
    )

    def __init__(
        self,
        carrier: Carrier,
        scope: Scope,
        *,
        named: Named | None = None,
        body: bytes | None = None,
        keep_alive: bool = True,
        expects_continue: bool = False,
    ) -> None:
        """`body`: the whole one, if it is complete."""
        super().__init__(scope, named)
        self._carrier = carrier
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.disconnected = False
        self.answered = False
        self.more_body = body is None
        self.streams = False  # the body has no deadline
        self._whole = False  # a streamed body is not ended before an answer has begun
        self.cut = False  # a streamed body was ended, and what follows of it is dropped
        self._body: bytes | bytearray = body or b""
        self._news = body is not None  # since the last `receive`
        self._changed: asyncio.Event | None = None  # if a caller waits for news
        self._when_gone: Callable[[], None] | None = None
        self._head = b""  # of the answer, until it is written
        self._chunked = False
        self._left: int | None = 0  # of the body; None: it ends with the connection

    # -- from the connection

    def feed(self, data: bytes) -> int:
        """Some of the body came; returns the number of untaken bytes."""
        if not self._body:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        self.notify()
        return len(self._body)

    def remember(self, data: bytes, heads: Heads) -> None:
        """Remember the head: `data` is all that was received of the request."""
        if not self.more_body:
            named = Named(self.authorization, self.encoding, self.length, self.traceable, self.forwarded)
            heads.remember(data, len(self._body), {**self.scope}, named)

    def notify(self) -> None:
        """Something changed that a `receive` waits for."""
        self._news = True
        if self._changed is not None:
            self._changed.set()

    def disconnect(self) -> None:
        """The client is gone, or ignored from now on."""
        self.disconnected = True
        self.notify()
        when_gone, self._when_gone = self._when_gone, None
        if when_gone is not None:
            when_gone()

    async def run(self, serve: Serve) -> None:
        """Have the request answered; whatever happens, the connection does not wait for ever."""
        try:
            await serve(self)
        except asyncio.CancelledError:
            log.warning("a request was cut off", extra={"path": self.scope["path"]})
        except Exception:
            log.exception("a request failed", extra={"path": self.scope["path"]})
        if self.answered or self.disconnected:
            return
        if self.started:
            log.error("an answer was not completed", extra={"path": self.scope["path"]})
            self._carrier.transport.close()
            return
        await self.whole(
            500,
            ((b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")),
            b"Internal Server Error",
        )

    def call_when_gone(self, callback: Callable[[], None] | None) -> bool:
        if callback is not None and self.disconnected:
            callback()
            return True
        self._when_gone = callback
        if callback is not None:
            self._carrier.resume_reading()  # a connection that is not read ends unseen
        return True

    # -- the request's body

    def stream_body(self, *, whole: bool = False) -> None:
        self.streams, self._whole = True, whole
        self._carrier.keep_alive_probes()

    def end_body(self) -> None:
        if self.streams and self.more_body and (self.started or not self._whole):
            self.cut, self.more_body = True, False
            self.notify()

    def settle(self, size: int) -> None:
        self._carrier.release(size)

    def buffered(self) -> bytes | None:
        if self.more_body or self.expects_continue or self.disconnected or self.answered:
            return None
        self._news = False
        self._carrier.resume_reading()
        return self._taken()

    async def receive_event(self) -> Event:
        carrier = self._carrier
        if self.expects_continue and not carrier.transport.is_closing():
            carrier.transport.write(_CONTINUE)
            self.expects_continue = False
        if not self.disconnected and not self.answered:
            carrier.resume_reading()
            if not self._news:
                self._changed = self._changed or asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
            self._news = False
        if self.disconnected or self.answered:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._taken(), "more_body": self.more_body}

    def _taken(self) -> bytes:
        body, self._body = bytes(self._body), b""
        return body

    # -- the answer

    async def whole(self, status: int, headers: Sequence[Header], body: bytes | None) -> None:
        carrier = self._carrier
        if (
            body is None
            or len(body) > PIECE_BYTES
            or carrier.write_paused
            or self.disconnected
            or self.started
        ):
            await super().whole(status, headers, body)
            return
        lines = self._lines(status, (*headers, *self.shown) if self.shown else headers)
        lines.append(b"content-length: %d\r\n\r\n" % len(body))
        self.started, self.status = True, status
        self.expects_continue = False
        if self.method != "HEAD":
            lines.append(body)
            self.size = len(body)
        carrier.transport.write(b"".join(lines))
        self._finish()
        if self.size and SCOPE_KEY in self.scope:
            await self.spend(self.size, more=False)

    async def send_event(self, event: Event) -> None:
        carrier = self._carrier
        if carrier.write_paused and not self.disconnected:
            await carrier.writable()
        if self.disconnected:
            return
        if self.answered:
            raise RuntimeError("an answer goes on after its end")
        if event["type"] == "http.response.start":
            self._open(event["status"], event["headers"])
            carrier.loop.call_soon(
                self._write_head
            )  # unless it goes with the first part, which follows at once
        else:
            self._write_part(event.get("body", b""), last=not event.get("more_body", False))

    def _lines(self, status: int, headers: Sequence[Header]) -> list[bytes]:
        lines = [STATUS_LINES[status], self._carrier.default_lines]
        closes = False
        for header in headers:
            lines.append(HEADER_LINES[header])
            if header[0] == b"connection" and b"close" in header[1].lower():
                closes = True
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(_CLOSE)
        return lines

    def _open(self, status: int, headers: Sequence[Header]) -> None:
        lines = self._lines(status, headers)
        length = next((value for name, value in headers if name == b"content-length"), None)
        unframed = length is None and self.method != "HEAD" and status not in _BODILESS
        self._chunked = unframed and self.scope["http_version"] != "1.0"  # which has no chunks (RFC 9112 6.1)
        self._left = int(length or 0) if not unframed or self._chunked else None
        lines.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        self._head = b"".join(lines)
        self.expects_continue = False

    def _write_head(self) -> None:
        if self._head:
            self._carrier.transport.write(self._head)
            self._head = b""

    def _write_part(self, body: bytes, *, last: bool) -> None:
        if self.method == "HEAD":
            body, self._left = b"", 0
        elif self._chunked:
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if last:
                body += b"0\r\n\r\n"
        elif self._left is not None:
            if len(body) > self._left:
                raise RuntimeError("an answer is longer than its content-length")
            self._left -= len(body)
        if self._head:
            body, self._head = self._head + body, b""
        if body:
            self._carrier.transport.write(body)
        if not last:
            return
        if self._left:
            raise RuntimeError("an answer is shorter than its content-length")
        self._finish()

    def _finish(self) -> None:
        self.answered = True
        self.notify()
        if not self.keep_alive:
            self._carrier.hang_up()
        self._carrier.on_answered()
