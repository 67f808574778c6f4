"""A WebSocket connection: frames to messages and back, pings, with a bound on what a peer may have the server hold.

The application is called as an ASGI application is, and may refuse the upgrade so. To accept it takes the connection
itself out of the scope (`protocols.websocket.socket.Connection`): an ASGI event for each message, and a wake-up for
each event, would cost more than the message. All messages of a read are handed over at once, and many frames are one
write.
"""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Any, Final, Protocol

from websockets.frames import CloseCode
from websockets.http11 import Request

from penstock.model.errors import ErrorKind
from penstock.protocols.holding import STATE_KEY, Holding
from penstock.protocols.http.answers import Header
from penstock.protocols.websocket.socket import CONNECTION_KEY
from penstock.runtime.clock import Clock, LoopClock, Timer
from penstock.wire.websocket.encoder import encode_close, encode_control, encode_texts
from penstock.wire.websocket.parser import PING, PONG, FrameParser

from .addresses import is_tls, local_address, remote_address
from .deadlines import LINGER_S, Sending, Taking, Unwritten, cut
from .handshakes import Denial, connect_event, refused, scope_of, shake_hands
from .intake import Intake
from .refusals import raw_answer
from .state import State


class Pinged(Protocol):
    """A connection over which pings are sent."""

    def ping(self, payload: bytes) -> None:
        """Send a ping."""

    def unanswered(self) -> None:
        """No pong came in time."""


