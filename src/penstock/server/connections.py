"""uvicorn's connections, bounded where it has no bounds, and closed so that the peer sees why."""

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.model.errors import ErrorKind
from penstock.protocols.load import Load
from penstock.protocols.pieces import Pieces

from .deadlines import LINGER_S, Deadlines, Sending, Taking, Unwritten, cut
from .refusals import BAD_HEAD, raw_answer, refusing
from .sockets import WebSocketConnection

HEAD_BYTES_MAX: Final = 65_536  # of a request's head, or of anything else that is not its body
HIGH_BYTES: Final = 65_536  # written and not taken, before whoever writes waits
LOW_BYTES: Final = 16_384
ALWAYS_ANSWERED: Final = "/health/"  # also by a server that takes nothing on


class State(ServerState):
    """What all connections of the server share."""

    def __init__(self, load: Load, deadlines: Deadlines, headers_max: int) -> None:
        super().__init__()
        self.load = load
        self.deadlines = deadlines
        self.headers_max = headers_max


class HttpConnection(HttpToolsProtocol):
    """Refuses what is too much or too late: the parser alone would wait for ever, and keep all of it."""

    server_state: State

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._load = self.server_state.load
        self._unfinished = 0  # received since a head was complete, or a part of a body came
        self._whole = True  # the request's body, if there is one
        self._body = 0  # bytes of it so far
        self._held = 0  # of all bodies that are not answered
        self._discarded = 0  # read into nothing
        self._counted = ""  # the address it is counted under
        self._ended = False  # nothing is read any more but into nothing
        self._ending: asyncio.TimerHandle | None = None
        self._sending = Sending()
        self._taking = Taking()
        self._unwritten = Unwritten(self._load)

    # -- the transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(HIGH_BYTES, LOW_BYTES)
        address = self.client[0] if self.client else ""
        if self.scheme == "https":
            self.app_state = {**self.app_state, "peercert": transport.get_extra_info("peercert")}
            self.transport = cast(asyncio.Transport, Pieces(transport))
        refusal = self._load.enter(address)
        if refusal:
            self._end(raw_answer(ErrorKind.UNAVAILABLE, refusal))
        else:
            self._counted = address

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._discard(len(data))
            return
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > HEAD_BYTES_MAX and self._is_open():
            self._end(self._may_say(BAD_HEAD))

    def pause_writing(self) -> None:
        self._unwritten.count(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unwritten.count(0)
        self._taking.took(HIGH_BYTES - LOW_BYTES)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()
        self._unwritten.count(0)
        if self._counted:
            self._load.leave(self._counted)
            self._counted = ""
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    # -- the parser's calls

    def on_headers_complete(self) -> None:
        if self._ended:  # by what came with the same bytes
            return
        self._unfinished = 0
        self._whole = False
        self._body = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        size = len(body)
        self._body += size
        if self._ended:
            return
        if self.cycle.response_complete:
            self._discard(size)
            return
        load = self._load
        self._held += size
        load.held += size
        super().on_body(body)
        if load.held > load.bytes_max - load.unwritten and not self.cycle.response_started:  # `full`, faster
            self._end(raw_answer(ErrorKind.UNAVAILABLE, load.full_reason()))

    def on_message_complete(self) -> None:
        self._whole = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if self._held:
            self._let_go()
        self._discarded = 0
        super().on_response_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if len(self.headers) > self.server_state.headers_max:
            bound = self.server_state.headers_max
            app = refusing(
                ErrorKind.HEAD_TOO_LARGE, f"the head has more than limits.max_headers = {bound} lines"
            )
        elif self._load.full and not cycle.scope["path"].startswith(ALWAYS_ANSWERED):
            app = refusing(ErrorKind.UNAVAILABLE, self._load.full_reason())
        super()._start_asgi_task(cycle, app)

    def handle_websocket_upgrade(self) -> None:
        if len(self.headers) > self.server_state.headers_max:
            self._end(BAD_HEAD)
        elif self._load.full:
            self._end(raw_answer(ErrorKind.UNAVAILABLE, self._load.full_reason()))
        else:
            super().handle_websocket_upgrade()
            # It is the WebSocket's from now on.
            taken: Any = self.transport.get_protocol()
            if isinstance(taken, WebSocketConnection):
                taken.counted, self._counted = self._counted, ""

    # -- time

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that is late."""
        limits = self.server_state.deadlines
        left = self.transport.get_write_buffer_size()
        self._unwritten.count(left)
        if self._taking.late(left, now, limits.stall_s, limits.bytes_per_s):
            cut(self.transport)
        elif self._is_open():
            self._look_at_request(now, limits)

    def _look_at_request(self, now: float, limits: Deadlines) -> None:
        cycle: Any = self.cycle  # None before the first request
        if cycle is None or self.scope is not cycle.scope:  # another request has begun
            if self._sending.late(self.headers, now, limits.head_s):
                said = f"the head did not come within limits.head_ms = {round(limits.head_s * 1000)} ms"
                self._end(self._may_say(raw_answer(ErrorKind.SLOW_REQUEST, said)))
        elif self._whole:
            self._sending.late(None, now, 0)
        elif cycle.response_complete:
            if self._sending.late(cycle.message_event, now, LINGER_S):
                cut(self.transport)
        else:
            allowed = limits.body_s + self._body / limits.bytes_per_s
            held_up = self.flow.read_paused or cycle.waiting_for_100_continue
            if self._sending.late(cycle, now, allowed, held_up=held_up):
                said = (
                    f"the body did not come within limits.body_ms = {round(limits.body_s * 1000)} ms, "
                    f"nor at limits.min_bytes_per_s = {limits.bytes_per_s}"
                )
                self._end(self._may_say(raw_answer(ErrorKind.SLOW_REQUEST, said)))

    # -- the end

    def _is_open(self) -> bool:
        return not self._ended and not self.transport.is_closing()

    def _may_say(self, answer: bytes) -> bytes:
        """`answer`, unless another has begun."""
        cycle: Any = self.cycle
        return answer if cycle is None or cycle.response_complete or not cycle.response_started else b""

    def _let_go(self) -> None:
        self._load.held -= self._held
        self._held = 0

    def _discard(self, size: int) -> None:
        """Read into nothing, so that a refusal is heard; not for ever."""
        self._discarded += size
        if self._discarded > self.server_state.deadlines.linger_bytes:
            cut(self.transport)

    def _end(self, answer: bytes) -> None:
        """Say why, read on into nothing for a moment, and close: to close at once would reset the connection, and
        the peer would lose what it was told."""
        self._ended = True
        self._discarded = 0
        self._let_go()
        self._unset_keepalive_if_required()
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.flow.resume_reading()
        if answer:
            self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._ending = self.loop.call_later(LINGER_S, self.transport.abort)
        else:  # over TLS: closing waits for the peer's own end, and reads until then
            self.transport.close()
