"""What a client sent over a WebSocket to messages (RFC 6455; permessage-deflate: RFC 7692). No I/O.

    FIN | RSV1-3 | opcode (4) || MASK | size (7) || size (16 or 64) || masking key (32) || payload

`feed` takes all frames of a read at once: an object, a call and a wake-up for each would cost more than the message.
Fragments of a message are one buffer, as each small part would cost more than its content.
"""

from typing import Final, NamedTuple

from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.extensions import Extension
from websockets.frames import EXTERNAL_CLOSE_CODES, CloseCode, Frame, Opcode

try:
    from websockets.speedups import apply_mask
except ImportError:  # on a platform for which the library has no compiled part
    from websockets.utils import apply_mask

CONT, TEXT, BINARY, CLOSE, PING, PONG = (int(one) for one in Opcode)
_OPCODES: Final = frozenset((CONT, TEXT, BINARY, CLOSE, PING, PONG))

FRAGMENTS_FREE: Final = 1000  # frames of one message, before they have to be so large on average:
FRAGMENT_BYTES: Final = 64
CONTROL_BYTES_MAX: Final = 125  # RFC 6455 5.5

FIN: Final = 0x80
RSV1: Final = 0x40
_RSV: Final = 0x70
_MASKED: Final = 0x80
_TEXT_ALONE: Final = FIN | TEXT  # nearly all frames begin so


class Closing(NamedTuple):
    """A close frame: the peer's, or the answer to it."""

    code: int
    reason: str = ""


class Control(NamedTuple):
    """A ping or a pong."""

    opcode: int
    payload: bytes


