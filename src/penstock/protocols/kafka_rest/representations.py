"""What a stretch of a log looks like to its reader: frames as they are, lines of text, or JSON strings, in an array
or one a line.

Text is UTF-8 in the log. Invalid bytes, and characters that a reader's charset lacks, are replaced in `text/plain`;
`application/x-kafka` is the representation that loses nothing. JSON escapes what the charset does not have.

A representation is known by its tag, and sent with `Content-MD5` as the proposal asks for (RFC 1864): a check of
transmission, no defence.
"""

import asyncio
import gzip
import json
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b, md5
from typing import Final, NamedTuple, TypeVar

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.media import choose_type, weights

from .framing import MEDIA_TYPE, payloads_in
from .positions import LogPositions
from .ranges import Piece

T = TypeVar("T")
Headers = dict[str, str]

TEXT: Final = "text/plain"
TEXT_JSON: Final = "text/json"
JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"

OFFERED: Final = (MEDIA_TYPE, TEXT, TEXT_JSON, JSON, LINES)
_OFFERED_TO_PEOPLE: Final = (TEXT, TEXT_JSON, JSON, LINES, MEDIA_TYPE)


INLINE_BYTES: Final = 128 * 1024  # larger bodies are hashed, encoded and compressed in a thread
GZIP_LEVEL: Final = 1  # several times faster than the default, for a tenth more bytes
DIGESTS_MAX: Final = (
    4096  # pieces whose digest is remembered, at about 200 bytes each: many readers follow a log
)

# The charsets of texts that come in and go out: those that texts are written in. Python's registry also knows codecs
# that are not charsets, and finds names by importing modules.
UTF_8: Final = "utf-8"

CHARSETS: Final = frozenset((
    "utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be",
    "iso-8859-1", "latin1", "iso-8859-2", "iso-8859-3", "iso-8859-4", "iso-8859-5", "iso-8859-6", "iso-8859-7",
    "iso-8859-8", "iso-8859-9", "iso-8859-10", "iso-8859-11", "iso-8859-13", "iso-8859-14", "iso-8859-15",
    "iso-8859-16", "windows-874", "windows-1250", "windows-1251", "windows-1252", "windows-1253",
    "windows-1254", "windows-1255", "windows-1256", "windows-1257", "windows-1258", "koi8-r", "koi8-u",
    "macintosh", "ibm866", "big5", "gb2312", "gbk", "gb18030", "shift_jis", "euc-jp", "iso-2022-jp", "euc-kr",
))  # fmt: skip
_PYTHON_NAMES: Final = {"windows-874": "cp874", "utf-16le": "utf-16-le", "utf-16be": "utf-16-be"}


def codec_of(charset: str) -> str | None:
    """The name of Python's codec for a charset, None for one that does not exist."""
    name = charset.lower()
    return _PYTHON_NAMES.get(name, name) if name in CHARSETS else None


class Form(NamedTuple):
    """How an answer is written: its media type, and its charset if it is text."""

    media_type: str
    charset: str
    gzip: bool

    @property
    def content_type(self) -> str:
        if self.media_type.startswith("text/"):
            return f"{self.media_type}; charset={self.charset}"
        return self.media_type

    @property
    def is_frames(self) -> bool:
        """Whether the log's bytes are sent as they are."""
        return self.media_type == MEDIA_TYPE

    @property
    def _codec(self) -> str:
        return codec_of(self.charset) or UTF_8

    def write(self, frames: bytes) -> bytes:
        """The representation of some frames."""
        if self.is_frames:
            return frames
        payloads = payloads_in(frames)
        if self.media_type == TEXT:
            lines = b"\n".join((*payloads, b""))
            # A newline ends whatever was cut short before it, so that decoding all at once is as one by one.
            return lines.decode("utf-8", "replace").encode(self._codec, "replace")
        texts = [payload.decode("utf-8", "replace") for payload in payloads]
        if self.media_type == LINES:
            return msgspec.json.Encoder().encode_lines(texts)
        if self.charset == UTF_8:
            return msgspec.json.encode(texts)
        return json.dumps(texts, separators=(",", ":")).encode(self._codec)


