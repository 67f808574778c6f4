"""HTTP/1.1 of one connection: what httptools finds in its bytes becomes requests, which are answered one by one.

A request is started once its body is whole, or nothing more of it has come: most are whole by then, and are read
without waiting. Nothing here has a bound; `connections` has them.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from typing import Any, Final, cast

import httptools

from .addresses import is_tls, local_address, remote_address
from .forwarded import HttpScheme, forwarded_scheme
from .heads import TARGETS, Heads
from .request import Request, Serve
from .state import State
from .worker import Worker

log = logging.getLogger(__name__)

BODY_BYTES_HIGH: Final = 65_536  # untaken bytes of a body at which reading pauses
PROBE_AFTER_S: Final = 60  # of silence on a connection whose request has no deadline

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}
_BAD_REQUEST: Final = b"Invalid HTTP request received."
_BAD_REQUEST_ANSWER: Final = (
    b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
    % (len(_BAD_REQUEST), _BAD_REQUEST)
)


class Http1Connection(asyncio.Protocol):
    """`request` is the one whose head was read last; those before it that are not answered yet come first."""

    def __init__(self, state: State) -> None:
        self.serve: Serve = state.app.serve
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        # What comes after a request that asks for the connection's end is passed over, rather than refused.
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.server_state = state
        self.connections = state.connections
        self.app_state: dict[str, Any] = {}
        self.transport = cast(asyncio.Transport, None)
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int | None] | None = None
        self.scheme: HttpScheme = "http"
        self.of_proxy = False  # the peer is one whose `X-Forwarded-Proto` counts
        self.url = b""
        self.headers = cast(list[tuple[bytes, bytes]], None)
        self.request: Request | None = None
        self.in_head = True  # of the request that is being read, or is to come first
        self.upgrading = False  # that request is a WebSocket's handshake
        self.expects_continue = False
        self.idle_since: float | None = None  # all requests so far are answered
        self.read_paused = False
        self.write_paused = False
        self._writable = asyncio.Event()
        self._ready: Request | None = None  # to be started
        self._running: Request | None = None  # the last that was
        self._worker = Worker(self.loop, state.tasks)
        self._heads = Heads()
        self._between = True  # the parser has seen whole requests, and nothing of the next
        self.following: deque[Request] = deque()  # when those before are answered

    @property
    def default_lines(self) -> bytes:
        return self.server_state.default_lines

    # -- the transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.connections.add(cast(Any, self))
        self.transport = transport
        self.server = local_address(transport)
        self.client = remote_address(transport)
        self.scheme = "https" if is_tls(transport) else "http"
        self.of_proxy = self.client is not None and self.server_state.proxies.include(self.client[0])

    def data_received(self, data: bytes) -> None:
        self.idle_since = None
        alone, before = self._between, self.request
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            log.warning("Invalid HTTP request received.")
            self.refuse_bytes()
        except httptools.HttpParserUpgrade:
            if self._upgrades():
                self.upgrade()
            else:
                log.warning("Unsupported upgrade request.")
        else:
            request = self.request
            # Empty lines after a request are ignored.
            if alone and self._between and request is not None and self._running is request is not before:
                request.remember(data, self._heads)
        if self._ready is not None:
            self._start_ready()

    def repeated(self, data: bytes) -> Request | None:
        """A whole request with a head that came before, to be started; None if `data` is to be parsed."""
        before = self.request
        if before is None or not (self._between and before.answered and before.keep_alive):
            return None
        head = self._heads.find(data)
        if head is None:
            return None
        self.idle_since = None
        self.request = request = Request(
            self, head.scope.copy(), named=head.named, body=data[len(head.sent) :]
        )
        return request

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(cast(Any, self))
        for request in (self._running, self.request):
            if request is not None:
                request.disconnect()
        self.forget()
        self.resume_writing()
        self.idle_since = None
        if exc is None:
            self.transport.close()

    def forget(self) -> None:
        """Drop what knows this object: the memory of both is free at once, without the collector."""
        self.parser = cast(Any, None)
        self._worker.end()
        self.request = self._running = self._ready = None
        self.following.clear()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            self._writable.clear()

    def resume_writing(self) -> None:
        if self.write_paused:
            self.write_paused = False
            self._writable.set()

    async def writable(self) -> None:
        await self._writable.wait()

    def pause_reading(self) -> None:
        """Read no more until `resume_reading`."""
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on, unless there are requests that wait for others to be answered."""
        if self.read_paused and not self.following:
            self.read_paused = False
            self.transport.resume_reading()

    # -- the parser's calls

    def on_message_begin(self) -> None:
        self._between = False
        self.url = b""
        self.headers = []
        self.in_head = True
        self.upgrading = False
        self.expects_continue = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # a trailer: nothing here asks for one, and it is not a header (RFC 9110 6.5.1)
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expects_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self.parser
        self.upgrading = bool(parser.should_upgrade()) and self._upgrades()
        if self.upgrading:
            return
        version = parser.get_http_version()
        path, raw_path, query = TARGETS[self.url]
        scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": forwarded_scheme(self.headers, self.scheme) if self.of_proxy else self.scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
            "state": self.app_state,
        }
        keep_alive = version != "1.0" and parser.should_keep_alive()
        before = self.request
        self.request = Request(self, scope, keep_alive=keep_alive, expects_continue=self.expects_continue)
        self.in_head = False
        if before is None or before.answered:
            self._ready = self.request
        else:
            self.pause_reading()
            self.following.append(self.request)

    def on_body(self, body: bytes) -> None:
        request = self.request
        if request is None or request.answered or request.cut or self.upgrading:
            return
        if request.feed(body) > BODY_BYTES_HIGH:
            self.pause_reading()

    def on_message_complete(self) -> None:
        self._between = True
        request = self.request
        if request is None or request.answered or self.upgrading:
            return
        request.more_body = False
        request.notify()
        if self._ready is not None:
            self._start_ready()

    # -- requests

    def _start_ready(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            self.start(ready, self.serve)

    def start(self, request: Request, serve: Serve) -> None:
        """Have a request answered."""
        self._running = request
        self._worker.start(request, serve)

    def on_answered(self) -> None:
        if self.transport.is_closing():
            return
        if self.following:
            self.start(self.following.popleft(), self.serve)
        else:
            self.idle_since = self.loop.time()
        self.resume_reading()

    def hang_up(self) -> None:
        self.transport.close()

    def shutdown(self) -> None:
        """Close the connection once its request is answered."""
        if self.request is None or self.request.answered:
            self._worker.end()
            self.transport.close()
        else:
            self.request.keep_alive = False
            self.request.end_body()

    def release(self, size: int) -> None:
        raise NotImplementedError

    def keep_alive_probes(self) -> None:
        found = self.transport.get_extra_info("socket")
        if found is not None:
            with contextlib.suppress(OSError):  # it is gone already
                found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if hasattr(socket, "TCP_KEEPIDLE"):
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)

    def refuse_bytes(self) -> None:
        """Answer to bytes that are not HTTP."""
        head = b"HTTP/1.1 400 Bad Request\r\n" + self.default_lines
        self.transport.write(head + _BAD_REQUEST_ANSWER)
        self.transport.close()

    # -- upgrades

    def _upgrades(self) -> bool:
        asked, to = False, b""
        for name, value in self.headers:
            if name == b"connection":
                asked = b"upgrade" in [token.lower().strip() for token in value.split(b",")]
            elif name == b"upgrade":
                to = value.lower()
        return asked and to == b"websocket"

    def upgrade(self) -> None:
        """Hand the connection to a WebSocket."""
        raise NotImplementedError
