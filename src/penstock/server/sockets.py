"""uvicorn's WebSocket connection, with the same bounds."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .deadlines import LINGER_S, Taking, Unwritten, cut


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Reads on, into nothing, after a frame that cannot be: closing at once would reset the connection, and the
    peer would lose the close frame that says why."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        state: Any = arguments["server_state"]
        self._load = state.load
        self._deadlines = state.deadlines
        self._failed = False
        self._heard = 0  # pieces that came, pings and pongs among them
        self._taking = Taking()
        self._unwritten = Unwritten(self._load)
        self.counted = ""  # the address it is counted under
        self.app_state = {**self.app_state, "heard": self.heard}

    def heard(self) -> int:
        """A number that grows with whatever comes: ASGI shows no pings."""
        return self._heard

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        if not self._failed:
            super().data_received(data)

    def pause_writing(self) -> None:
        self._unwritten.count(self.transport.get_write_buffer_size())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unwritten.count(0)
        low, high = self.transport.get_write_buffer_limits()
        self._taking.took(high - low)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwritten.count(0)
        if self.counted:
            self._load.leave(self.counted)
            self.counted = ""
        super().connection_lost(exc)

    def handle_parser_exception(self) -> None:
        closed: Any = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason})
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._failed = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)

    def look(self, now: float) -> None:
        """Called now and then: drop a peer that does not take its frames."""
        limits = self._deadlines
        left = self.transport.get_write_buffer_size()
        self._unwritten.count(left)
        if self._taking.late(left, now, limits.stall_s, limits.bytes_per_s):
            self.logger.warning("a WebSocket's peer did not read for limits.stall_ms, and is cut off")
            cut(self.transport)
