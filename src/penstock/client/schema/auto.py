"""Schemas that are the topic's own, or a message's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.codec import Codec, KeyValueCodec, codec_for
from penstock.model.schema import BYTES_SCHEMA, SchemaInfo, SchemaType

from .schema import Schema, checked

if TYPE_CHECKING:
    from penstock.client.message import Message

_AUTO_CONSUME = SchemaInfo(SchemaType.AUTO_CONSUME, name="AutoConsume")


class AutoProduceBytesSchema(Schema):
    """Values are bytes that are encoded already; they are checked, and travel under the schema they are of.

    Args:
        schema: What the bytes are encoded by. Without it, a producer looks up the topic's latest schema when it
            is created, and takes any bytes where there is none.
    """

    def __init__(self, schema: Schema | None = None) -> None:
        super().__init__(BYTES_SCHEMA if schema is None else schema.schema_info())
        self.resolved = schema is not None
        self._codec = self._codec_of(self._info) if self.registered else None

    def resolve(self, info: SchemaInfo | None) -> AutoProduceBytesSchema:
        """A copy that checks by the topic's schema, `info`, where it has one."""
        return AutoProduceBytesSchema(None if info is None else Schema(info))

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise TypeError(f"an AutoProduceBytesSchema takes bytes, not {type(obj).__name__}")
        payload = bytes(obj)
        if self._codec is not None:
            checked(self._codec.check, payload)
        return payload

    def decode(self, data: bytes) -> bytes:
        return data

    @staticmethod
    def _codec_of(info: SchemaInfo) -> Codec:
        codec = checked(codec_for, info)
        # The key of a separated pair is not in the bytes.
        return codec.value if isinstance(codec, KeyValueCodec) and codec.separated else codec


class AutoConsumeSchema(Schema):
    """Values are what each message's own schema makes of it: dicts for records, bytes where there is none."""

    needs_writer = True

    def __init__(self) -> None:
        super().__init__(_AUTO_CONSUME)

    @property
    def registered(self) -> bool:
        return False

    def encode(self, obj: Any) -> bytes:
        raise TypeError("an AutoConsumeSchema only reads")

    def decode(self, data: bytes) -> bytes:
        return data

    def decode_message(self, message: Message) -> Any:
        writer = message._writer
        if message.has_null_value():
            return None
        if writer is None or writer.type in (SchemaType.BYTES, SchemaType.NONE):
            return message.data()
        codec = checked(codec_for, writer)
        if isinstance(codec, KeyValueCodec):
            key = message.partition_key() or None
            return checked(codec.decode_pair_native, key if codec.separated else None, message.data())
        return checked(codec.decode_native, message.data())
