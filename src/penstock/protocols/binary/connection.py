"""The connection of one session: a socket's bytes in and out, paused if either side is too slow."""

import asyncio
import logging
from functools import partial
from typing import Final, cast

from penstock.model.errors import PenstockError
from penstock.protocols.auth.principal import peer_role
from penstock.protocols.clients import address_of
from penstock.protocols.context import ServerContext
from penstock.protocols.holding import Holding
from penstock.protocols.limits import Limits
from penstock.protocols.rates import Allowance
from penstock.protocols.transport import Pieces
from penstock.runtime.clock import Timer
from penstock.runtime.tasks import Tasks
from penstock.wire.frames import OVERHEAD_BYTES, FrameDecoder
from penstock.wire.pulsar_pb2 import CommandPing

from .commands import HANDLERS
from .session import Session


class FramePace:
    """Of one connection. Within each `body_ms` some of a frame has to come, at `min_bytes_per_s`.

    Time in which the client is not read does not count, unless it is for its principal's share: that may be full of such
    frames.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._frame = 0  # the frame that is not complete: which, since when, and how much of it had come then
        self._since_ms = self._bytes = 0

    def check(self, decoder: FrameDecoder, now_ms: int, *, held_up: bool) -> str:
        """Called at intervals; returns why the connection must be cut, or ""."""
        limits = self._limits
        if held_up or not decoder.held or decoder.begun != self._frame:
            self._frame, self._since_ms, self._bytes = decoder.begun, now_ms, decoder.held
            return ""
        passed, came = now_ms - self._since_ms, decoder.held - self._bytes
        if passed < limits.body_ms:
            return ""
        self._since_ms, self._bytes = now_ms, decoder.held
        if came * 1000 >= limits.min_bytes_per_s * passed:
            return ""
        return (
            f"a frame did not come within limits.body_ms = {limits.body_ms} ms, "
            f"nor at limits.min_bytes_per_s = {limits.min_bytes_per_s}"
        )


log = logging.getLogger(__name__)

OUT_BYTES_HIGH: Final = 256 * 1024  # written and not sent: beyond this nothing new is written
OUT_BYTES_LOW: Final = 64 * 1024
OUT_BYTES_NARROW: Final = 16 * 1024  # the same while the principal is beyond its share
TOO_FAST: Final = "its role is beyond its rate"
CONNECTING: Final = "CONNECT is not answered"
BUSY: Final = "its principal is beyond its share"  # as Pulsar's brokers: maxMessagePublishBufferSizeInMB
# CONNECT with the largest credentials in use, twice for a proxy's client; no other command comes before it.
CONNECT_BYTES_MAX: Final = 16 * 1024
# Of a frame that is not complete, while its principal is far beyond its share.
PARTIAL_BYTES_MAX: Final = 16 * 1024


class Connection(asyncio.Protocol):
    """One client's connection; in `opened` from its beginning to its end."""

    def __init__(
        self,
        context: ServerContext,
        tasks: Tasks,
        opened: set["Connection"],
        entered: str = "",
        *,
        of_worker: bool = False,
        for_processes: bool = False,
    ) -> None:
        """`entered`: the address, if the connection was counted under it already. `of_worker`: only a worker of this server
        may connect; `for_processes`: only another process of this service."""
        settings, limits = context.broker.settings, context.limits
        self.session = Session(context, self, tasks, HANDLERS)
        self.session.of_worker = of_worker
        self.session.for_processes = for_processes
        self.paused = False
        self.closed = False
        self.peer = ""
        self.ended = asyncio.Event()  # closed, and everything of it released
        self._tasks = tasks
        self._opened = opened
        self._clock = context.broker.clock
        self._frame_bytes_max = settings.max_message_bytes + OVERHEAD_BYTES
        self._decoder = FrameDecoder(CONNECT_BYTES_MAX)
        self._limits = limits
        self._keep_alive_ms = limits.binary_keep_alive_ms
        self._stall_ms = limits.binary_stall_ms
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._holds: set[str] = set()
        self._heard = False
        self._asked = False
        self._alive: Timer | None = None
        self._stalled: Timer | None = None
        self._left = 0
        self._slowed: Timer | None = None
        self._load = context.load
        self.counted = entered  # the address it is counted under
        self._holding: Holding | None = None
        self._connecting: Timer | None = None  # until the client is admitted
        self._unwritten_counted = 0
        self._pace = FramePace(limits)
        self._narrow = False  # its principal is beyond its share

    @property
    def begun(self) -> bool:
        """Whether the connection was ever made."""
        return self._transport is not None or self.closed

    def abandon(self) -> None:
        """The session knows this object."""
        self.session.forget()

    # -- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is not a subclass
        if transport.get_extra_info("sslcontext") is not None:
            self._transport = cast(asyncio.Transport, Pieces(self._transport))
        self._opened.add(self)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer)
        address = peer[0] if isinstance(peer, tuple) else ""
        uncounted = self.counted or self.session.of_worker
        refusal = "" if uncounted else self._load.enter(address)
        if refusal:
            # Nothing is sent: the protocol has no word before the client's own.
            log.warning("refused a connection", extra={"peer": self.peer, "reason": refusal})
            self.abort()
            return
        self.session.address = address
        self.counted = "" if self.session.of_worker else address
        self._holding = self.session.holding = Holding(self._load, address)
        self.session.peer_address = address_of(peer)
        if self.session.context.auth is not None:
            self.session.peer_role = peer_role(transport)
        self._transport.set_write_buffer_limits(OUT_BYTES_HIGH, OUT_BYTES_LOW)
        self._alive = self._clock.call_later(self._keep_alive_ms, self._look)
        self._connecting = self._clock.call_later(self._limits.binary_connect_ms, self._check_connected)

    def _check_connected(self) -> None:
        self._connecting = None
        if self.session.who is None:
            self.cut(
                f"no client was admitted within limits.binary_connect_ms = {self._limits.binary_connect_ms} ms"
            )

    def data_received(self, data: bytes) -> None:
        self._heard = True
        session = self.session
        receive = session.receive
        try:
            if session.allowance is None and session.who is not None:
                for frame in self._decoder.feed(data):
                    receive(frame)
            else:
                self._receive_bounded(data, session.allowance)
        except PenstockError as error:
            self.cut(error.message)
            return
        self.count()

    def _receive_bounded(self, data: bytes, allowance: Allowance | None) -> None:
        """The same before the client is admitted: frames are small, and nothing is read behind CONNECT; and if its
        role has a bound: beyond it nothing is read for a while."""
        commands = 0
        for frame in self._decoder.feed(data):
            self.session.receive(frame)
            commands += 1
            if self.session.who is None:
                self.hold(CONNECTING)
            else:
                self._decoder.frame_size_max = self._frame_bytes_max
        wait = 0 if allowance is None else allowance.take(commands, len(data))
        if wait and not self.closed:
            self.hold(TOO_FAST)
            if self._slowed is not None:
                self._slowed.cancel()
            self._slowed = self._clock.call_later(wait, partial(self.release, TOO_FAST))

    def pause_writing(self) -> None:
        self.paused = True
        self._writable.clear()
        self.hold("the client does not read")
        self.count()
        self._left = self._unwritten()
        self._stalled = self._clock.call_later(self._stall_ms, self._check_stall)

    def resume_writing(self) -> None:
        self.paused = False
        self._writable.set()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self.release("the client does not read")
        self.count()

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.paused = False
        if self.counted:
            self._load.leave(self.counted)
            self.counted = ""
        self._writable.set()
        self._decoder.clear()
        self._transport = None
        for timer in (self._alive, self._stalled, self._slowed, self._connecting):
            if timer is not None:
                timer.cancel()
        # A timer has a method of this object, and so does this object the timer: the collector might be long in coming.
        self._alive = self._stalled = self._slowed = self._connecting = None
        self._tasks.spawn(self._end(), "end of a connection")

    async def _end(self) -> None:
        try:
            await self.session.close()
        finally:
            if self._holding is not None:
                self._holding.close()
            self._opened.discard(self)
            self.ended.set()

    # -- Output

    def write(self, *pieces: bytes) -> None:
        if self._transport is None or self.closed:
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    async def writable(self) -> None:
        await self._writable.wait()

    def admitted(self) -> None:
        self._decoder.frame_size_max = self._frame_bytes_max
        self.release(CONNECTING)

    def hold(self, why: str) -> None:
        if not self._holds and self._transport is not None and not self.closed:
            self._transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        if why in self._holds:
            self._holds.discard(why)
            if not self._holds and self._transport is not None and not self.closed:
                self._transport.resume_reading()

    def cut(self, reason: str) -> None:
        if not self.closed and self._transport is not None:
            log.warning("closed a connection", extra={"peer": self.peer, "reason": reason})
            self.finish()

    # -- the end

    def finish(self) -> None:
        """Close when everything is sent."""
        if self.closed:
            return
        self.closed = self.session.closed = True
        if self._transport is None:
            return
        self._transport.close()
        if self._stalled is None:  # unsent bytes are waited for no longer than at any other time
            self._stalled = self._clock.call_later(self._stall_ms, self._transport.abort)

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        self.closed = self.session.closed = True
        if self._transport is not None:
            self._transport.abort()

    # -- time

    def _look(self) -> None:
        """Every keep-alive time: ask a client that said nothing, cut one that did not answer."""
        heard, self._heard = self._heard, False
        if self.session.who is None:
            self.cut(f"no CONNECT within {self._keep_alive_ms} ms")
        elif not heard and not self._holds:
            if self._asked:
                self.cut(f"nothing heard for {2 * self._keep_alive_ms} ms")
            else:
                self._asked = True
                self.session.send(CommandPing())
        else:
            self._asked = False
        if not self.closed:
            self._alive = self._clock.call_later(self._keep_alive_ms, self._look)

    def count(self) -> None:
        """Count held memory: a frame not complete, commands not begun, entries not stored, output not taken.

        While the principal is beyond its share the client is not read, and given only what it takes at once.
        """
        holding = self._holding
        if holding is None or self.closed:
            return
        session, partial_bytes = self.session, self._decoder.held
        received = partial_bytes + session.waiting_bytes + session.pending_bytes
        if received != holding.received:
            holding.receive(received - holding.received)
        unwritten = self._unwritten()
        if unwritten != self._unwritten_counted:
            holding.send(unwritten - self._unwritten_counted)
            self._unwritten_counted = unwritten
        if received or unwritten or self._narrow:
            self._keep_share(holding, partial_bytes)

    def _keep_share(self, holding: Holding, partial_bytes: int) -> None:
        over = holding.over
        if over:
            if partial_bytes > PARTIAL_BYTES_MAX and holding.far_over:
                self.cut(holding.refuse()[1])
                return
            holding.call_when_room(self.count)
        if over != self._narrow and self._transport is not None:
            self._narrow = over
            if over:
                holding.slow()
                self.hold(BUSY)
                self._transport.set_write_buffer_limits(OUT_BYTES_NARROW, 0)
            else:
                self.release(BUSY)
                self._transport.set_write_buffer_limits(OUT_BYTES_HIGH, OUT_BYTES_LOW)

    def look(self) -> None:
        """Called now and then: count, and cut a client whose frame does not come to its end."""
        self.count()
        held_up = self.closed or bool(self._holds - {BUSY})
        reason = self._pace.check(self._decoder, self._clock.monotonic_ms(), held_up=held_up)
        if reason:
            self.cut(reason)

    def _unwritten(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _check_stall(self) -> None:
        """A client that takes nothing of what waits for it is not there any more."""
        left = self._unwritten()
        if left < self._left:
            self._left = left
            self._stalled = self._clock.call_later(self._stall_ms, self._check_stall)
            return
        log.warning(
            "closed a connection",
            extra={"peer": self.peer, "reason": f"{left} bytes not read for {self._stall_ms} ms"},
        )
        self.abort()
