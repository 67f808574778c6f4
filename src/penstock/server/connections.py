"""HTTP connections, bounded, and closed so that the peer sees why."""

import asyncio
from functools import partial
from typing import Any, Final, cast

from websockets.datastructures import Headers
from websockets.http11 import Request as Handshake

from penstock.model.errors import ErrorKind
from penstock.protocols.holding import STATE_KEY, Holding
from penstock.protocols.transport import Pieces

from .deadlines import LINGER_S, Deadlines, Sending, Taking, Unwritten, cut
from .heads import announces_body, head_bytes
from .http1 import Http1Connection
from .refusals import BAD_HEAD, BAD_PATH, EARLY_UPGRADE, UPGRADE_WITH_BODY, raw_answer, refuse_unread
from .request import Request, Serve
from .sockets import WebSocketConnection
from .state import State

HEAD_BYTES_MAX: Final = 65_536  # of a request's head, or of anything else that is not its body
HEAD_BYTES_FREE: Final = 4096  # of a head, that is not counted: most are smaller
HIGH_BYTES: Final = 65_536  # written and not taken, before the writer waits
LOW_BYTES: Final = 16_384
ALWAYS_ANSWERED: Final = "/health/"  # also by a server that takes nothing on


class HttpConnection(Http1Connection):
    """Refuses what is too much or too late: the parser alone would wait for ever, and keep all of it."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._load = self.server_state.load
        self._unfinished = 0  # received since a head was complete, or a part of a body came
        self._piece = 0  # the size of what is being parsed
        self._overlap = 0  # of the piece in which that was: as much of the next head may have come with it
        self._whole = True  # the request's body, if there is one
        self._body = 0  # bytes of it so far
        self._head = 0  # of a head that is not complete, as far as it is counted
        self._held = 0  # of all heads and bodies that are not answered
        self._discarded = 0  # read into nothing
        self.counted = ""  # the address it is counted under
        self._ended = False  # nothing is read any more but into nothing
        self._ending: asyncio.TimerHandle | None = None
        self._sending = Sending()
        self._taking = Taking()
        self._holding: Holding
        self._unwritten: Unwritten

    @property
    def begun(self) -> bool:
        """Whether the connection was ever made."""
        return self.transport is not None

    def forget(self) -> None:
        super().forget()
        self._sending = Sending()  # it may know a request, which knows this object
        self.app_state = {}  # with what the application knows of the connection goes what knows the connection

    abandon = forget

    # -- the transport's calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(HIGH_BYTES, LOW_BYTES)
        address = self.client[0] if self.client else ""
        self._holding = Holding(self._load, address)
        self._unwritten = Unwritten(self._holding)
        self.app_state = {**self.app_state, STATE_KEY: self._holding}
        if self.scheme == "https":
            self.app_state = {**self.app_state, "peercert": transport.get_extra_info("peercert")}
            self.transport = cast(asyncio.Transport, Pieces(transport))
        refusal = "" if self.counted else self._load.enter(address)
        if refusal:
            self._end(raw_answer(ErrorKind.UNAVAILABLE, refusal))
        else:
            self.counted = address

    def data_received(self, data: bytes) -> None:
        if self._ended:
            self._discard(len(data))
            return
        request = self.repeated(data)
        if request is not None:
            if request.length > 0:
                self._hold(request.length)
            self.start(request, self.serve)
            return
        self._piece = len(data)
        self._unfinished += self._piece
        super().data_received(data)
        if self._unfinished:
            self._count_head()

    def _count_head(self) -> None:
        """A head that is not complete counts, as a body does."""
        if not self._is_open():
            return
        if self._unfinished > HEAD_BYTES_MAX:
            self._end(BAD_HEAD)
        elif self._unfinished > HEAD_BYTES_FREE:
            self._hold(self._unfinished - self._head)
            self._head = self._unfinished
            if self._holding.over:
                self._end(raw_answer(*self._holding.refuse()))

    def pause_writing(self) -> None:
        self._unwritten.count(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unwritten.count(0)
        self._taking.took(HIGH_BYTES - LOW_BYTES)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._unwritten.count(0)
        self._holding.close()
        if self.counted:
            self._load.leave(self.counted)
            self.counted = ""
        if self._ending is not None:
            self._ending.cancel()
        super().connection_lost(exc)

    # -- the parser's calls

    def on_headers_complete(self) -> None:
        if self._ended:  # by what came with the same bytes
            return
        if self._unfinished + self._overlap > HEAD_BYTES_MAX < self._head_bytes():
            self._end(BAD_HEAD)
            return
        if self._unfinished > HEAD_BYTES_FREE:  # of them most may be of the body
            head = sum([len(name) + len(value) for name, value in self.headers])
            if head > max(self._head, HEAD_BYTES_FREE):
                self._hold(head - self._head)
        self._unfinished, self._overlap = 0, self._piece
        self._whole = False
        self._body = self._head = 0
        super().on_headers_complete()
        if self.upgrading and announces_body(self.headers):
            self._end(UPGRADE_WITH_BODY)

    def _head_bytes(self) -> int:
        """The size of a complete head, however it came."""
        return head_bytes(self.parser.get_method(), self.url, self.headers)

    def on_body(self, body: bytes) -> None:
        self._unfinished, self._overlap = 0, self._piece
        size = len(body)
        self._body += size
        if self._ended:
            return
        request = self.request
        if request is None or request.answered or request.cut:
            self._discard(size)
            return
        self._hold(size)
        super().on_body(body)
        if self._holding.over and not request.started:
            self._end(raw_answer(*self._holding.refuse()))

    def on_message_complete(self) -> None:
        if self._ended:
            return
        self._whole = True
        super().on_message_complete()

    def on_answered(self) -> None:
        if self._held:
            self._release()
        self._discarded = 0
        super().on_answered()

    def start(self, request: Request, serve: Serve) -> None:
        bound = self.server_state.headers_max
        if len(request.scope["headers"]) > bound:
            said = f"the head has more than limits.max_headers = {bound} lines"
            serve = partial(refuse_unread, kind=ErrorKind.HEAD_TOO_LARGE, message=said)
        elif self._holding.over and not request.scope["path"].startswith(ALWAYS_ANSWERED):
            kind, said = self._holding.refuse()
            serve = partial(refuse_unread, kind=kind, message=said)
        super().start(request, serve)

    def refuse_bytes(self) -> None:
        if not self._ended:  # else it is answered already
            super().refuse_bytes()

    def upgrade(self) -> None:
        if self._ended:
            return
        if len(self.headers) > self.server_state.headers_max:
            self._end(BAD_HEAD)
        elif self._holding.over:
            self._end(raw_answer(*self._holding.refuse()))
        elif not self.url.isascii():
            self._end(BAD_PATH)
        elif self.request is not None and not self.request.answered:  # its answer would go between the frames
            self._end(EARLY_UPGRADE)
        else:
            self._upgrade()

    def _upgrade(self) -> None:
        """Hand the connection to a WebSocket, with its request as it was parsed here."""
        size = self._head_bytes()
        self._release()
        self.connections.discard(cast(Any, self))
        headers = [
            (name.decode("latin-1"), value.strip(b" \t").decode("latin-1")) for name, value in self.headers
        ]
        made = WebSocketConnection(
            Handshake(self.url.decode("ascii"), Headers(headers), self.parser.get_method().decode("ascii")),
            self.transport,
            self.server_state,
            self.app_state,
            head_bytes=size if size > HEAD_BYTES_FREE else 0,
        )
        made.counted, self.counted = self.counted, ""  # it is the WebSocket's from now on
        self.transport.set_protocol(made)
        self._holding.close()
        self.forget()  # it does not learn that the connection is lost

    # -- time

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that is late."""
        limits = self.server_state.deadlines
        left = self.transport.get_write_buffer_size()
        self._unwritten.count(left)
        if self._taking.late(left, now, limits.stall_s, limits.bytes_per_s):
            cut(self.transport)
        elif self._is_open():
            if self.idle_since is not None and now - self.idle_since > self.server_state.keep_alive_s:
                self.transport.close()
            else:
                self._look_at_request(now, limits)

    def _look_at_request(self, now: float, limits: Deadlines) -> None:
        request = self.request
        if request is None or self.in_head:
            if self._sending.late(self.headers, now, limits.head_s):
                said = f"the head did not come within limits.head_ms = {round(limits.head_s * 1000)} ms"
                self._end(raw_answer(ErrorKind.SLOW_REQUEST, said))
        elif self._whole or (request.streams and not request.answered):
            self._sending.late(None, now, 0)
        elif request.answered:
            if self._sending.late(request.scope, now, LINGER_S):
                cut(self.transport)
        else:
            allowed = limits.body_s + self._body / limits.bytes_per_s
            held_up = self.read_paused or request.expects_continue
            if self._sending.late(request, now, allowed, held_up=held_up):
                said = (
                    f"the body did not come within limits.body_ms = {round(limits.body_s * 1000)} ms, "
                    f"nor at limits.min_bytes_per_s = {limits.bytes_per_s}"
                )
                self._end(raw_answer(ErrorKind.SLOW_REQUEST, said))

    # -- the end

    def hang_up(self) -> None:
        if self._whole:
            super().hang_up()
        else:  # the peer is still sending
            self._end(b"")

    @property
    def lingers(self) -> bool:
        """Whether it ends, and its peer may still read why, or the end of its answer."""
        return self._ending is not None

    def _is_open(self) -> bool:
        return not self._ended and not self.transport.is_closing()

    def _hold(self, size: int) -> None:
        self._held += size
        self._holding.receive(size)

    def _release(self) -> None:
        self.release(self._held)

    def release(self, size: int) -> None:
        size = min(size, self._held)
        self._held -= size
        self._holding.receive(-size)

    def _discard(self, size: int) -> None:
        """Read into nothing, so that a refusal is heard; not for ever."""
        self._discarded += size
        if self._discarded > self.server_state.deadlines.linger_bytes:
            cut(self.transport)

    def _end(self, answer: bytes) -> None:
        """Say why, unless another answer has begun, read on into nothing for a moment, and close: to close at once
        would reset the connection, and the peer would lose the answer."""
        self._ended = True
        self._discarded = 0
        self._release()
        self.idle_since = None
        request = self.request
        if request is not None and not request.answered:
            if request.started:
                answer = b""
            request.disconnect()
        self.following.clear()
        self.resume_reading()
        if answer:
            self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._ending = self.loop.call_later(LINGER_S, self.transport.abort)
        else:  # over TLS: closing waits for the peer's own end, and reads until then
            self.transport.close()
