"""Compressed bodies of requests (RFC 9110 8.4.1): gzip and deflate, within bounds of what they unfold to."""

import asyncio
import re
import zlib
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError

from .answers import RefusedError

# Texts compress well, seldom beyond this; deflate itself can reach 1032.
RATIO_MAX: Final = 200
RATIO_FREE_BYTES: Final = 64 * 1024  # a short text of one letter is not a bomb
INLINE_BYTES: Final = 4 * 1024  # of compressed data; more is left to a thread, as it may hold up the loop
FIRST_PIECE_BYTES: Final = 1024  # of a stream; each further piece is twice as large

_PADDING: Final = re.compile(rb"\0+")  # between members and after them, as gzip itself allows
_GZIP_WINDOW: Final = 31  # the largest, and a gzip header
_ZLIB_WINDOW: Final = 15
_RAW_WINDOW: Final = -15  # deflate without the header that RFC 1950 asks for, as some clients send it


async def unfolded(header: str, body: bytes, bytes_max: int) -> bytes:
    """As `unfold`, in a thread if that takes long."""
    if len(body) > INLINE_BYTES and _codings(header):
        return await asyncio.to_thread(unfold, header, body, bytes_max)
    return unfold(header, body, bytes_max)


def unfold(header: str, body: bytes, bytes_max: int, left: int | None = None) -> bytes:
    """A decoded body; `left` is the rest of `bytes_max` if others share that.

    Raises BAD_MEDIA_TYPE for a coding that is not known, BAD_ENCODING for broken data, TOO_LARGE.
    """
    codings = _codings(header)
    match codings:
        case []:
            return body
        case ["gzip" | "x-gzip"]:
            return gunzip(body, bytes_max, left)
        case ["deflate"]:
            return inflate(body, bytes_max, left)
    raise RefusedError(
        ErrorKind.BAD_MEDIA_TYPE,
        f"Content-Encoding {', '.join(codings)[:80]!r} is not understood: gzip and deflate are, one of them",
        {"accept-encoding": "gzip, deflate"},
    )


def _codings(header: str) -> list[str]:
    """Those that change a body."""
    named = [one.strip().lower() for one in header.split(",")]
    return [one for one in named if one not in ("", "identity")]


def gunzip(data: bytes, bytes_max: int, left: int | None = None) -> bytes:
    """Decompress one gzip stream of possibly several members. Raises BAD_ENCODING, TOO_LARGE."""
    allowed = _allowed(data, bytes_max if left is None else left)
    parts: list[bytes] = []
    size = at = 0
    while at < len(data):
        part, at = _stream(data, at, _GZIP_WINDOW, allowed - size, bytes_max, "gzip")
        size += len(part)
        parts.append(part)
        padding = _PADDING.match(data, at)
        at = at if padding is None else padding.end()
    if not parts:
        raise PenstockError(ErrorKind.BAD_ENCODING, "the gzip data is empty")
    return b"".join(parts)


def inflate(data: bytes, bytes_max: int, left: int | None = None) -> bytes:
    """Decompress what HTTP calls deflate: zlib's format, or without its header. Raises BAD_ENCODING, TOO_LARGE."""
    allowed = _allowed(data, bytes_max if left is None else left)
    with_header = len(data) > 1 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
    window = _ZLIB_WINDOW if with_header else _RAW_WINDOW
    found, end = _stream(data, 0, window, allowed, bytes_max, "deflate")
    if end < len(data):
        raise PenstockError(ErrorKind.BAD_ENCODING, "something follows the deflate data")
    return found


def _allowed(data: bytes, left: int) -> int:
    return min(left, RATIO_FREE_BYTES + RATIO_MAX * len(data))


def _stream(data: bytes, at: int, window: int, allowed: int, bytes_max: int, name: str) -> tuple[bytes, int]:
    """The decompressed stream that begins at `at`, at most `allowed` bytes, and its end.

    The decompressor copies what it was given beyond the end. It gets pieces, each about as large as those before it
    together, so that a body of many short streams is not copied whole for each of them.
    """
    member = zlib.decompressobj(window)
    parts: list[bytes] = []
    size, piece_bytes = 0, FIRST_PIECE_BYTES
    while at < len(data) and not member.eof:
        piece = data[at : at + piece_bytes]
        try:
            part = member.decompress(piece, allowed - size + 1)
        except zlib.error as error:
            raise PenstockError(ErrorKind.BAD_ENCODING, f"the {name} data is broken: {error}") from None
        size += len(part)
        if size > allowed:
            raise PenstockError(
                ErrorKind.TOO_LARGE,
                f"the {name} data unfolds to more than is taken: {bytes_max} bytes in a request, and {RATIO_MAX} times its own size",
            )
        parts.append(part)
        at += len(piece) - len(member.unused_data)
        piece_bytes *= 2
    if not member.eof:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"the {name} data is cut short")
    return b"".join(parts), at