class FrameParser:
    """The frames of one client. Texts come back from `feed`; binary messages are passed over.

    `controls` has the pings and pongs, for the caller to take out; `failure` is how to close the connection for a frame
    that cannot be, `close` the client's close frame. After either nothing more is parsed.
    """

    __slots__ = (
        "_buffer",
        "_bytes_max",
        "_deflate",
        "_fragments",
        "_needed",
        "_opcode",
        "_parts",
        "close",
        "completed",
        "controls",
        "failure",
    )

    def __init__(self, bytes_max: int, deflate: Extension | None = None) -> None:
        """`bytes_max` bounds a message; `deflate` is the permessage-deflate that was agreed on."""
        self._bytes_max = bytes_max
        self._deflate = deflate
        self._buffer = bytearray()  # a frame that is not complete
        self._needed = 0  # its bytes; 0 if unknown
        self._parts: bytearray | None = None  # of a message that is not complete
        self._opcode = TEXT  # of that message
        self._fragments = 0
        self.completed = 0  # messages: which one is not complete yet
        self.controls: list[Control] = []
        self.failure: Closing | None = None
        self.close: Closing | None = None

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._buffer) + (0 if self._parts is None else len(self._parts))

    @property
    def ended(self) -> bool:
        """Whether nothing more is parsed."""
        return self.close is not None or self.failure is not None

    def clear(self) -> None:
        """Drop incomplete frames."""
        self._buffer, self._parts = bytearray(), None

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of the text messages that are complete with `data`, valid UTF-8 each."""
        texts: list[bytes] = []
        if self.ended:
            return texts
        content: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return texts
            content, self._buffer, self._needed = self._buffer, bytearray(), 0
        try:
            at = self._parse(content, texts)
        except _Failed as failed:
            self._end(failed.code, failed.reason)
        except ProtocolError as error:
            self._end(CloseCode.PROTOCOL_ERROR, str(error))
        except PayloadTooBig:
            self._end(CloseCode.MESSAGE_TOO_BIG, self._too_big())
        except UnicodeDecodeError as error:
            self._end(CloseCode.INVALID_DATA, f"{error.reason} at position {error.start}")
        else:
            if at < len(content) and self.close is None:
                self._buffer += memoryview(content)[at:]
        return texts

    def _end(self, code: int, reason: str) -> None:
        self.failure = Closing(code, reason)
        self.clear()

    def _too_big(self) -> str:
        return f"a message of more than {self._bytes_max} bytes"

    def _parse(self, data: bytes | bytearray, texts: list[bytes]) -> int:
        """Take every complete frame; returns the start of the incomplete one."""
        at, end, bytes_max = 0, len(data), self._bytes_max
        while end - at >= 2:
            second = data[at + 1]
            if data[at] == _TEXT_ALONE and self._parts is None and _MASKED <= second < 0xFF and end - at >= 8:
                start = at + 6
                size = second & 0x7F
                if second == 0xFE:
                    size = data[at + 2] << 8 | data[at + 3]
                    start += 2
                stop = start + size
                if stop <= end and size <= bytes_max:
                    payload = apply_mask(data[start:stop], data[start - 4 : start])
                    if not payload.isascii():
                        payload.decode()  # raises for invalid UTF-8
                    texts.append(payload)
                    at = stop
                    continue
            stop = self._parse_frame(data, at, end, texts)
            if stop < 0:
                break
            at = stop
            if self.close is not None:
                break
        self.completed += len(texts)
        return at

    def _parse_frame(self, data: bytes | bytearray, at: int, end: int, texts: list[bytes]) -> int:
        """Take any frame; returns the start of the next, -1 if this one is incomplete."""
        first, size = data[at], data[at + 1] & 0x7F
        opcode = first & 0x0F
        self._check_head(first, data[at + 1])
        start = at + 2
        if size >= 126:
            start += 2 if size == 126 else 8
            if start > end:
                self._needed = start - at
                return -1
            size = int.from_bytes(data[at + 2 : start], "big")
        if opcode < CLOSE and size > self._bytes_max - (0 if self._parts is None else len(self._parts)):
            raise _Failed(CloseCode.MESSAGE_TOO_BIG, self._too_big())
        start += 4
        stop = start + size
        if stop > end:
            self._needed = stop - at
            return -1
        with memoryview(data) as view:  # a large payload is copied once
            payload = apply_mask(view[start:stop], bytes(view[start - 4 : start]))
        if opcode >= CLOSE:
            self._take_control(opcode, payload)
        else:
            self._take(first, opcode, payload, texts)
        return stop

    def _check_head(self, first: int, second: int) -> None:
        opcode, reserved = first & 0x0F, first & _RSV
        if opcode not in _OPCODES:
            raise _Failed(CloseCode.PROTOCOL_ERROR, "invalid opcode")
        if reserved and not (reserved == RSV1 and self._deflate is not None and opcode in (TEXT, BINARY)):
            raise _Failed(CloseCode.PROTOCOL_ERROR, "reserved bits must be 0")
        if not second & _MASKED:
            raise _Failed(CloseCode.PROTOCOL_ERROR, "a frame that is not masked")
        if opcode >= CLOSE:
            if second & 0x7F > CONTROL_BYTES_MAX:
                raise _Failed(CloseCode.PROTOCOL_ERROR, "control frame too long")
            if not first & FIN:
                raise _Failed(CloseCode.PROTOCOL_ERROR, "fragmented control frame")
        elif (opcode == CONT) != (self._parts is not None):
            said = "unexpected" if opcode == CONT else "expected a"
            raise _Failed(CloseCode.PROTOCOL_ERROR, f"{said} continuation frame")

    def _take(self, first: int, opcode: int, payload: bytes, texts: list[bytes]) -> None:
        """A frame of a message."""
        final = bool(first & FIN)
        if self._deflate is not None:
            frame = Frame(Opcode(opcode), payload, final, bool(first & RSV1))
            room = self._bytes_max - (0 if self._parts is None else len(self._parts))
            payload = bytes(self._deflate.decode(frame, max_size=room).data)
        if opcode != CONT:
            self._opcode = opcode
            if not final:
                self._parts, self._fragments = bytearray(payload), 0
                return
        else:
            assert self._parts is not None
            self._parts += payload
            self._fragments += 1
            if self._fragments > FRAGMENTS_FREE and len(self._parts) < self._fragments * FRAGMENT_BYTES:
                raise _Failed(CloseCode.POLICY_VIOLATION, f"fragments of less than {FRAGMENT_BYTES} bytes")
            if not final:
                return
            payload, self._parts = bytes(self._parts), None
        if self._opcode == TEXT:
            if not payload.isascii():
                payload.decode()
            texts.append(payload)
        else:
            self.completed += 1

    def _take_control(self, opcode: int, payload: bytes) -> None:
        if opcode != CLOSE:
            self.controls.append(Control(opcode, payload))
            if self._parts is None:
                self.completed += 1
            return
        self.close = parse_close(payload)
        self.clear()


class _Failed(Exception):
    """An invalid frame, and the code to close the connection with."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def parse_close(payload: bytes) -> Closing:
    """The code and reason of a close frame; 1005 without one. Raises for codes that RFC 6455 7.4 does not allow."""
    if not payload:
        return Closing(CloseCode.NO_STATUS_RCVD)
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2:
        raise _Failed(CloseCode.PROTOCOL_ERROR, "close frame too short")
    reason = payload[2:].decode()
    if code not in EXTERNAL_CLOSE_CODES and not 3000 <= code < 5000:
        raise _Failed(CloseCode.PROTOCOL_ERROR, "invalid close code")
    return Closing(code, reason)
