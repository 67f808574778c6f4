"""The codecs for Protobuf.

PROTOBUF_NATIVE carries descriptors, so that everything works; values are Protobuf's own JSON (proto field
names; 64-bit integers are text in it, and numbers are taken too).

PROTOBUF carries an Avro picture of the message, without field numbers, and in the property `__PARSING_INFO__`
the numbers of the top level alone. So its top-level fields are read and written; an embedded message is shown
as base64 of its encoding, and an enum as its number.
"""

from datetime import UTC
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .avro.fit import MisfitError
from .cardinality import is_repeated
from .codec import Codec, Part, bad_message, bad_schema
from .definition import PARSING_INFO, avro_type
from .descriptors import mismatch, native_message
from .protobuf_fill import fill

# What showing a message may fail with: an Any of an unknown type, a Timestamp beyond the year 9999.
_FAILURES: Final = (JsonError, TypeError, ValueError, OverflowError, RecursionError)

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_DURATION: Final = "google.protobuf.Duration"


class ProtobufCodec(Codec):
    """Messages of one type. A native value is an object with bytes, ints and datetimes, or a message."""

    def __init__(self, schema: SchemaInfo, message: Descriptor, reader: Descriptor, part: Part) -> None:
        super().__init__(schema, part)
        self._class = GetMessageClass(message)
        self._reader = GetMessageClass(reader)

    def encode(self, value: Any) -> bytes:
        return self._encode(value, native=False)

    def encode_native(self, value: Any) -> bytes:
        if isinstance(value, Message):
            if value.DESCRIPTOR.full_name != self._class.DESCRIPTOR.full_name:
                raise bad_message(
                    f"{self.part}: a {value.DESCRIPTOR.full_name} is no {self._class.DESCRIPTOR.full_name}"
                )
            try:
                return value.SerializeToString(deterministic=True)
            except EncodeError as error:
                raise bad_message(f"{self.part}: {error}") from None
        return self._encode(value, native=True)

    def _encode(self, value: Any, *, native: bool) -> bytes:
        message = self._class()
        try:
            fill(message, value, self.part, native=native)
            return message.SerializeToString(deterministic=True)
        except (MisfitError, EncodeError) as error:
            raise bad_message(
                f"{self.part}: {error}" if isinstance(error, EncodeError) else str(error)
            ) from None
        except RecursionError:
            raise bad_message(f"{self.part}: nested too deeply") from None

    def decode(self, payload: bytes) -> Any:
        message = self.message(payload)
        pool: Any = self._reader.DESCRIPTOR.file.pool
        try:
            return MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=pool,
            )
        except _FAILURES as error:
            raise bad_message(f"{self.part}: the payload cannot be shown as JSON: {error}") from None

    def decode_native(self, payload: bytes) -> Any:
        try:
            return _native(self.message(payload))
        except _FAILURES as error:
            raise bad_message(f"{self.part}: the payload cannot be shown: {error}") from None

    def check(self, payload: bytes) -> None:
        self.message(payload)

    @property
    def descriptor(self) -> Any:
        """The reader's message, as a Descriptor."""
        return self._reader.DESCRIPTOR

    def message(self, payload: bytes) -> Message:
        """The message itself; raises BAD_MESSAGE."""
        try:
            return self._reader.FromString(payload)
        except (DecodeError, ValueError):
            name = self._reader.DESCRIPTOR.full_name
            raise bad_message(f"{self.part}: the payload is no Protobuf message {name}") from None


def protobuf_codec(schema: SchemaInfo, reader: SchemaInfo | None, part: Part) -> ProtobufCodec:
    """The codec of a PROTOBUF or PROTOBUF_NATIVE schema."""
    native = schema.type is SchemaType.PROTOBUF_NATIVE
    find = native_message if native else _parsed_message
    message = find(schema, part)
    reading = message if reader is None else find(reader, part)
    why = "" if reader is None else mismatch(reading, message)
    if why:
        raise PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, f"the reader's schema cannot read this: {why}")
    return ProtobufCodec(schema, message, reading, part)


class _FieldInfo(msgspec.Struct):
    """An element of `__PARSING_INFO__`, as Java's client writes it."""

    number: int
    name: str
    type: str
    label: str = "LABEL_OPTIONAL"


def _parsed_message(schema: SchemaInfo, part: Part) -> Descriptor:
    """A descriptor of the top level, from `__PARSING_INFO__`; raises BAD_VALUE_SCHEMA."""
    definition = avro_type(schema, part)
    text = schema.properties.get(PARSING_INFO)
    if not text:
        raise bad_schema(
            part,
            f"a PROTOBUF schema without the property {PARSING_INFO} has no field numbers; PROTOBUF_NATIVE has",
        )
    file = FileDescriptorProto(name="parsing_info.proto", package="parsing_info", syntax="proto2")
    message = file.message_type.add(name=getattr(definition, "short", "Message"))
    try:
        for info in msgspec.json.decode(text, type=list[_FieldInfo]):
            message.field.add(
                number=info.number, name=info.name, type=_field_type(info.type), label=_label(info.label)
            )
        pool = DescriptorPool()
        pool.Add(file)
        return pool.FindMessageTypeByName(f"parsing_info.{message.name}")
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise bad_schema(part, f"bad {PARSING_INFO}: {error}") from None


def _field_type(name: str) -> FieldDescriptorProto.Type.ValueType:
    name = name.upper().removeprefix("TYPE_")
    # The numbers inside are not known; on the wire both look like their substitutes here.
    name = {"MESSAGE": "BYTES", "ENUM": "INT32"}.get(name, name)
    if name == "GROUP":
        raise ValueError("groups cannot be read without their definition")
    return FieldDescriptorProto.Type.Value(f"TYPE_{name}")


def _label(name: str) -> FieldDescriptorProto.Label.ValueType:
    return FieldDescriptorProto.Label.Value("LABEL_" + name.upper().removeprefix("LABEL_"))


def _native(message: Message) -> Any:
    """A message as an object: every field without presence, and the others if they are set."""
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return message.ToDatetime(UTC)  # type: ignore[attr-defined]
    if name == _DURATION:
        return message.ToTimedelta()  # type: ignore[attr-defined]
    if name.startswith("google.protobuf.") and name.endswith("Value") and "value" in _names(message):
        return message.value  # type: ignore[attr-defined]  # the wrappers: a scalar that may be missing
    return {
        field.name: _native_field(field, getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if not field.has_presence or message.HasField(field.name)
    }


def _names(message: Message) -> set[str]:
    return set(message.DESCRIPTOR.fields_by_name)


def _native_field(field: Any, value: Any) -> Any:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        item = kind.fields_by_name["value"]
        return {key: _native_item(item, value[key]) for key in value}
    if is_repeated(field):
        return [_native_item(field, item) for item in value]
    return _native_item(field, value)


def _native_item(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _native(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    return value