class Keepalive:
    """Pings every `interval_s`, the time of the last round trip less, and expects a pong within `timeout_s`.

    With an interval of None there are no pings, without a timeout no pong is expected.
    """

    def __init__(
        self, interval_s: float | None, timeout_s: float | None, connection: Pinged, clock: Clock
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._connection: Pinged | None = connection
        self._timer: Timer | None = None
        self._payload: bytes | None = None  # of the ping that has no pong yet
        self._sent_ms = 0
        self._trip_ms = 0

    def start(self) -> None:
        """Begin, once the connection is open."""
        if self._interval_s and self._connection is not None:
            delay_ms = max(0.0, self._interval_s * 1000 - self._trip_ms)
            self._timer = self._clock.call_later(delay_ms, self._send)

    def _send(self) -> None:
        assert self._connection is not None
        self._payload = secrets.token_bytes(4)  # the state of the `random` module is the application's
        self._sent_ms = self._clock.monotonic_ms()
        self._connection.ping(self._payload)
        if self._timeout_s is None:
            self.start()
        else:
            self._timer = self._clock.call_later(self._timeout_s * 1000, self._expire)

    def _expire(self) -> None:
        connection = self._connection
        self.stop()
        if connection is not None:
            connection.unanswered()

    def answered(self, payload: bytes) -> None:
        """A pong came; one to no ping of ours, or an earlier one, says nothing."""
        if payload != self._payload:
            return
        self._trip_ms = self._clock.monotonic_ms() - self._sent_ms
        self._payload = None
        if self._timeout_s is not None:
            self._cancel()
            self.start()

    def stop(self) -> None:
        """No more pings, for good: nothing knows the connection from here any more."""
        self._cancel()
        self._payload = self._connection = None

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


log = logging.getLogger(__name__)

HIGH_BYTES: Final = 65_536  # written and not taken, before the endpoint waits
LOW_BYTES: Final = HIGH_BYTES // 4
CLOSE_S: Final = 10.0  # a peer has so long to answer a close frame
LEAVE_S: Final = 5.0  # for the application to end before a close frame is answered; clients wait 10 s


class WebSocketConnection(asyncio.Protocol):
    """Reads on, into nothing, after a frame that cannot be: closing at once would reset the connection, and the
    peer would lose the close frame that says why.

    The peer's close frame is answered when the application has ended, at the latest after LEAVE_S: a client that has
    the answer finds its producer or consumer gone from the topic.
    """

    lingers = False  # its close frame is answered, or not, before the server stops

    def __init__(
        self,
        request: Request,
        transport: asyncio.Transport,
        state: State,
        app_state: dict[str, Any],
        *,
        head_bytes: int,
    ) -> None:
        """`request` is the upgrade, of whose head `head_bytes` count until the end."""
        self.heard = 0  # pieces that came, pings and pongs among them
        self.counted = ""  # the address it is counted under
        self.writable = asyncio.Event()  # set while the peer reads
        self.writable.set()
        self.ended = False  # no message is sent any more: it is closed, or about to be
        self.transport = transport
        transport.set_write_buffer_limits(HIGH_BYTES, LOW_BYTES)
        self._loop = asyncio.get_running_loop()
        self._state = state
        self._state.connections.add(self)
        client = remote_address(transport)
        self._holding = Holding(state.load, client[0] if client else "")
        self._holding.receive(head_bytes)
        self._unwritten = Unwritten(self._holding)
        self._taking = Taking()
        self._opening = Sending()
        self._answered = False  # the upgrade is, one way or the other
        self._handshake = shake_hands(request, compression=state.compression)
        self._parser = FrameParser(state.frame_bytes_max, self._handshake.deflate)
        self._intake = Intake(self._parser, transport, self._holding)
        # The answer of a peer whose frames we are slow to read is not seen yet: a missing pong means nothing.
        pong_s = None if state.ping_s is None else 2 * state.ping_s
        self._keepalive = Keepalive(state.ping_s, pong_s, self, LoopClock())
        self._unanswered: bytes | None = None  # the last ping, as the peer takes nothing
        self._close_timer: asyncio.TimerHandle | None = None
        self._close_answer: bytes | None = None  # to the peer's close frame, until it is written
        if not self._handshake.accepted:
            self._answer(self._handshake.answer(()), close=True)
            return
        scope = scope_of(
            request,
            scheme="wss" if is_tls(transport) else "ws",
            server=local_address(transport),
            client=client,
            state={**app_state, STATE_KEY: self._holding, CONNECTION_KEY: self},
        )
        task = self._loop.create_task(self._run(state.app, scope))
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)

    # -- the opening

    async def _run(self, app: Any, scope: dict[str, Any]) -> None:
        try:
            await app(scope, connect_event, Denial(self.refuse))
        except Exception:
            log.exception("a WebSocket's application failed")
        finally:
            scope["state"] = {}  # the scope may outlast this call, and the connection shall not
            self.refuse(500, [], b"Internal Server Error")
            self._answer_close()
            if self._close_timer is None:
                self.transport.close()

    def accept(self) -> None:
        """Complete the upgrade, unless it was answered or the peer is gone."""
        if not self._answered and not self.transport.is_closing():
            self._answer(self._handshake.answer(self._state.default_headers), close=False)
            if not self.ended:
                self._keepalive.start()

    def refuse(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Answer the upgrade over HTTP, unless it was answered, and close."""
        if not self._answered:
            self._answer(refused(status, headers, body), close=True)

    def _answer(self, answer: bytes, *, close: bool) -> None:
        self._answered = True
        if not self.transport.is_closing():
            self.transport.write(answer)
        if close:
            self._end()
            self.transport.close()

    # -- messages

    async def receive(self) -> list[bytes]:
        """The payloads of all text messages that wait, at least one; none once no more can come."""
        return await self._intake.take()

    def send(self, payloads: Sequence[bytes]) -> None:
        """Write text messages with one write; nothing once the connection has ended. Wait for `writable` before."""
        if not self.ended:
            self.transport.write(encode_texts(payloads, self._handshake.deflate))

    def data_received(self, data: bytes) -> None:
        self.heard += 1
        intake, parser = self._intake, self._parser
        if parser.ended:
            return
        intake.feed(data)
        if parser.controls:
            self._take_controls()
        if parser.failure is not None:
            self._fail(*parser.failure)
        elif parser.close is not None:
            self._closed_by_peer(*parser.close)
        elif intake.refusal is not None and not self.ended:
            self._fail(CloseCode.TRY_AGAIN_LATER, intake.refusal)

    def _take_controls(self) -> None:
        controls, self._parser.controls = self._parser.controls, []
        for opcode, payload in controls:
            if opcode == PONG:
                self._keepalive.answered(payload)
            elif not self.ended:
                if self.writable.is_set():
                    self.transport.write(encode_control(PONG, payload))
                else:
                    self._unanswered = payload  # the last one is answered, when it is taken

    def ping(self, payload: bytes) -> None:
        """Send a ping, unless the connection has ended."""
        if not self.ended and not self.transport.is_closing():
            self.transport.write(encode_control(PING, payload))

    def pause_writing(self) -> None:
        self._unwritten.count(self.transport.get_write_buffer_size())
        self.writable.clear()

    def resume_writing(self) -> None:
        self._unwritten.count(0)
        self._taking.took(HIGH_BYTES - LOW_BYTES)
        self.writable.set()
        if self._unanswered is not None and not self.ended:
            ping, self._unanswered = self._unanswered, None
            self.transport.write(encode_control(PONG, ping))

    # -- the end

    def close(self, code: int, reason: str) -> None:
        """Send a close frame, unless the connection has ended; what comes until it is answered is dropped."""
        if self.ended or self.transport.is_closing():
            return
        self.transport.write(encode_close(code, reason))
        self._end()
        self._close_timer = self._loop.call_later(CLOSE_S, self.transport.close)

    def _end(self) -> None:
        self.ended = True
        self._keepalive.stop()
        self._intake.end()

    def _closed_by_peer(self, code: int, reason: str) -> None:
        self._stop_timer()
        if self.ended or self.transport.is_closing():
            self.transport.close()
            return
        self._end()
        self._close_answer = encode_close(code, reason)
        self._close_timer = self._loop.call_later(LEAVE_S, self._answer_close)

    def _answer_close(self) -> None:
        """Answer the peer's close frame, if it is not answered yet, and close."""
        if self._close_answer is not None:
            answer, self._close_answer = self._close_answer, None
            self._stop_timer()
            if not self.transport.is_closing():
                self.transport.write(answer)
            self.transport.close()

    def _fail(self, code: int, reason: str) -> None:
        """Close for something the peer did, without an answer to the close frame."""
        if not self.ended:
            self.transport.write(encode_close(code, reason))
        self._end()
        self._intake.drop()
        self._stop_timer()
        self._close_timer = self._loop.call_later(LINGER_S, self.transport.close)

    def unanswered(self) -> None:
        """No pong came: close at once."""
        if not self.ended and not self.transport.is_closing():
            self.transport.write(encode_close(CloseCode.INTERNAL_ERROR, "keepalive ping timeout"))
            self._end()
            self.transport.close()

    def _stop_timer(self) -> None:
        if self._close_timer is not None:
            self._close_timer.cancel()
            self._close_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._holding.close()
        if self.counted:
            self._state.load.leave(self.counted)
            self.counted = ""
        self._state.connections.discard(self)
        self._answered = True
        self._end()
        self._intake.drop()
        self._close_answer = None
        self._stop_timer()
        self.writable.set()  # nothing will be taken any more
        if exc is None:
            self.transport.close()

    def eof_received(self) -> None:
        """The transport closes."""

    def shutdown(self) -> None:
        """The server stops: close now."""
        self._answer_close()
        if self._answered:
            if not self.ended:
                self.transport.write(encode_close(CloseCode.SERVICE_RESTART, ""))
                self._end()
        else:
            self.refuse(500, [], b"Internal Server Error")
        self._stop_timer()
        self.transport.close()

    # -- time

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that does not take its frames, or does not send the rest of one."""
        limits = self._state.deadlines
        left = self.transport.get_write_buffer_size()
        self._unwritten.count(left)
        if self._taking.late(left, now, limits.stall_s, limits.bytes_per_s):
            log.warning("a WebSocket's peer did not read for limits.stall_ms, and is cut off")
            cut(self.transport)
        elif not self._answered:
            self._look_at_handshake(now, limits.head_s)
        elif not self._parser.ended and self._intake.late(now, limits.body_s, limits.bytes_per_s):
            said = f"a message did not come within limits.body_ms = {round(limits.body_s * 1000)} ms"
            self._fail(CloseCode.POLICY_VIOLATION, said)

    def _look_at_handshake(self, now: float, allowed_s: float) -> None:
        """A handshake has an end, whatever it waits for."""
        if not self.transport.is_closing() and self._opening.late("handshake", now, allowed_s):
            said = f"the handshake did not end within limits.head_ms = {round(allowed_s * 1000)} ms"
            self._answer(raw_answer(ErrorKind.UNAVAILABLE, said), close=True)
