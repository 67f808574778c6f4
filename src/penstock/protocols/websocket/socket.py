"""One WebSocket of an endpoint: accepted or refused, read and written in groups, closed for a reason.

It uses a connection of our server, which the ASGI scope of the upgrade carries: ASGI has an event for each
message, and the hot loops of the endpoints read and write here.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from penstock.model.errors import WS_CLOSE_BASE, WS_RESULT_TEXT, PenstockError
from penstock.protocols.holding import Holding
from penstock.protocols.permission_watch import PermissionWatch
from penstock.protocols.proxied import ProxiedSocket
from penstock.protocols.rates import Allowance
from penstock.runtime.clock import Clock, Timer

log = logging.getLogger(__name__)

CONNECTION_KEY: Final = "penstock.websocket"  # the key of the connection in the state of an ASGI scope
GOING_AWAY: Final = 1001
TOO_BIG: Final = 1009
INTERNAL_ERROR: Final = 1011
LOOKS: Final = 4  # in one idle time: an idle socket is noticed within a quarter more than it
QUEUE_MAX: Final = 64  # frames that wait for the end of the turn
QUEUE_BYTES: Final = 64 * 1024  # of them; one more may overdraw it
GRACE_MS: Final = 10_000  # the longest time for work in flight at the end of a socket


def documented(result: int) -> tuple[int, str]:
    """The close code and reason of Pulsar's error `result`; codes below 1000 are illegal on the wire."""
    return WS_CLOSE_BASE + result, WS_RESULT_TEXT[result]


