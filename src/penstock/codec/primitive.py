"""The types without a definition, byte for byte as Java's clients store them (big-endian; docs/schemas.md)."""

import struct
from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from typing import Any, Final, NamedTuple

from penstock.model.schema import SchemaInfo, SchemaType

from . import temporal
from .avro.fit import show
from .codec import Codec, Part, bad_message, bad_schema
from .temporal import MILLIS, NANOS

_DAY_MS: Final = 86_400_000
_DAY_NS: Final = 86_400 * NANOS
_CHARSETS: Final = {"UTF-8": "utf-8", "US-ASCII": "ascii", "ISO-8859-1": "latin-1", "UTF-16BE": "utf-16-be"}


class _Coding(NamedTuple):
    """A type's two forms; functions raise ValueError, TypeError, OverflowError or struct.error."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    encode_native: Callable[[Any], bytes]
    decode_native: Callable[[bytes], Any]


class PrimitiveCodec(Codec):
    """A codec for one of the types that need no definition."""

    def __init__(self, schema: SchemaInfo, part: Part = "value") -> None:
        super().__init__(schema, part)
        if schema.type is SchemaType.STRING:
            self._coding = _string(schema, part)
        else:
            self._coding = _CODINGS[schema.type]
        self._name = schema.type.name.lower()

    def encode(self, value: Any) -> bytes:
        return self._encode(self._coding.encode, value)

    def encode_native(self, value: Any) -> bytes:
        return self._encode(self._coding.encode_native, value)

    def decode(self, payload: bytes) -> Any:
        return self._decode(self._coding.decode, payload)

    def decode_all(self, payloads: Sequence[bytes]) -> list[Any]:
        try:
            return list(map(self._coding.decode, payloads))
        except (ValueError, OverflowError, struct.error):
            return super().decode_all(payloads)  # which reports the error of the first invalid one

    def decode_native(self, payload: bytes) -> Any:
        return self._decode(self._coding.decode_native, payload)

    def _encode(self, encode: Callable[[Any], bytes], value: Any) -> bytes:
        try:
            return encode(value)
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise bad_message(f"{self.part}: {self._why(value, error)}") from None

    def _decode(self, decode: Callable[[bytes], Any], payload: bytes) -> Any:
        try:
            return decode(payload)
        except UnicodeDecodeError:
            raise bad_message(f"{self.part}: the payload is no {self._name}: its text is malformed") from None
        except (ValueError, OverflowError, struct.error):
            raise bad_message(f"{self.part}: a payload of {len(payload)} bytes is no {self._name}") from None

    def _why(self, value: Any, error: Exception) -> str:
        if isinstance(error, UnicodeEncodeError):
            return "text that the charset cannot hold"
        if type(value) is int and self.schema.type in _INTEGERS:
            return f"{show(value)} does not fit {_INTEGERS[self.schema.type][1]} bits"
        what = "base64" if self.schema.type in (SchemaType.NONE, SchemaType.BYTES) else self._name
        return f"{show(value)} is no {what}"


def _string(schema: SchemaInfo, part: Part) -> _Coding:
    name = schema.properties.get("__charset") or "UTF-8"
    charset = _CHARSETS.get(name.upper())
    if charset is None:
        raise bad_schema(part, f"unknown charset {name!r}")

    def encode(value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError
        return value.encode(charset)

    def decode(payload: bytes) -> str:
        return payload.decode(charset)

    if charset == "utf-8":
        return _Coding(encode, bytes.decode, encode, bytes.decode)
    return _Coding(encode, decode, encode, decode)


def _base64_in(value: Any) -> bytes:
    if type(value) is not str:
        raise TypeError
    return a2b_base64(value, strict_mode=True)


def _bytes_in(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError
    return bytes(value)


def _bytes() -> _Coding:
    return _Coding(_base64_in, lambda raw: b64encode(raw).decode(), _bytes_in, bytes)


def _boolean() -> _Coding:
    def encode(value: Any) -> bytes:
        if type(value) is not bool:
            raise TypeError
        return b"\1" if value else b"\0"

    def decode(payload: bytes) -> bool:
        if len(payload) != 1:
            raise ValueError
        return payload != b"\0"

    return _Coding(encode, decode, encode, decode)


def _number(layout: str, *, whole: bool) -> _Coding:
    packer = struct.Struct(layout)

    def encode(value: Any) -> bytes:
        if type(value) is not int and (whole or type(value) is not float):
            raise TypeError
        return packer.pack(value)

    def decode(payload: bytes) -> int | float:
        number: int | float = packer.unpack(payload)[0]
        return number

    return _Coding(encode, decode, encode, decode)


_INT64 = _number(">q", whole=True)
_PAIR: Final = struct.Struct(">qq")
_INSTANT: Final = struct.Struct(">qi")


def _counted(
    text_in: Callable[[str], int],
    text_out: Callable[[int], Any],
    native_in: Callable[[Any], int],
    native_out: Callable[[int], Any],
) -> _Coding:
    """A type that is one count of 64 bits."""

    def encode(value: Any) -> bytes:
        return _INT64.encode(text_in(value) if type(value) is str else value)

    def encode_native(value: Any) -> bytes:
        return _INT64.encode(value if type(value) is int else native_in(value))

    def decode_native(payload: bytes) -> Any:
        count = _INT64.decode(payload)
        try:
            return native_out(count)
        except (ValueError, OverflowError):
            return count  # beyond the years Python knows

    return _Coding(encode, lambda raw: text_out(_INT64.decode(raw)), encode_native, decode_native)


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _date_in(text: str) -> int:
    return temporal.parse_date(text) * _DAY_MS if len(text) == 10 else temporal.parse_timestamp(text, MILLIS)


def _date_out(ms: int) -> Any:
    """Java's Date may carry a time of day, which must not be lost."""
    return temporal.timestamp_text(ms, MILLIS) if ms % _DAY_MS else temporal.date_text(ms // _DAY_MS)


def _date_native_in(value: Any) -> int:
    if isinstance(value, datetime):
        return temporal.from_datetime(value, MILLIS)
    return temporal.from_date(_is(value, date)) * _DAY_MS


def _date_native_out(ms: int) -> Any:
    return temporal.to_datetime(ms, MILLIS) if ms % _DAY_MS else temporal.to_date(ms // _DAY_MS)


def _time_in(text: str) -> int:
    return temporal.parse_timestamp(text, MILLIS) if len(text) > 18 else temporal.parse_time(text, MILLIS)


def _time_out(ms: int) -> Any:
    """Java's Time counts from the epoch; one beyond the first day is shown whole."""
    return temporal.time_text(ms, MILLIS) if 0 <= ms < _DAY_MS else temporal.timestamp_text(ms, MILLIS)


def _time_native_in(value: Any) -> int:
    if isinstance(value, datetime):
        return temporal.from_datetime(value, MILLIS)
    return temporal.from_time(_is(value, time), MILLIS)


def _time_native_out(ms: int) -> Any:
    return temporal.to_time(ms, MILLIS) if 0 <= ms < _DAY_MS else temporal.to_datetime(ms, MILLIS)


def _pair(layout: struct.Struct, names: tuple[str, str], per_high: int, *, local: bool) -> _Coding:
    """Two counts: seconds and nanoseconds, or days and nanoseconds; `per_high` nanoseconds are one high count.

    What no ISO text can say is an object of the two counts.
    """

    def split(ns: int) -> bytes:
        return layout.pack(*divmod(ns, per_high))

    def join(payload: bytes) -> int | dict[str, int]:
        high, low = layout.unpack(payload)
        if not 0 <= low < per_high:
            return dict(zip(names, (high, low), strict=True))
        ns: int = high * per_high + low
        return ns

    def encode(value: Any) -> bytes:
        if type(value) is dict and set(value) == set(names) and all(type(n) is int for n in value.values()):
            return layout.pack(*(value[name] for name in names))
        return split(temporal.parse_timestamp(_is(value, str), NANOS, local=local))

    def decode(payload: bytes) -> Any:
        ns = join(payload)
        if isinstance(ns, dict):
            return ns
        text = temporal.timestamp_text(ns, NANOS, "" if local else "Z", short=True)
        return text if isinstance(text, str) else dict(zip(names, divmod(ns, per_high), strict=True))

    def encode_native(value: Any) -> bytes:
        return split(temporal.from_datetime(value, NANOS)) if isinstance(value, datetime) else encode(value)

    def decode_native(payload: bytes) -> Any:
        ns = join(payload)
        try:
            return ns if isinstance(ns, dict) else temporal.to_datetime(ns, NANOS, local=local)
        except (ValueError, OverflowError):
            return dict(zip(names, layout.unpack(payload), strict=True))

    return _Coding(encode, decode, encode_native, decode_native)


_INTEGERS: Final = {
    SchemaType.INT8: (">b", 8),
    SchemaType.INT16: (">h", 16),
    SchemaType.INT32: (">i", 32),
    SchemaType.INT64: (">q", 64),
}

_CODINGS: Final = {
    SchemaType.NONE: _bytes(),
    SchemaType.BYTES: _bytes(),
    SchemaType.BOOLEAN: _boolean(),
    **{kind: _number(layout, whole=True) for kind, (layout, _) in _INTEGERS.items()},
    SchemaType.FLOAT: _number(">f", whole=False),
    SchemaType.DOUBLE: _number(">d", whole=False),
    SchemaType.DATE: _counted(_date_in, _date_out, _date_native_in, _date_native_out),
    SchemaType.TIME: _counted(_time_in, _time_out, _time_native_in, _time_native_out),
    SchemaType.TIMESTAMP: _counted(
        lambda text: temporal.parse_timestamp(text, MILLIS),
        lambda ms: temporal.timestamp_text(ms, MILLIS),
        lambda value: temporal.from_datetime(_is(value, datetime), MILLIS),
        lambda ms: temporal.to_datetime(ms, MILLIS),
    ),
    SchemaType.LOCAL_DATE: _counted(
        temporal.parse_date,
        temporal.date_text,
        lambda value: temporal.from_date(_is(value, date)),
        temporal.to_date,
    ),
    SchemaType.LOCAL_TIME: _counted(
        lambda text: temporal.parse_time(text, NANOS),
        lambda ns: temporal.time_text(ns, NANOS, short=True),
        lambda value: temporal.from_time(_is(value, time), NANOS),
        lambda ns: temporal.to_time(ns, NANOS),
    ),
    SchemaType.INSTANT: _pair(_INSTANT, ("seconds", "nanos"), NANOS, local=False),
    SchemaType.LOCAL_DATE_TIME: _pair(_PAIR, ("epochDay", "nanoOfDay"), _DAY_NS, local=True),
}

PRIMITIVE_TYPES: Final = frozenset((*_CODINGS, SchemaType.STRING))
