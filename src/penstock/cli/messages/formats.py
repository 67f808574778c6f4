"""Pieces of input to messages as REST takes them: by the format of the input, and by how values are encoded in it."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from penstock.model.message_json import JSON_NAMES

Message = dict[str, Any]
Format = Literal["lines", "key-value", "json", "whole"]
ValueEncoding = Literal["text", "base64", "binary"]

FORMATS: Final[tuple[Format, ...]] = ("lines", "key-value", "json", "whole")
ENCODINGS: Final[tuple[ValueEncoding, ...]] = ("text", "base64", "binary")

_NULL: Final = msgspec.Raw(b"null")
_UNVERSIONED: Final = {"schema_type": "bytes"}  # with a value that is base64 of a payload without a schema


class BadPiece(ValueError):
    """The reason why a piece of input is not a message."""


class ReadLine(msgspec.Struct, forbid_unknown_fields=True, rename=JSON_NAMES):
    """A message in a line of JSON, as `read` and `consume` print it. Of a line from elsewhere `value` is
    enough. The position of the message is ignored."""

    value: msgspec.Raw
    key: msgspec.Raw = _NULL
    properties: dict[str, str] = {}
    event_time: int | None = None
    deliver_at: int | None = None
    deliver_after_ms: int | None = None
    encoding: Literal["json", "base64"] | None = None
    schema_version: int | msgspec.UnsetType | None = msgspec.UNSET
    error: str | None = None
    value_size: int | None = None
    message_id: Any = None
    partition: Any = None
    offset: Any = None
    publish_time: Any = None
    sequence_id: Any = None
    producer_name: Any = None
    key_is_base64: bool = False
    replication_clusters: Any = None
    redelivery_count: Any = None
    request_timeout_ms: Any = None
    request_deadline: Any = None
    error_code: Any = None


_read_line: Final = msgspec.json.Decoder(ReadLine)


class Reading:
    """How pieces of input become messages.

    Args:
        format: What a piece holds.
        encoding: What a value is: text, base64 of the payload, or the payload's bytes themselves.
        structured: Whether texts are JSON, as the schema of the topic has fields or numbers.
        keys_structured: The same of keys (a key/value schema).
        separator: Between key and value (`key-value`).
        shared: What every message gets that does not say it itself.
    """

    def __init__(
        self,
        format: Format,
        encoding: ValueEncoding,
        *,
        structured: bool = False,
        keys_structured: bool = False,
        separator: str = "\t",
        shared: Message | None = None,
    ) -> None:
        self._encoding = encoding
        self._structured = structured
        self._keys_structured = keys_structured
        self._separator = separator.encode()
        self._shared = shared or {}
        by_format: dict[Format, Callable[[bytes], Message | None]] = {
            "lines": self._plain,
            "whole": self._plain,
            "key-value": self._key_value,
            "json": self._json,
        }
        self.message = by_format[format]
        """The message of a piece; None for one that holds none. Raises BadPiece."""

    def _plain(self, piece: bytes) -> Message:
        return {"value": self._value(piece), **self._shared}

    def _key_value(self, piece: bytes) -> Message:
        key, found, value = piece.partition(self._separator)
        if not found:
            raise BadPiece(f"there is no {self._separator.decode()!r} between a key and a value")
        made = self._plain(value)
        made["key"] = _from_json(key, "the key") if self._keys_structured else _text(key, "the key")
        return made

    def _json(self, piece: bytes) -> Message | None:
        if not piece.strip():
            return None
        try:
            line = _read_line.decode(_text(piece, "the line"))
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadPiece(str(error)) from None
        if line.error is not None:
            raise BadPiece(f"its value could not be decoded ({line.error}): read it with --encoding base64")
        if line.value_size is not None:
            raise BadPiece("its value was cut when it was read")
        made = {**self._shared, "value": line.value}
        if line.key != _NULL:
            made["key"] = line.key
            if line.key_is_base64:
                made["keyIsBase64"] = True
        if line.properties:
            made["properties"] = {**self._shared.get("properties", {}), **line.properties}
        times = (
            ("eventTime", line.event_time),
            ("deliverAt", line.deliver_at),
            ("deliverAfterMs", line.deliver_after_ms),
        )
        made.update({name: time for name, time in times if time is not None})
        if line.encoding is not None:
            made["encoding"] = line.encoding
        elif line.message_id is not None and line.schema_version is None and line.value != _NULL:
            made.update(_UNVERSIONED)  # `read` shows a payload without a schema in base64
        return made

    def _value(self, piece: bytes) -> Any:
        if self._encoding == "binary":
            return b64encode(piece).decode()
        if self._encoding == "base64":
            return _text(piece.strip(), "the value")
        if self._structured:
            return _from_json(piece, "the value")
        return _text(piece, "the value")


def _text(piece: bytes, part: str) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError as error:
        at = error.start
        raise BadPiece(
            f"{part} is not UTF-8 (byte {at + 1} is 0x{piece[at]:02x}): --encoding says how bytes are given"
        ) from None


def _from_json(piece: bytes, part: str) -> msgspec.Raw:
    text = _text(piece, part)
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadPiece(f"{part} is no JSON: {error}: {text[:80]}") from None
    return msgspec.Raw(piece)
