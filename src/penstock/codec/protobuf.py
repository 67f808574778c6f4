"""The codecs for Protobuf.

PROTOBUF_NATIVE carries descriptors, so that everything works; values are Protobuf's own JSON (proto field
names; 64-bit integers are text in it, and numbers are taken too).

PROTOBUF carries an Avro picture of the message, without field numbers, and in the property `__PARSING_INFO__`
the numbers of the top level alone. So its top-level fields are read and written; an embedded message is shown
as base64 of its encoding, and an enum as its number.

Values become messages by code here, which names the path of what does not fit. The library's JSON parser is used for the
well-known types alone: elsewhere it takes text that is not base64 for empty bytes, and does not name the place of a wrong value.
"""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .avro.fit import MisfitError, show
from .cardinality import is_repeated
from .codec import Codec, Part, bad_message, bad_schema
from .definition import PARSING_INFO, avro_type
from .descriptors import TYPE_NAMES, mismatch, native_message

_INTEGERS: Final = frozenset(
    (
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    )
)
_FLOATS: Final = frozenset((FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE))
_NO_NUMBERS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_PYTHON_TYPES: Final = {FieldDescriptor.CPPTYPE_BOOL: bool, FieldDescriptor.CPPTYPE_STRING: str}
_NULL_IS_A_VALUE: Final = ("google.protobuf.Value", "google.protobuf.NullValue")


def fill(message: Message, value: Any, path: str, *, native: bool) -> None:
    """Set `message` from an object; null leaves a field unset. Raises MisfitError."""
    if message.DESCRIPTOR.full_name.startswith("google.protobuf."):
        _well_known(message, value, path, native)
        return
    if type(value) is not dict:
        raise MisfitError(f"{path}: {show(value)} is no {message.DESCRIPTOR.name}")
    chosen: dict[str, str] = {}
    for name, item in value.items():
        field = _field(message, name)
        inside = f"{path}.{name}"
        if field is None:
            raise MisfitError(f"{inside}: {message.DESCRIPTOR.name} has no such field")
        if item is None and not _null_is_a_value(field):
            continue
        oneof = field.containing_oneof
        if oneof is not None and chosen.setdefault(oneof.name, name) != name:
            raise MisfitError(f"{inside}: only one of {chosen[oneof.name]} and {name} can be set")
        _set(message, field, item, inside, native)


def _field(message: Message, name: Any) -> Any:
    """By its name in the definition, or the JSON name made of that."""
    known = message.DESCRIPTOR.fields_by_name.get(name)
    if known is None:
        known = next((f for f in message.DESCRIPTOR.fields if f.json_name == name), None)
    return known


def _null_is_a_value(field: Any) -> bool:
    kind = field.message_type or field.enum_type
    return kind is not None and kind.full_name in _NULL_IS_A_VALUE and not is_repeated(field)


def _set(message: Message, field: Any, value: Any, path: str, native: bool) -> None:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        _set_map(getattr(message, field.name), kind, value, path, native)
    elif is_repeated(field):
        if type(value) is not list and type(value) is not tuple:
            raise MisfitError(f"{path}: {show(value)} is no list")
        target = getattr(message, field.name)
        for number, item in enumerate(value):
            inside = f"{path}[{number}]"
            if kind is not None:
                fill(target.add(), item, inside, native=native)
            else:
                _store(target.append, field, item, inside, native)
    elif kind is not None:
        target = getattr(message, field.name)
        target.SetInParent()
        fill(target, value, path, native=native)
    else:
        _store(lambda scalar: setattr(message, field.name, scalar), field, value, path, native)


def _set_map(target: Any, entry: Any, value: Any, path: str, native: bool) -> None:
    if type(value) is not dict:
        raise MisfitError(f"{path}: {show(value)} is no map")
    key_field, item_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    for key, item in value.items():
        inside = f"{path}[{show(key)}]"
        try:
            scalar = _map_key(key_field, key, native)
            if item_field.message_type is not None:
                fill(target[scalar], item, inside, native=native)
            else:
                target[scalar] = _scalar(item_field, item, native)
        except MisfitError:
            raise
        except (TypeError, ValueError, KeyError, OverflowError):
            raise MisfitError(f"{inside}: {show(item)} does not fit this map") from None


def _map_key(field: Any, key: Any, native: bool) -> Any:
    """In JSON every key is text."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL and key in ("true", "false"):
        return key == "true"
    return _scalar(field, key, native)


def _store(set_scalar: Callable[[Any], None], field: Any, value: Any, path: str, native: bool) -> None:
    try:
        set_scalar(_scalar(field, value, native))
    except (TypeError, ValueError, KeyError, OverflowError):
        name = field.enum_type.name if field.enum_type is not None else TYPE_NAMES.get(field.type, "value")
        what = "does not fit" if type(value) is int and field.cpp_type in _INTEGERS else "is no"
        raise MisfitError(f"{path}: {show(value)} {what} {name}") from None


def _scalar(field: Any, value: Any, native: bool) -> Any:
    """What the message's own setter takes, which checks ranges; raises ValueError, TypeError, KeyError."""
    given = type(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        if native and isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if not native and given is str:
            return a2b_base64(value, strict_mode=True)
    elif field.enum_type is not None:
        if given is str:
            return field.enum_type.values_by_name[value].number
        if given is int:
            return value
    elif given is str and field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        return _parsed(field.cpp_type, value)
    elif field.cpp_type in _FLOATS and given in (int, float):
        return _float(field, value)
    elif given is _PYTHON_TYPES.get(field.cpp_type, int):
        return value
    raise TypeError


def _parsed(cpp_type: int, text: str) -> int | float:
    """Protobuf's JSON writes 64-bit integers as text, and the floats that are not numbers."""
    if cpp_type in _INTEGERS and text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20:
        return int(text)
    if cpp_type in _FLOATS:
        return _NO_NUMBERS[text]
    raise TypeError


def _float(field: Any, value: float) -> float:
    """Protobuf would store infinity for numbers too large for 32 bits."""
    number = float(value)
    largest = 3.4028235677973366e38  # the limit at which rounding to 32 bits reaches infinity
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT and largest <= abs(number) < float("inf"):
        raise ValueError
    return number


def _well_known(message: Message, value: Any, path: str, native: bool) -> None:
    try:
        pool: Any = message.DESCRIPTOR.file.pool
        ParseDict(_json_form(value) if native else value, message, descriptor_pool=pool)
    except (JsonError, TypeError, ValueError, AttributeError, KeyError, OverflowError):
        raise MisfitError(f"{path}: {show(value)} is no {message.DESCRIPTOR.full_name}") from None


def _json_form(value: Any) -> Any:
    """A native value of a well-known type in Protobuf's JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return b64encode(value).decode()
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        micros = value // timedelta(microseconds=1)
        seconds, rest = divmod(abs(micros), 1_000_000)
        return f"{'-' if micros < 0 else ''}{seconds}.{rest:06}s"
    return value


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