def negotiate(headers: Mapping[str, str]) -> Form:
    """The form that a client takes; raises NOT_ACCEPTABLE."""
    accept = headers.get("accept")
    # A browser that follows a link takes anything, but what it shows is text.
    offered = _OFFERED_TO_PEOPLE if accept is not None and "text/html" in accept else OFFERED
    media_type = choose_type(accept, offered)
    if media_type is None:
        raise PenstockError(ErrorKind.NOT_ACCEPTABLE, f"a partition is had as {', '.join(OFFERED)}")
    charset = _charset(headers.get("accept-charset")) if media_type.startswith("text/") else UTF_8
    return Form(media_type, charset, _gzip(headers.get("accept-encoding")))


def _charset(accept: str | None) -> str:
    if accept is None or not accept.strip():
        return UTF_8
    wanted = weights(accept)
    if "*" in wanted:
        wanted.setdefault(UTF_8, wanted["*"])
    best = max(
        (name for name in wanted if wanted[name] > 0 and codec_of(name) is not None),
        key=lambda name: (wanted[name], name == UTF_8),
        default=None,
    )
    if best is None:
        raise PenstockError(ErrorKind.NOT_ACCEPTABLE, f"none of the charsets {accept[:200]!r} is known")
    return best


def _gzip(accept: str | None) -> bool:
    wanted = weights(accept or "")
    anything = wanted.get("*")
    gzip = wanted.get("gzip", wanted.get("x-gzip", anything or 0.0))
    plain = wanted.get("identity", anything if anything == 0.0 else None)
    if plain == 0.0 and gzip == 0.0:
        raise PenstockError(ErrorKind.NOT_ACCEPTABLE, "a partition is had plain or as gzip")
    return gzip > 0.0 and gzip >= (plain or 0.0)


# -- a piece of a log, or several, as they are sent


class Rendered(msgspec.Struct, frozen=True):
    """A representation, not compressed yet, with the headers that describe it."""

    etag: str
    body: bytes
    headers: Headers
    digest: bytes

    async def finish(self, form: Form) -> tuple[bytes, Headers]:
        """The body as it is sent, and all its headers."""
        if not form.gzip:
            return self.body, {**self.headers, "content-md5": b64encode(self.digest).decode()}
        packed, of_packed = await _work(len(self.body), lambda: _pack(self.body))
        return packed, {
            **self.headers,
            "content-encoding": "gzip",
            "content-md5": b64encode(of_packed).decode(),
        }


class Renderer:
    """Renders pieces of logs."""

    def __init__(self) -> None:
        self._digests: OrderedDict[tuple[int, Piece, Form], bytes] = OrderedDict()
        self._secret = secrets.token_bytes(16)

    async def __call__(self, log: LogPositions, form: Form, pieces: Sequence[Piece], size: int) -> Rendered:
        """The representation of the pieces; raises TrimmedError."""
        if len(pieces) == 1:
            (piece,) = pieces
            body, digested = await self._one(log, form, piece)
            headers = {"content-type": form.content_type, "content-range": content_range(piece, size)}
        else:
            body, headers = await self._several(log, form, pieces, size)
            digested = await _work(len(body), lambda: digest(body))
        etag = f'"{pieces[0].start:x}-{digested.hex()}{"-gzip" if form.gzip else ""}"'
        return Rendered(etag, body, headers, digested)

    async def _one(self, log: LogPositions, form: Form, piece: Piece) -> tuple[bytes, bytes]:
        """A piece and its digest."""
        frames = await log.frames(piece.start, piece.end)
        body = frames if form.is_frames else await _work(len(frames), lambda: form.write(frames))
        key = log.key, piece._replace(lasting=False), form._replace(gzip=False)
        digested = self._digests.get(key)
        if digested is None:
            digested = self._digests[key] = await _work(len(body), lambda: digest(body))
            while len(self._digests) > DIGESTS_MAX:
                self._digests.popitem(last=False)
        return body, digested

    async def _several(
        self, log: LogPositions, form: Form, pieces: Sequence[Piece], size: int
    ) -> tuple[bytes, Headers]:
        # The boundary is the same for the same question, and no client that writes to the log can know it.
        asked = repr((log.key, form, pieces)).encode()
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


def digest(body: bytes) -> bytes:
    return md5(body, usedforsecurity=False).digest()


def _pack(body: bytes) -> tuple[bytes, bytes]:
    packed = gzip.compress(body, GZIP_LEVEL, mtime=0)
    return packed, digest(packed)


async def _work(size: int, work: Callable[[], T]) -> T:
    return work() if size <= INLINE_BYTES else await asyncio.to_thread(work)
