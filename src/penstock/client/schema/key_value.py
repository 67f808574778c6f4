"""Pairs of a key and a value, each with its own schema."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from penstock.client.enums import KeyValueEncodingType
from penstock.client.errors import InvalidMessage
from penstock.codec import key_value_parts, key_value_schema
from penstock.codec.key_value import join, split
from penstock.model.schema import KeyValueEncoding, SchemaInfo

from .schema import Encoded, Schema, checked

if TYPE_CHECKING:
    from penstock.client.message import Message


class KeyValueSchema(Schema):
    """A value is a tuple `(key, value)`.

    Args:
        key_schema: The schema of the keys.
        value_schema: The schema of the values.
        encoding: The place of the key: the payload (INLINE), or the message's key (SEPARATED).
    """

    needs_writer = True

    def __init__(
        self,
        key_schema: Schema,
        value_schema: Schema,
        encoding: KeyValueEncodingType = KeyValueEncodingType.INLINE,
    ) -> None:
        self.key_schema = key_schema
        self.value_schema = value_schema
        self.encoding = encoding
        super().__init__(
            key_value_schema(
                key_schema.schema_info(), value_schema.schema_info(), KeyValueEncoding(encoding.value)
            )
        )

    def encode(self, obj: Any) -> bytes:
        return self.encode_message(obj).payload or b""

    def encode_message(self, obj: Any) -> Encoded:
        if obj is None:
            return Encoded(None)
        if not isinstance(obj, tuple) or len(obj) != 2:
            raise TypeError(f"a KeyValueSchema takes a tuple of key and value, not {obj!r}")
        key = None if obj[0] is None else self.key_schema.encode(obj[0])
        value = None if obj[1] is None else self.value_schema.encode(obj[1])
        if self.encoding is KeyValueEncodingType.INLINE:
            return Encoded(join(key, value))
        return Encoded(value, None if key is None else b64encode(key).decode())

    def decode(self, data: bytes) -> tuple[Any, Any]:
        return self._pair(None, data, None)

    def decode_message(self, message: Message) -> Any:
        if message.has_null_value() and self.encoding is KeyValueEncodingType.INLINE:
            return None
        payload = None if message.has_null_value() else message.data()
        return self._pair(message.key_bytes(), payload, message._writer)

    def _pair(self, key: bytes | None, payload: bytes | None, writer: SchemaInfo | None) -> tuple[Any, Any]:
        value = payload
        if self.encoding is KeyValueEncodingType.INLINE:
            try:
                key, value = split(payload or b"")
            except ValueError as error:
                raise InvalidMessage(f"the payload is no pair: {error}") from None
        key_writer = value_writer = None
        if writer is not None:
            key_writer, value_writer, _ = checked(key_value_parts, writer)
        return (
            None if key is None else _read(self.key_schema, key, key_writer),
            None if value is None else _read(self.value_schema, value, value_writer),
        )


def _read(schema: Schema, data: bytes, writer: SchemaInfo | None) -> Any:
    read = getattr(schema, "read", None)
    return schema.decode(data) if read is None else read(data, writer)
