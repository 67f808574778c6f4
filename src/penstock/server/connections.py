"""uvicorn's connections, bounded where it has no bounds, and closed so that the peer sees why."""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_BYTES_MAX: Final = 65_536  # of a request's head, or of anything else that is not its body
LINGER_S: Final = 1.0  # a peer that is still sending has so long to read why it is closed

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: 63\r\nconnection: close\r\n\r\n"
    b'{"error_code":43101,"message":"the head is larger than 64 KiB"}'
)


class HttpConnection(HttpToolsProtocol):
    """Refuses an endless head: the parser would keep all of it, and grow slower with every byte."""

    _unfinished = 0  # received since a head was complete, or a part of a body came

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > HEAD_BYTES_MAX and not self.transport.is_closing():
            answering: Any = self.cycle  # None before the first request
            if answering is None or answering.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Reads on, into nothing, after a frame that cannot be: closing at once would reset the connection, and the
    peer would lose the close frame that says why."""

    _failed = False

    def data_received(self, data: bytes) -> None:
        if not self._failed:
            super().data_received(data)

    def handle_parser_exception(self) -> None:
        closed: Any = self.conn.close_sent
        self.queue.put_nowait({"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason})
        self.stop_keepalive()
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._failed = True
        self.transport.resume_reading()
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)
