"""Key/value schemas and messages: two schemas in one, the key in the payload or in the message's key.

schema:   length i32 | key's definition | length i32 | value's definition        (-1: none)
INLINE:   length i32 | key | length i32 | value                                   (-1: null)
SEPARATED: base64 of the key is the message's key, the payload is the value
"""

import struct
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.model.schema import KeyValueEncoding, SchemaInfo, SchemaType

from .codec import Codec, Part, bad_message, bad_schema

ENCODING_PROPERTY: Final = "kv.encoding.type"
_LENGTH: Final = struct.Struct(">i")


def join(key: bytes | None, value: bytes | None) -> bytes:
    """Both with their lengths before them."""
    return b"".join(
        _LENGTH.pack(-1) if part is None else _LENGTH.pack(len(part)) + part for part in (key, value)
    )


def split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """The two parts of what `join` joined; raises ValueError."""
    parts: list[bytes | None] = []
    at = 0
    for _ in range(2):
        if at + 4 > len(data):
            raise ValueError("key and value are cut short")
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if length < -1 or at + length > len(data):
            raise ValueError("key and value are cut short")
        parts.append(None if length < 0 else data[at : at + length])
        at += max(length, 0)
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes after key and value")
    return parts[0], parts[1]


def key_value_schema(
    key: SchemaInfo,
    value: SchemaInfo,
    encoding: KeyValueEncoding = KeyValueEncoding.INLINE,
    name: str = "KeyValue",
) -> SchemaInfo:
    """The schema of messages whose keys and values have separate schemas."""
    properties = {}
    for part, schema in (("key", key), ("value", value)):
        properties[f"{part}.schema.name"] = schema.name
        properties[f"{part}.schema.type"] = schema.type.name
        properties[f"{part}.schema.properties"] = msgspec.json.encode(schema.properties).decode()
    properties[ENCODING_PROPERTY] = encoding.value
    return SchemaInfo(SchemaType.KEY_VALUE, join(key.data, value.data), name, properties)


def key_value_parts(schema: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo, KeyValueEncoding]:
    """The schemas of key and value, and the place of the key; raises BAD_VALUE_SCHEMA."""
    try:
        key, value = split(schema.data)
    except ValueError as error:
        raise bad_schema("value", f"the definition is no key/value schema: {error}") from None
    name = schema.properties.get(ENCODING_PROPERTY) or "INLINE"
    try:
        encoding = KeyValueEncoding(name.upper())
    except ValueError:
        raise bad_schema("value", f"unknown {ENCODING_PROPERTY} {name!r}: INLINE or SEPARATED") from None
    return _part(schema, "key", key), _part(schema, "value", value), encoding


def _part(schema: SchemaInfo, part: Part, data: bytes | None) -> SchemaInfo:
    name = schema.properties.get(f"{part}.schema.type") or "BYTES"
    kind = SchemaType.named(name)
    if kind is None or kind in (SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH, SchemaType.KEY_VALUE):
        raise bad_schema(part, f"{name!r} is no type of a {part}")
    try:
        text = schema.properties.get(f"{part}.schema.properties") or "{}"
        properties = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, RecursionError):
        raise bad_schema(part, f"{part}.schema.properties is no JSON object of texts") from None
    return SchemaInfo(kind, data or b"", schema.properties.get(f"{part}.schema.name", ""), properties)


class KeyValueCodec(Codec):
    """Encodes pairs. A plain or native value of it is `{"key": …, "value": …}`; None is null."""

    def __init__(self, schema: SchemaInfo, key: Codec, value: Codec, encoding: KeyValueEncoding) -> None:
        super().__init__(schema)
        self.key = key
        self.value = value
        self.encoding = encoding

    @property
    def separated(self) -> bool:
        return self.encoding is KeyValueEncoding.SEPARATED

    def encode_pair(self, key: Any, value: Any) -> tuple[str | None, bytes | None]:
        """The message's key in base64 (None when it is in the payload) and the payload, None for null."""
        return self._place(_unless_null(self.key.encode, key), _unless_null(self.value.encode, value))

    def encode_pair_native(self, key: Any, value: Any) -> tuple[str | None, bytes | None]:
        """As `encode_pair`, from native values."""
        encoded = _unless_null(self.key.encode_native, key)
        return self._place(encoded, _unless_null(self.value.encode_native, value))

    def decode_pair(self, message_key: str | None, payload: bytes | None) -> tuple[Any, Any]:
        """Key and value, plain. `message_key` is base64, as `encode_pair` gave it."""
        key, value = self._find(message_key, payload)
        return _unless_null(self.key.decode, key), _unless_null(self.value.decode, value)

    def decode_pair_native(self, message_key: str | None, payload: bytes | None) -> tuple[Any, Any]:
        """As `decode_pair`, to native values."""
        key, value = self._find(message_key, payload)
        return _unless_null(self.key.decode_native, key), _unless_null(self.value.decode_native, value)

    def encode(self, value: Any) -> bytes:
        """The payload; of a SEPARATED pair that is the value alone, and its key must go by `encode_pair`."""
        return self.encode_pair(*self._pair(value))[1] or b""

    def encode_native(self, value: Any) -> bytes:
        return self.encode_pair_native(*self._pair(value))[1] or b""

    def decode(self, payload: bytes) -> Any:
        """The pair; of a SEPARATED one the key is not in the payload and None here."""
        key, value = self.decode_pair(None, payload)
        return {"key": key, "value": value}

    def decode_native(self, payload: bytes) -> Any:
        key, value = self.decode_pair_native(None, payload)
        return {"key": key, "value": value}

    def check(self, payload: bytes) -> None:
        key, value = self._find(None, payload)
        _unless_null(self.key.check, key)
        _unless_null(self.value.check, value)

    def _place(self, key: bytes | None, value: bytes | None) -> tuple[str | None, bytes | None]:
        if self.separated:
            return (None if key is None else b64encode(key).decode()), value
        return None, join(key, value)

    def _find(self, message_key: str | None, payload: bytes | None) -> tuple[bytes | None, bytes | None]:
        if self.separated:
            try:
                return (None if message_key is None else a2b_base64(message_key, strict_mode=True)), payload
            except ValueError:
                raise bad_message("key: the message's key is not base64") from None
        if payload is None:
            return None, None
        try:
            return split(payload)
        except ValueError as error:
            raise bad_message(f"value: the payload is no key/value pair: {error}") from None

    def _pair(self, value: Any) -> tuple[Any, Any]:
        if type(value) is not dict or not value.keys() <= {"key", "value"}:
            raise bad_message('value: a pair is an object of "key" and "value"')
        return value.get("key"), value.get("value")


def _unless_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)
