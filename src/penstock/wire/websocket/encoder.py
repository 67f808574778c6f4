"""Messages to the frames of a server (RFC 6455 5.1: they are not masked)."""

from collections.abc import Sequence
from typing import Final

from websockets.extensions import Extension
from websockets.frames import CloseCode, Frame, Opcode

from .parser import CLOSE, CONTROL_BYTES_MAX, FIN, RSV1, TEXT

_TEXT: Final = FIN | TEXT


def _head(first: int, size: int) -> bytes:
    if size < 126:
        return bytes((first, size))
    if size < 0x1_0000:
        return bytes((first, 126)) + size.to_bytes(2, "big")
    return bytes((first, 127)) + size.to_bytes(8, "big")


_HEADS: Final = tuple(_head(_TEXT, size) for size in range(2048))  # of most frames


def encode_texts(payloads: Sequence[bytes], deflate: Extension | None = None) -> bytes:
    """Text frames, one after the other."""
    if deflate is not None:
        return b"".join([_encode_deflated(payload, deflate) for payload in payloads])
    parts: list[bytes] = []
    for payload in payloads:
        size = len(payload)
        parts += (_HEADS[size] if size < len(_HEADS) else _head(_TEXT, size), payload)
    return b"".join(parts)


def _encode_deflated(payload: bytes, deflate: Extension) -> bytes:
    content = bytes(deflate.encode(Frame(Opcode.TEXT, payload)).data)
    return _head(_TEXT | RSV1, len(content)) + content


def encode_control(opcode: int, payload: bytes) -> bytes:
    """A ping or a pong, of at most 125 bytes."""
    return _head(FIN | opcode, len(payload)) + payload


def encode_close(code: int, reason: str) -> bytes:
    """A close frame; the reason is cut to what fits."""
    payload = b"" if code == CloseCode.NO_STATUS_RCVD else code.to_bytes(2, "big")
    return encode_control(
        CLOSE, payload + reason.encode()[: CONTROL_BYTES_MAX - 2].decode(errors="ignore").encode()
    )
