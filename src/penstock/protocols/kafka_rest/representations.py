"""What a stretch of a log looks like to its reader: frames as they are, lines of text, or JSON strings, in an array
or one a line.

Text is UTF-8 in the log. What is none, and what a reader's charset does not have, is replaced in `text/plain`;
`application/x-kafka` is the representation that loses nothing. JSON escapes what the charset does not have.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.media import choose_type, weights

from .charsets import UTF_8, codec_of
from .framing import MEDIA_TYPE, payloads_in

TEXT: Final = "text/plain"
TEXT_JSON: Final = "text/json"
JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"

OFFERED: Final = (MEDIA_TYPE, TEXT, TEXT_JSON, JSON, LINES)
_OFFERED_TO_PEOPLE: Final = (TEXT, TEXT_JSON, JSON, LINES, MEDIA_TYPE)


class Form(NamedTuple):
    """How an answer is written: its media type, and its charset where it is text."""

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
