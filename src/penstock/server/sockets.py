"""uvicorn's WebSocket connection, with the same bounds."""

import asyncio
import secrets
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import Protocol

from penstock.model.errors import ErrorKind
from penstock.protocols.holding import STATE_KEY, Holding

from .deadlines import LINGER_S, Sending, Taking, Unwritten, cut
from .refusals import raw_answer

PARTIAL_BYTES_FREE: Final = 16 * 1024  # of a message that is not complete, that is not counted
SLICE_BYTES: Final = 32 * 1024  # parsed at a time
FRAGMENTS_FREE: Final = 1000  # frames of one message, before they have to be so large on average:
FRAGMENT_BYTES: Final = 64
HIGH_BYTES: Final = 65_536  # written and not taken, before the endpoint waits


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Reads on, into nothing, after a frame that cannot be: closing at once would reset the connection, and the
    peer would lose the close frame that says why."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        state: Any = arguments["server_state"]
        self._load = state.load
        self._state = state
        self._failed = False
        self._heard = 0  # pieces that came, pings and pongs among them
        self._taking = Taking()
        self._handshake = Sending()
        self._holding: Holding
        self._unwritten: Unwritten
        self._parts: bytearray | None = None  # of a message that comes in several frames
        self._message = 0  # which message is not complete: another with each that is complete
        self._fragments = 0  # of the message that is not complete
        self._buffered = 0  # bytes of it
        self._queued = 0  # bytes of the last message that was complete
        self._partial = 0  # bytes of both, as far as they are counted
        self._looked = (
            0,
            0.0,
            0,
        )  # the message that was not complete, since when, and how much of it there was
        self._held_back = False  # not read, for its principal is beyond its share
        self.counted = ""  # the address it is counted under

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(HIGH_BYTES, HIGH_BYTES // 4)
        self._holding = Holding(self._load, self.client[0] if self.client else "")
        self._unwritten = Unwritten(self._holding)
        self.app_state = {
            **self.app_state,
            "heard": self.heard,
            "writable": self.writable,
            STATE_KEY: self._holding,
        }

    def open(self, request: Request, counted: int) -> None:
        """Begin with a head that is parsed already, of which `counted` bytes count until the end."""
        self._holding.receive(counted)
        # What comes next are frames: the parser of heads has bounds of its own, and is not needed.
        self.conn.parser = Protocol.parse(self.conn)
        next(self.conn.parser)
        self.handle_connect(request)

    def heard(self) -> int:
        """A number that grows with whatever comes: ASGI shows no pings."""
        return self._heard

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        if self._failed:
            return
        if len(data) <= SLICE_BYTES:
            super().data_received(data)
        else:  # in slices: of frames that are refused no more is parsed
            for start in range(0, len(data), SLICE_BYTES):
                if not self._has_failed():
                    super().data_received(data[start : start + SLICE_BYTES])
        partial = 0 if self._has_failed() else len(self.conn.reader.buffer)
        if self._parts is not None:
            partial += len(self._parts)
        elif self.frames:
            partial += len(self.frames[0])
        elif partial < self._buffered + len(data):
            self._message += 1  # one was complete, or began
        self._buffered = partial
        self._count_partial()

    def _has_failed(self) -> bool:
        return self._failed

    def _count_partial(self) -> None:
        """A message counts until the endpoint has it; beyond its principal's share it is waited with, then refused."""
        partial = self._buffered if self.queue.empty() else self._buffered + self._queued
        if partial <= PARTIAL_BYTES_FREE:
            if not self._partial:
                return
            partial = 0
        self._holding.receive(partial - self._partial)
        self._partial = partial
        if partial and self._holding.over and not self.close_sent:
            if self._holding.far_over:
                self._fail(CloseCode.TRY_AGAIN_LATER, self._holding.refuse()[1])
            else:
                self._holding.slow()
                self._hold_back()

    def _hold_back(self) -> None:
        self._held_back = True
        self.transport.pause_reading()
        self._holding.call_when_room(self._read_on)

    def _read_on(self) -> None:
        if not self._held_back or self.transport.is_closing():
            return
        if self._holding.over:
            self._holding.call_when_room(self._read_on)
            return
        self._held_back = False
        if not self.read_paused:
            self.transport.resume_reading()

    # -- frames: the parser keeps its last one, so what is in it is taken out

    def handle_text(self, event: Frame) -> None:
        self._queued = len(event.data)
        super().handle_text(event)
        event.data = b""

    def handle_bytes(self, event: Frame) -> None:
        self._queued = len(event.data)
        super().handle_bytes(event)
        event.data = b""

    def handle_cont(self, event: Frame) -> None:
        """Messages in several frames are one buffer, as each small part would cost more than what is in it."""
        if self._failed:
            return
        if self._parts is None:
            self._parts, self._fragments = bytearray(self.frames[0]), 0
            self.frames = []  # it is held once, as it is counted
        self._parts += event.data
        event.data = b""
        self._fragments += 1
        if self._fragments > FRAGMENTS_FREE and len(self._parts) < self._fragments * FRAGMENT_BYTES:
            self._fail(CloseCode.POLICY_VIOLATION, f"fragments of less than {FRAGMENT_BYTES} bytes")
            return
        if event.fin:
            self._queued = len(self._parts)
            self.frames, self._parts = [bytes(self._parts)], None
            self.send_receive_event_to_app()

    # -- writing

    def pause_writing(self) -> None:
        self._unwritten.count(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unwritten.count(0)
        low, high = self.transport.get_write_buffer_limits()
        self._taking.took(high - low)
        super().resume_writing()

    # -- the end

    def connection_lost(self, exc: Exception | None) -> None:
        self._holding.close()
        if self.counted:
            self._load.leave(self.counted)
            self.counted = ""
        super().connection_lost(exc)
        self._forget()

    def _forget(self) -> None:
        """Drop all that was received and is not complete, and of what knows this object: it goes at once,
        without the collector."""
        self._parts = None
        self._partial = 0
        self.frames = []
        self.conn.reader.buffer.clear()
        self.app_state = {}
        if self.handshake_initiated:
            self.scope["state"] = {}

    def _fail(self, code: CloseCode, reason: str) -> None:
        self.conn.fail(code, reason[:120])
        self.handle_parser_exception()

    def send_keepalive_ping(self) -> None:
        """As uvicorn's, which takes the payload from the state of the `random` module: that is the application's."""
        self.ping_timer = None
        if self.close_sent or self.transport.is_closing():
            return
        self.pending_ping_payload = secrets.token_bytes(4)
        self.ping_sent_at = self.loop.time()
        self.conn.send_ping(self.pending_ping_payload)
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.ping_timeout is not None:
            self.pong_timer = self.loop.call_later(self.ping_timeout, self.keepalive_timeout)
        else:
            self.schedule_ping()

    def handle_parser_exception(self) -> None:
        closed: Any = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason})
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._failed = True
        self._holding.receive(-self._partial)
        self._partial = 0
        self._parts, self.frames = None, []
        self.conn.reader.buffer.clear()
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that does not take its frames, or does not send the rest of one."""
        limits = self._state.deadlines
        left = self.transport.get_write_buffer_size()
        self._unwritten.count(left)
        if self._taking.late(left, now, limits.stall_s, limits.bytes_per_s):
            self.logger.warning("a WebSocket's peer did not read for limits.stall_ms, and is cut off")
            cut(self.transport)
        elif not self.handshake_complete:
            self._look_at_handshake(now, limits.head_s)
        elif not self._failed:
            if self._partial:  # the endpoint may have taken what was queued
                self._count_partial()
            self._look_at_message(now)

    def _look_at_handshake(self, now: float, allowed_s: float) -> None:
        """A handshake has an end, whatever it waits for."""
        if not self.transport.is_closing() and self._handshake.late("handshake", now, allowed_s):
            said = f"the handshake did not end within limits.head_ms = {round(allowed_s * 1000)} ms"
            if self.initial_response is None:
                self.transport.write(raw_answer(ErrorKind.UNAVAILABLE, said))
            self.transport.close()

    def _look_at_message(self, now: float) -> None:
        """Within each `body_ms` some of a message has to come, at `min_bytes_per_s`. Time in which it is not read does
        not count, unless that is for its principal's share: it may be full of such messages."""
        limits = self._state.deadlines
        message, since, came = self._looked
        partial = self._buffered
        if not partial or self.read_paused or message != self._message:
            self._looked = (self._message, now, partial)
        elif now - since >= limits.body_s:
            if partial - came < limits.bytes_per_s * (now - since):
                said = f"a message did not come within limits.body_ms = {round(limits.body_s * 1000)} ms"
                self._fail(CloseCode.POLICY_VIOLATION, said)
            self._looked = (self._message, now, partial)
