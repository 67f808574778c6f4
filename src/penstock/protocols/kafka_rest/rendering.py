"""Pieces of a log to the body and the headers that describe it."""

import asyncio
import gzip
import secrets
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

import msgspec

from .digests import Digests, digest, in_header
from .positions import LogPositions
from .ranges import Piece
from .representations import Form

T = TypeVar("T")
Headers = dict[str, str]

INLINE_BYTES: Final = 128 * 1024  # what is larger is hashed, encoded and compressed in a thread
GZIP_LEVEL: Final = 1  # several times faster than the default, for a tenth more bytes


class Rendered(msgspec.Struct, frozen=True):
    """A representation that is known by its tag; `finish` makes its body as it is sent, with its headers."""

    etag: str
    finish: Callable[[], Awaitable[tuple[bytes, Headers]]]


class Renderer:
    """Renders pieces of logs."""

    def __init__(self) -> None:
        self._digests = Digests()
        self._secret = secrets.token_bytes(16)

    async def __call__(self, log: LogPositions, form: Form, pieces: Sequence[Piece], size: int) -> Rendered:
        """The representation of the pieces; raises TrimmedError."""
        if len(pieces) == 1:
            (piece,) = pieces
            body, told = await self._one(log, form, piece)
            headers = {"content-type": form.content_type, "content-range": content_range(piece, size)}
        else:
            body, headers = await self._several(log, form, pieces, size)
            told = await _work(len(body), lambda: digest(body))
        etag = f'"{pieces[0].start:x}-{told.hex()}{"-gzip" if form.gzip else ""}"'

        async def finish() -> tuple[bytes, Headers]:
            if not form.gzip:
                return body, {**headers, "content-md5": in_header(told)}
            packed, of_packed = await _work(len(body), lambda: _pack(body))
            return packed, {**headers, "content-encoding": "gzip", "content-md5": in_header(of_packed)}

        return Rendered(etag, finish)

    async def _one(self, log: LogPositions, form: Form, piece: Piece) -> tuple[bytes, bytes]:
        """A piece and its digest."""
        frames = await log.frames(piece.start, piece.end)
        ledger = log.topic.ledger
        plain = form._replace(gzip=False)
        body = frames if form.is_frames else await _work(len(frames), lambda: form.write(frames))
        told = self._digests.get(ledger, piece.start, piece.end, plain)
        if told is None:
            told = await _work(len(body), lambda: digest(body))
            self._digests.put(ledger, piece.start, piece.end, plain, told)
        return body, told

    async def _several(
        self, log: LogPositions, form: Form, pieces: Sequence[Piece], size: int
    ) -> tuple[bytes, Headers]:
        # The boundary is the same for the same question, and nobody who writes to the log can know it.
        asked = repr((log.topic.ledger, form, pieces)).encode()
        boundary = blake2b(asked, key=self._secret, digest_size=16).hexdigest()
        parts: list[bytes] = []
        for piece in pieces:
            body, _ = await self._one(log, form, piece)
            head = f"--{boundary}\r\nContent-Type: {form.content_type}\r\n"
            head += f"Content-Range: {content_range(piece, size)}\r\n\r\n"
            parts += (head.encode(), body, b"\r\n")
        parts.append(f"--{boundary}--\r\n".encode())
        return b"".join(parts), {"content-type": f"multipart/byteranges; boundary={boundary}"}


def content_range(piece: Piece, size: int) -> str:
    """The log's bytes that a piece consumes, both ends inclusive, and the log's size."""
    return f"bytes {piece.start}-{piece.end - 1}/{max(size, piece.end)}"


def _pack(body: bytes) -> tuple[bytes, bytes]:
    packed = gzip.compress(body, GZIP_LEVEL, mtime=0)
    return packed, digest(packed)


async def _work(size: int, work: Callable[[], T]) -> T:
    return work() if size <= INLINE_BYTES else await asyncio.to_thread(work)
