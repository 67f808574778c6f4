"""Listening for TLS, and writing in pieces, so that what a peer does not take is counted.

asyncio's own servers report a connection once its handshake is complete; until then it has no address and is bounded
by nothing but time. `TlsServer` counts it from the moment it is accepted.

A large answer over HTTP is handed to the connection piece by piece, as fast as the client takes it; until then it
is one object, which counts. Over TLS uvloop encrypts a write at once and hands all of it to the socket below, whose
buffer it does not count: after one large write it would report that nothing waits, and never let the writer pause. Of
many small ones the first fill the socket's buffer, and the rest wait in our buffer, which counts them.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, Protocol, cast

from penstock.runtime.tasks import Tasks

from .holding import holding_of
from .load import Load

log = logging.getLogger(__name__)

ACCEPTED_AT_ONCE: Final = 100  # before others have their turn on the loop
PAUSE_S: Final = 1.0  # without a file left, the next attempt to accept is made then
PIECE_BYTES: Final = 64 * 1024
COUNTED: Final = "penstock.counted"  # in an ASGI scope: the maker of the answer counts it
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Counted(Protocol):
    """The protocol of a connection that is counted under an address, until it says that it is not."""

    counted: str

    @property
    def begun(self) -> bool:
        """Whether the connection was ever made."""
        ...

    def abandon(self) -> None:
        """Drop what refers to this object: the connection will never be made, and so never be lost."""
        ...


class TlsServer:
    """A listening socket. `made` makes a protocol for a connection that was counted under an address."""

    def __init__(
        self,
        made: Callable[[str], Any],
        bound: socket.socket,
        load: Load,
        context: ssl.SSLContext,
        *,
        backlog: int,
        handshake_s: float,
        end_s: float,
    ) -> None:
        """`end_s`: how long a client may take to answer that the connection is closed."""
        self._made = made
        self._bound = bound
        self._load = load
        self._context = context
        self._handshake_s = handshake_s
        self._end_s = end_s
        self._tasks = Tasks()
        self._loop = asyncio.get_running_loop()
        self._closed = False
        bound.listen(backlog)
        self._loop.add_reader(bound, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, peer = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                log.error("no connection can be accepted", extra={"reason": error.strerror})
                self._loop.remove_reader(self._bound)
                self._loop.call_later(PAUSE_S, self._resume)
                return
            self._enter(connection, str(peer[0]))

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._bound, self._accept)

    def _enter(self, connection: socket.socket, address: str) -> None:
        connection.setblocking(False)
        refusal = self._load.enter(address)
        if refusal:  # without a word: a handshake would cost more than the connection
            log.warning("refused a connection", extra={"peer": address, "reason": refusal})
            connection.close()
            return
        self._tasks.spawn(self._shake_hands(connection, address), "TLS handshake")

    async def _shake_hands(self, connection: socket.socket, address: str) -> None:
        protocol: Counted = self._made(address)
        self._load.handshakes += 1
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.Protocol, protocol),
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s,
                ssl_shutdown_timeout=self._end_s,
            )
        except (OSError, ssl.SSLError) as error:
            log.debug("a TLS handshake failed", extra={"peer": address, "reason": str(error)})
            connection.close()
        finally:
            self._load.handshakes -= 1
            if protocol.counted and not protocol.begun:  # else it is counted until it ends, by itself
                protocol.counted = ""
                self._load.leave(address)
                protocol.abandon()

    def close(self) -> None:
        """Accept no more; handshakes that go on are given up."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._bound)

    async def wait_closed(self) -> None:
        """Give up the handshakes that go on."""
        await self._tasks.close()


class Pieces:
    """A transport over TLS; everything but writing is the transport's own."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write bytes, in pieces if they are many."""
        if len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), PIECE_BYTES):
            self._transport.write(view[start : start + PIECE_BYTES])

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Write several."""
        self.write(b"".join(pieces))


async def send_in_pieces(
    scope: Mapping[str, Any],
    event: MutableMapping[str, Any],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Send a large part of an HTTP answer, `event`, in pieces; it counts until the last one is written."""
    body: bytes = event["body"]
    last = not event.get("more_body", False)
    holding = None if scope.get(COUNTED) else holding_of(scope)
    if holding is not None:
        holding.send(len(body))
    try:
        view = memoryview(body)
        for start in range(0, len(view), PIECE_BYTES):
            piece = bytes(view[start : start + PIECE_BYTES])
            more = start + PIECE_BYTES < len(view) or not last
            await send({"type": "http.response.body", "body": piece, "more_body": more})
    finally:
        if holding is not None:
            holding.send(-len(body))
