"""From a value to a Protobuf message, with the path to what does not fit.

The mapping is Protobuf's own JSON. Its library's parser is used for the well-known types alone: elsewhere it
takes text that is not base64 for empty bytes, and does not name the place of a wrong value.
"""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

from .avro.fit import MisfitError, show
from .cardinality import is_repeated
from .descriptors import TYPE_NAMES

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
