"""Bodies posted to messages: one representation or many parts, each with its own headers."""

from binascii import Error, a2b_base64, unhexlify
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message import OutMessage
from penstock.protocols.http.media import parse_media_type, parse_multipart

from . import framing
from .framing import Budget
from .representations import UTF_8, codec_of, digest

KEY_HEADER: Final = "x-kafka-key"  # the framing of 2012 has no place for a key

_BYTES: Final = "application/octet-stream"
_JSON: Final = ("application/json", "text/json")
_LINES: Final = ("application/x-ndjson", "application/jsonl", "application/ndjson")
_MULTIPART: Final = "multipart/mixed"
TAKEN: Final = (framing.MEDIA_TYPE, "text/plain", *_JSON, _LINES[0], _BYTES, _MULTIPART)


def read_messages(headers: Mapping[str, str], body: bytes, budget: Budget) -> list[OutMessage]:
    """The messages of a request's body, at least one.

    Raises CHECKSUM, BAD_ENCODING, BAD_MEDIA_TYPE, BAD_MESSAGE, BAD_JSON, TOO_LARGE; then nothing was taken.
    """
    body = _decode(headers, body, budget)
    media_type, parameters = _type_of(headers, _BYTES)
    if media_type != _MULTIPART:
        return _messages(headers, body, media_type, parameters, budget)
    found: list[OutMessage] = []
    for part in parse_multipart(body, parameters.get("boundary", "")):
        inner = _decode(part.headers, part.body, budget)
        media_type, parameters = _type_of(
            part.headers, "text/plain"
        )  # RFC 2046 5.1: what a part is by default
        found += _messages({**headers, **part.headers}, inner, media_type, parameters, budget)
    return found


def _decode(headers: Mapping[str, str], body: bytes, budget: Budget) -> bytes:
    """A body as it was before it was encoded; its digest is of the sent bytes (RFC 2616 14.15)."""
    check_digest(body, headers.get("content-md5"))
    transfer = headers.get("content-transfer-encoding", "binary").strip().lower()
    if transfer not in ("7bit", "8bit", "binary"):
        raise PenstockError(
            ErrorKind.BAD_MEDIA_TYPE, f"Content-Transfer-Encoding {transfer[:80]!r} is not for HTTP"
        )
    return budget.unfold(headers.get("content-encoding", ""), body)


def check_digest(body: bytes, header: str | None) -> None:
    """Compare a body, as it was sent, with its `Content-MD5`: base64, or hex as in the proposal's example.

    Raises CHECKSUM, and BAD_PARAMETER for an invalid digest.
    """
    if header is None:
        return
    text = header.strip()
    try:
        wanted = unhexlify(text) if len(text) == 32 else a2b_base64(text, strict_mode=True)
    except (Error, ValueError):
        wanted = b""
    if len(wanted) != 16:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"Content-MD5 {text[:80]!r} is no MD5 digest")
    if wanted != digest(body):
        raise PenstockError(ErrorKind.CHECKSUM, "the body does not have the digest that Content-MD5 tells")


def _type_of(headers: Mapping[str, str], default: str) -> tuple[str, Mapping[str, str]]:
    found = parse_media_type(headers.get("content-type") or default)
    if found is None:
        raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, "the Content-Type is no media type")
    return found


def _messages(
    headers: Mapping[str, str],
    body: bytes,
    media_type: str,
    parameters: Mapping[str, str],
    budget: Budget,
) -> list[OutMessage]:
    if media_type == framing.MEDIA_TYPE:
        payloads = framing.parse(body, budget)
    elif media_type == "text/plain":
        payloads = [_text(body, parameters)]
    elif media_type in _JSON:
        payloads = _elements(_text(body, parameters) if media_type == "text/json" else body)
    elif media_type in _LINES:
        payloads = [_element(line) for line in body.splitlines() if line.strip()]
    elif media_type == _BYTES:
        payloads = [body]
    else:
        raise PenstockError(
            ErrorKind.BAD_MEDIA_TYPE,
            f"Content-Type {media_type[:80]!r} is not understood: {', '.join(TAKEN)} are",
        )
    if not payloads:
        raise PenstockError(ErrorKind.BAD_MESSAGE, "there is no message in it")
    if media_type != framing.MEDIA_TYPE:  # whose messages were counted as they were unfolded
        for _ in payloads:
            budget.message()
    key = _key(headers)
    return [OutMessage(payload=payload, key=key) for payload in payloads]


def _text(body: bytes, parameters: Mapping[str, str]) -> bytes:
    """A text as UTF-8, whatever it came in."""
    charset = parameters.get("charset", UTF_8)
    codec = codec_of(charset)
    if codec is None:
        raise PenstockError(ErrorKind.BAD_MEDIA_TYPE, f"charset {charset[:80]!r} is not known")
    try:
        return body.decode(codec).encode()
    except UnicodeError as error:
        raise PenstockError(ErrorKind.BAD_ENCODING, f"the text is no {charset}: {error}") from None


def _elements(body: bytes) -> list[bytes]:
    """An array's elements; anything else is one message."""
    try:
        return [_stored(one) for one in msgspec.json.decode(body, type=list[msgspec.Raw])]
    except msgspec.ValidationError:
        return [_element(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from None


def _element(data: bytes) -> bytes:
    try:
        return _stored(msgspec.json.decode(data, type=msgspec.Raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from None


def _stored(value: msgspec.Raw) -> bytes:
    """A JSON string is stored as its text, everything else unchanged."""
    data = bytes(value).strip()
    decoded: Any = msgspec.json.decode(data)  # a Raw is not looked into otherwise
    if not isinstance(decoded, str):
        return data
    try:
        return decoded.encode()
    except UnicodeEncodeError:
        raise PenstockError(ErrorKind.BAD_JSON, "a JSON string that is no Unicode") from None


def _bad_json(error: Exception) -> PenstockError:
    return PenstockError(ErrorKind.BAD_JSON, f"the JSON cannot be read: {error}")


def _key(headers: Mapping[str, str]) -> str | None:
    key = headers.get(KEY_HEADER)
    if key is None:
        return None
    try:
        return key.encode("latin-1").decode()
    except UnicodeError:
        raise PenstockError(ErrorKind.BAD_ENCODING, "X-Kafka-Key is no UTF-8") from None
