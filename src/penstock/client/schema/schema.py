"""The base of schemas, and the schemas without a definition: primitive types, the topic's, a message's."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar

from penstock.client.errors import InvalidMessage
from penstock.codec import Codec, KeyValueCodec, codec_for, fingerprint
from penstock.model.errors import PenstockError
from penstock.model.schema import BYTES_SCHEMA, STRING_SCHEMA, SchemaInfo, SchemaType

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.client.message import Message

T = TypeVar("T")

_AUTO_CONSUME: Final = SchemaInfo(SchemaType.AUTO_CONSUME, name="AutoConsume")


class Encoded(NamedTuple):
    """A stored value: the payload (None for a null value) and, if the schema says so, the key."""

    payload: bytes | None
    key: str | None = None  # base64


class Schema:
    """Values to payloads and back, and the definition that the broker keeps of it."""

    needs_writer: ClassVar[bool] = False
    """Whether a message's value can be read only by the schema it was written with."""

    def __init__(self, info: SchemaInfo) -> None:
        self._info = info

    def schema_info(self) -> SchemaInfo:
        """The definition."""
        return self._info

    @cached_property
    def identity(self) -> bytes:
        """A hash that is equal for schemas that the broker takes for the same."""
        return fingerprint(self._info)

    @property
    def registered(self) -> bool:
        """Whether it is registered with the broker; bytes are the absence of a schema."""
        return self._info.type not in (SchemaType.BYTES, SchemaType.NONE)

    def encode(self, obj: Any) -> bytes:
        """The payload of a value. Raises TypeError or InvalidMessage for one that does not fit."""
        raise NotImplementedError

    def decode(self, data: bytes) -> Any:
        """The value of a payload that was written with this schema. Raises InvalidMessage."""
        raise NotImplementedError

    def encode_message(self, obj: Any) -> Encoded:
        """The payload, and the key if the value holds it; None is the null value."""
        return Encoded(None if obj is None else self.encode(obj))

    def decode_message(self, message: Message) -> Any:
        """The value of a message, whatever version of the schema it was written with."""
        return None if message.has_null_value() else self.decode(message.data())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._info.type.name})"


def checked(work: Callable[..., T], *arguments: Any) -> T:
    """Call a codec; its errors become the client's."""
    try:
        return work(*arguments)
    except InvalidMessage:
        raise
    except PenstockError as error:
        raise InvalidMessage(error.message) from None


class BytesSchema(Schema):
    """Bytes as they are."""

    def __init__(self) -> None:
        super().__init__(BYTES_SCHEMA)

    def encode(self, obj: Any) -> bytes:
        if type(obj) is bytes:
            return obj
        if not isinstance(obj, bytes | bytearray | memoryview):
            raise TypeError(f"a message without schema is bytes, not {type(obj).__name__}")
        return bytes(obj)

    def decode(self, data: bytes) -> bytes:
        return data


class StringSchema(Schema):
    """Text in UTF-8."""

    def __init__(self) -> None:
        super().__init__(STRING_SCHEMA)

    def encode(self, obj: Any) -> bytes:
        if not isinstance(obj, str):
            raise TypeError(f"a StringSchema takes str, not {type(obj).__name__}")
        return obj.encode()

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"the payload is no text in UTF-8: {error.reason}") from None


class PrimitiveSchema(Schema):
    """One of the types without a definition, by its name, as Java's clients have them.

    Args:
        kind: BOOLEAN, INT8, INT16, INT32, INT64, FLOAT, DOUBLE, DATE, TIME, TIMESTAMP, INSTANT, LOCAL_DATE,
            LOCAL_TIME or LOCAL_DATE_TIME.
    """

    def __init__(self, kind: SchemaType | str) -> None:
        found = SchemaType.named(kind) if isinstance(kind, str) else kind
        if found is None or found.has_definition or found in (SchemaType.NONE, SchemaType.BYTES) or found < 0:
            raise ValueError(f"{kind!r} is no primitive type")
        super().__init__(STRING_SCHEMA if found is SchemaType.STRING else SchemaInfo(found, name=found.name))
        self._codec = codec_for(self._info)

    def encode(self, obj: Any) -> bytes:
        return checked(self._codec.encode_native, obj)

    def decode(self, data: bytes) -> Any:
        return checked(self._codec.decode_native, data)


class AutoProduceBytesSchema(Schema):
    """Values are bytes that are encoded already; they are checked, and travel under the schema they are of.

    Args:
        schema: What the bytes are encoded by. Without it, a producer looks up the topic's latest schema when it
            is created, and takes any bytes if there is none.
    """

    def __init__(self, schema: Schema | None = None) -> None:
        super().__init__(BYTES_SCHEMA if schema is None else schema.schema_info())
        self.resolved = schema is not None
        self._codec: Codec | None = None
        if self.registered:
            codec = checked(codec_for, self._info)
            if isinstance(codec, KeyValueCodec) and codec.separated:
                codec = codec.value  # the key is not in the bytes
            self._codec = codec

    def resolve(self, info: SchemaInfo | None) -> AutoProduceBytesSchema:
        """A copy that checks by the topic's schema, `info`, if it has one."""
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


class AutoConsumeSchema(Schema):
    """Each message is decoded by its own schema: dicts for records, bytes without a schema."""

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
