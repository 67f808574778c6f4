"""A connection of HTTP/1.1 to another process: one request after the other, bodies in bounded parts."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Final, cast

import httptools

from penstock.broker.fleet import Header
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import Tasks

HIGH_BYTES: Final = 262_144  # received and not taken: reading stops above it
LOW_BYTES: Final = 65_536
WRITE_BYTES: Final = 65_536  # written and not sent: the sender waits above it


class ConnectionCutError(Exception):
    """The connection ended within a request. `begun`: an answer had begun."""

    def __init__(self, begun: bool) -> None:
        super().__init__("the connection was cut")
        self.begun = begun


class Answer:
    """The answer to a request. `sent`: the whole request was sent; `complete`: the whole answer was received; `exceeded`: and
    something after it, which belongs to no request."""

    def __init__(self, connection: "Connection", *, bodiless: bool) -> None:
        self.status = 0
        self.headers: list[Header] = []
        self.begun = self.sent = self.complete = self.exceeded = False
        self._failed: Exception | None = None
        self._connection = connection
        self._bodiless = bodiless
        self._keeps_alive = False
        self._parser = httptools.HttpResponseParser(self)
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._news: asyncio.Future[None] | None = None

    async def head(self) -> None:
        """Completes with the head of the answer; raises ConnectionCutError."""
        while not self.begun:
            await self._changed()

    async def part(self) -> bytes:
        """As `broker.ForwardedAnswer.part`."""
        while not self._parts and not self.complete:
            try:
                await self._changed()
            except ConnectionCutError:
                raise PenstockError(ErrorKind.UNAVAILABLE, "the answer of another process was cut") from None
        if not self._parts:
            return b""
        body = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._connection.resume_reading()
        return body

    async def _changed(self) -> None:
        if self._failed is not None:
            raise self._failed
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def fail(self, error: Exception) -> None:
        """No more of it comes."""
        if not self.complete and self._failed is None:
            self._failed = error
            self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def feed(self, data: bytes) -> None:
        """Bytes came; raises HttpParserError."""
        try:
            self._parser.feed_data(data)
        finally:
            self._notify()  # also of an answer that something else follows

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the connection."""
        taken = not self._parts and not self._connection.paused
        return self.sent and self.complete and self._keeps_alive and taken

    # -- the parser's calls

    def on_message_begin(self) -> None:
        if self.complete:
            self.exceeded = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.begun:  # else it is a trailer
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status, self.begun = status, True
        self._keeps_alive = bool(self._parser.should_keep_alive()) and not self._bodiless
        if self._bodiless:  # the parser does not know that the request was a HEAD
            self.complete = True

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._parts.append(body)
        self._size += len(body)
        if self._size > HIGH_BYTES:
            self._connection.pause_reading()

    def on_message_complete(self) -> None:
        self.complete = self.begun


class Connection(asyncio.Protocol):
    """`closed`: no other request may be sent. `paused`: nothing is read. `idle_since`: the loop's time at which the last
    request ended."""

    def __init__(self, tasks: Tasks) -> None:
        """`tasks` send bodies that come in parts."""
        self._tasks = tasks
        self._sending: asyncio.Task[None] | None = None
        self.closed = self.paused = False
        self.idle_since = 0.0
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # -- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:  # while it was being opened
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(WRITE_BYTES)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.complete:
            self.close()  # no request was sent
            return
        try:
            answer.feed(data)
        except httptools.HttpParserError:
            self.close()
        else:
            if answer.exceeded:
                self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._writable.set()
        if self._answer is not None:
            self._answer.fail(ConnectionCutError(self._answer.begun))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`."""
        if self._transport is not None and not self.paused and not self.closed:
            self.paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, if reading was paused."""
        if self._transport is not None and self.paused and not self.closed:
            self.paused = False
            self._transport.resume_reading()

    # -- requests

    async def send(
        self, method: bytes, target: bytes, headers: Sequence[Header], body: bytes | AsyncIterator[bytes]
    ) -> Answer:
        """Send a request, and wait for the head of its answer; raises ConnectionCutError, and what `body` does."""
        self._answer = answer = Answer(self, bodiless=method == b"HEAD")
        transport = self._transport
        if transport is None or self.closed:
            raise ConnectionCutError(False)
        self.resume_reading()
        lines = [method + b" " + target + b" HTTP/1.1"]
        lines += [name + b": " + value for name, value in headers]
        head = b"\r\n".join([*lines, b"", b""])
        if isinstance(body, bytes):
            answer.sent = True
            transport.write(head + body)
        else:
            transport.write(head)
            # Concurrently with the answer, which may begin before the body ends.
            self._sending = self._tasks.spawn(
                self._send_parts(transport, answer, headers, body), "pass on a body"
            )
        await answer.head()
        return answer

    async def _send_parts(
        self,
        transport: asyncio.Transport,
        answer: Answer,
        headers: Sequence[Header],
        body: AsyncIterator[bytes],
    ) -> None:
        chunked = any(name == b"transfer-encoding" for name, _ in headers)
        try:
            async for part in body:
                if self.closed:
                    return
                if part:
                    transport.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                    await self._writable.wait()
        except Exception as error:
            answer.fail(error)
            return
        if chunked:
            transport.write(b"0\r\n\r\n")
        answer.sent = True

    def close(self) -> None:
        """End the connection and the calls that wait on it."""
        self.closed = True
        if self._sending is not None:
            self._sending.cancel()
        if self._transport is not None:
            self._transport.abort()
