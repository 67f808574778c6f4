"""The driver of one session: a socket's bytes in and out, held up where either side is too slow."""

import asyncio
import logging
from functools import partial
from typing import Final, cast

from penstock.core.ports import Clock, Timer
from penstock.core.tasks import Tasks
from penstock.model.errors import PenstockError
from penstock.protocols.auth.certificates import peer_role
from penstock.protocols.pieces import Pieces
from penstock.protocols.rates import Allowance
from penstock.protocols.session import Gate
from penstock.wire.frames import OVERHEAD_BYTES, FrameDecoder, encode

from .commands import HANDLERS
from .connect import PING
from .session import Session

log = logging.getLogger(__name__)

OUT_BYTES_HIGH: Final = 1024 * 1024  # written and not taken: nobody writes more than what is under way
OUT_BYTES_LOW: Final = 256 * 1024
TOO_FAST: Final = "its role is beyond its rate"


class Connection(asyncio.Protocol):
    """One client's connection; in `opened` from its beginning to its end."""

    def __init__(self, gate: Gate, tasks: Tasks, opened: set["Connection"]) -> None:
        settings, limits = gate.broker.settings, gate.limits
        self.session = Session(gate, self, tasks, HANDLERS)
        self.paused = False
        self.closed = False
        self.peer = ""
        self.ended = asyncio.Event()  # closed, and everything of it given up
        self._tasks = tasks
        self._opened = opened
        self._clock: Clock = gate.broker.clock
        self._decoder = FrameDecoder(settings.max_message_bytes + OVERHEAD_BYTES)
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
        self._load = gate.load
        self._counted = ""  # the address it is counted under

    # -- the transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        if transport.get_extra_info("sslcontext") is not None:
            self._transport = cast(asyncio.Transport, Pieces(self._transport))
        self._opened.add(self)
        peer = transport.get_extra_info("peername")
        self.peer = str(peer)
        address = peer[0] if isinstance(peer, tuple) else ""
        refusal = self._load.enter(address)
        if refusal:
            self._refuse(refusal)
            return
        self._counted = self.session.address = address
        if self.session.gate.auth is not None:
            self.session.peer_role = peer_role(transport)
        self._transport.set_write_buffer_limits(OUT_BYTES_HIGH, OUT_BYTES_LOW)
        self._alive = self._clock.call_later(self._keep_alive_ms, self._look)

    def _refuse(self, reason: str) -> None:
        """Close at once. Nothing is told: the protocol has no word before the client's own."""
        log.warning("refused a connection", extra={"peer": self.peer, "reason": reason})
        self.abort()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        receive = self.session.receive
        try:
            if self.session.allowance is not None:
                self._receive_rated(data, self.session.allowance)
                return
            for frame in self._decoder.feed(data):
                receive(frame)
        except PenstockError as error:
            self.cut(error.message)

    def _receive_rated(self, data: bytes, allowance: Allowance) -> None:
        """The same where the client's role has a bound: beyond it nothing is read for a while."""
        commands = 0
        for frame in self._decoder.feed(data):
            self.session.receive(frame)
            commands += 1
        wait = allowance.take(commands, len(data))
        if wait and not self.closed:
            self.hold(TOO_FAST)
            if self._slowed is not None:
                self._slowed.cancel()
            self._slowed = self._clock.call_later(wait, partial(self.release, TOO_FAST))

    def pause_writing(self) -> None:
        self.paused = True
        self._writable.clear()
        self.hold("the client does not read")
        self._left = self._unwritten()
        self._stalled = self._clock.call_later(self._stall_ms, self._check_stall)

    def resume_writing(self) -> None:
        self.paused = False
        self._writable.set()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        self.release("the client does not read")

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.paused = False
        if self._counted:
            self._load.leave(self._counted)
            self._counted = ""
        self._writable.set()
        for timer in (self._alive, self._stalled, self._slowed):
            if timer is not None:
                timer.cancel()
        self._tasks.spawn(self._give_up(), "end of a connection")

    async def _give_up(self) -> None:
        try:
            await self.session.close()
        finally:
            self._opened.discard(self)
            self.ended.set()

    # -- Output

    def write(self, *pieces: bytes) -> None:
        """Send whole frames, in order."""
        if self._transport is None or self.closed:
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    async def writable(self) -> None:
        """Wait until the client reads, or is gone."""
        await self._writable.wait()

    def hold(self, why: str) -> None:
        """Read nothing more from the client until `release` of the same reason."""
        if not self._holds and self._transport is not None and not self.closed:
            self._transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        """End a `hold`; harmless without one."""
        if why in self._holds:
            self._holds.discard(why)
            if not self._holds and self._transport is not None and not self.closed:
                self._transport.resume_reading()

    def cut(self, reason: str) -> None:
        """Close the connection, after what is written."""
        if not self.closed and self._transport is not None:
            log.warning("closed a connection", extra={"peer": self.peer, "reason": reason})
            self._close()

    def finish(self) -> None:
        """Close when everything is sent."""
        if not self.closed:
            self._close()

    def _close(self) -> None:
        self.closed = True
        self.session.closed = True
        if self._transport is None:
            return
        self._transport.close()
        if self._stalled is None:  # what is left to send is not waited for longer than at any other time
            self._stalled = self._clock.call_later(self._stall_ms, self._transport.abort)

    def abort(self) -> None:
        """Close at once; what is not sent yet is dropped."""
        self.closed = True
        self.session.closed = True
        if self._transport is not None:
            self._transport.abort()

    # -- time

    def _look(self) -> None:
        """Every keep-alive time: ask who said nothing, cut who did not answer."""
        heard, self._heard = self._heard, False
        if self.session.who is None:
            self.cut(f"no CONNECT within {self._keep_alive_ms} ms")
        elif not heard and not self._holds:
            if self._asked:
                self.cut(f"nothing heard for {2 * self._keep_alive_ms} ms")
            else:
                self._asked = True
                self.write(encode(PING))
        else:
            self._asked = False
        if not self.closed:
            self._alive = self._clock.call_later(self._keep_alive_ms, self._look)

    def held(self) -> int:
        """Bytes that wait: commands not begun, entries not stored, and what is written and not taken."""
        return (
            0 if self.closed else self._unwritten() + self.session.waiting_bytes + self.session.pending_bytes
        )

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