class Connection(Protocol):
    """The connection of a socket (`server.sockets`)."""

    @property
    def heard(self) -> int:
        """A number that grows with whatever comes, pings and pongs too."""

    @property
    def ended(self) -> bool:
        """Whether nothing can be sent any more."""

    @property
    def writable(self) -> asyncio.Event:
        """Set while the peer reads."""

    def accept(self) -> None:
        """Complete the upgrade."""

    def refuse(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer the upgrade over HTTP."""

    async def receive(self) -> list[bytes]:
        """All text messages that wait, at least one; none once no more can come."""

    def send(self, payloads: Sequence[bytes]) -> None:
        """Write text messages at once; nothing once it has ended."""

    def close(self, code: int, reason: str) -> None:
        """Close it, unless it has ended."""


class Socket:
    """One socket. `gone` once the peer cannot be reached; `activity` counts what was received and sent."""

    def __init__(self, connection: Connection, clock: Clock, idle_ms: int) -> None:
        self.gone = False
        self.left = False  # the peer said so: nothing more comes
        self.activity = 0
        self.writable = connection.writable  # set while the peer reads
        self._connection: Connection | None = connection
        self._clock = clock
        self._queue: list[bytes] = []  # frames to be written at the end of this turn of the loop
        self._queue_bytes = 0
        self._closing: tuple[int, str] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._limit: asyncio.Timeout | None = None
        self._grace: Timer | None = None
        self.held: PermissionWatch | None = None  # the permission it lasts as long as
        self.holding: Holding | None = None  # what the server holds for it
        self.proxied: ProxiedSocket | None = None  # counts it
        self.allowance: Allowance | None = None  # how fast it may be used
        self.abandoned: Callable[[], None] | None = (
            None  # called when it is cut off: its end is not waited for
        )
        self._idle = IdleWatch(
            clock,
            idle_ms,
            lambda: self.activity + connection.heard,
            lambda: self.stop(GOING_AWAY, "idle for limits.websocket_idle_ms"),
        )

    def accept(self) -> None:
        """Complete the upgrade."""
        if self._connection is not None:
            self._connection.accept()

    def finish(self) -> None:
        """Close the connection and drop it, when the producer or consumer has left its topics: a client that reads the
        close frame may come back at once. Reference cycles must not keep the connection."""
        self._close()
        if self._grace is not None:
            self._grace.cancel()
        self.gone = True
        self._connection = self.held = self.holding = self.abandoned = None
        del self._idle

    def refuse(self, status: int, text: str, *more: tuple[bytes, bytes]) -> None:
        """Answer the upgrade with an HTTP status and a plain text, and `more` headers."""
        if self._connection is not None:
            self._connection.refuse(status, more, text.encode())

    async def receive_all(self) -> list[bytes]:
        """The payloads of the text messages that wait, at least one; none once the peer has `left`. Binary messages
        are passed over as in Pulsar."""
        received = [] if self._connection is None else await self._connection.receive()
        if received:
            self.activity += len(received)
        else:
            self.left = self.gone = True
        return received

    async def send_all(self, frames: Sequence[bytes]) -> None:
        """Send JSON texts with one write; waits while the peer does not read. Does nothing once it is gone."""
        self.activity += 1
        if not self.writable.is_set():
            await self.writable.wait()
        self._queue += frames
        self.flush()

    def queue(self, frame: bytes) -> None:
        """Send a JSON text soon, with one write for all that is queued until then, within bounds. The caller looks at
        `writable` before."""
        queue = self._queue
        if not queue:
            # A step of the loop later there is what else comes of the same input: receipts are a step behind replies.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self.flush)
        queue.append(frame)
        self._queue_bytes += len(frame)
        if len(queue) >= QUEUE_MAX or self._queue_bytes >= QUEUE_BYTES:
            self.flush()

    def queue_all(self, frames: Sequence[bytes]) -> None:
        """The same of many."""
        for frame in frames:
            self.queue(frame)

    def flush(self) -> None:
        """Write the queue."""
        frames, self._queue, self._queue_bytes = self._queue, [], 0
        self.activity += len(frames)
        connection = self._connection
        if connection is None or connection.ended:
            self.gone = True
        elif frames and not self.gone:
            connection.send(frames)

    async def send(self, text: str) -> None:
        """Send one text, as `send_all` does."""
        await self.send_all((text.encode(),))

    def stop(self, code: int, reason: str) -> None:
        """End the socket: read nothing more, finish work in flight, close."""
        if self._closing is None:
            self._close_with(code, reason)
            self._cancel_reading()

    def _close_with(self, code: int, reason: str) -> None:
        self._closing = (code, reason)
        if self._grace is None:
            self._grace = self._clock.call_later(GRACE_MS, self._abort)

    def revoke(self, reason: PenstockError) -> None:
        """End the socket: the credentials expired (4005), or a permission was revoked (4006)."""
        log.info("ends a WebSocket: %s", reason.message)
        self.stop(*documented(reason.kind.codes.ws_result))

    @property
    def stop_reason(self) -> str:
        """Why the socket must end; "" if it need not, or the peer left."""
        return "" if self._closing is None else self._closing[1]

    def _abort(self) -> None:
        """Cut it off. An append that is under way cannot be, and `run` lasts until its end; after it a cluster may be
        slow to detach the consumer. The peer, and what waits for the socket, shall not wait for them."""
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())
        if self.abandoned is not None:
            self.abandoned()
        self._close()
        self.gone = True

    async def run(self, read: Coroutine[Any, Any, None], *work: Coroutine[Any, Any, None]) -> None:
        """Run `read` until the peer is gone or the socket is stopped, and `work` concurrently until it ends.

        `read` sees to it that `work` ends after it. `finish` closes the connection.
        """
        self._idle.start()
        try:
            async with asyncio.timeout(None) as self._limit:
                await self._run_tasks(read, work)
                self.flush()
        except TimeoutError:
            log.info("a WebSocket did not end in time and is cut off")
        finally:
            self._limit = self._reading = None
            self._idle.close()

    async def _run_tasks(
        self, read: Coroutine[Any, Any, None], work: tuple[Coroutine[Any, Any, None], ...]
    ) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._reading = group.create_task(read)
                if self._closing is not None:
                    self._cancel_reading()
                for one in work:
                    group.create_task(one)
        except* Exception:
            log.exception("a WebSocket failed")
            self._close_with(INTERNAL_ERROR, "Unknown error")

    def _cancel_reading(self) -> None:
        # A task that is cancelled before its first step runs none of its `finally`: later it surely has begun.
        if self._reading is not None:
            asyncio.get_running_loop().call_soon(self._reading.cancel)

    def _close(self) -> None:
        self.flush()
        if self._closing is not None and self._connection is not None and not self.gone:
            self._connection.close(*self._closing)


class IdleWatch:
    """Calls `expired` when the number that `activity` returns stayed the same for `idle_ms` (0: never)."""

    def __init__(
        self, clock: Clock, idle_ms: int, activity: Callable[[], int], expired: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._idle_ms = idle_ms
        self._activity = activity
        self._expired = expired
        self._seen = -1
        self._since = 0
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to watch."""
        if self._idle_ms > 0:
            self._look()

    def _look(self) -> None:
        now = self._clock.monotonic_ms()
        seen = self._activity()
        if seen != self._seen:
            self._seen, self._since = seen, now
        elif now - self._since >= self._idle_ms:
            self._timer = None
            self._expired()
            return
        self._timer = self._clock.call_later(max(1, self._idle_ms // LOOKS), self._look)

    def close(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Sockets:
    """Every socket that is open, so that a server that goes down can end them well."""

    def __init__(self) -> None:
        self._open: set[Socket] = set()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, socket: Socket) -> None:
        self._open.add(socket)
        self._none.clear()
        socket.abandoned = lambda: self.discard(socket)

    def discard(self, socket: Socket) -> None:
        self._open.discard(socket)
        if not self._open:
            self._none.set()

    def __len__(self) -> int:
        return len(self._open)

    async def drain(self) -> None:
        """End every socket: work in flight is answered, then it is closed with 1001.

        Completes when all are closed, at the latest after the grace time. Refuse new connections before.
        """
        for socket in list(self._open):
            socket.stop(GOING_AWAY, "the server is shutting down")
        await self._none.wait()
