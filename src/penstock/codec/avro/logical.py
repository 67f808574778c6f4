"""Logical types: the JSON form and the Python form of the numbers and bytes that Avro stores for them."""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from typing import Any, Final
from uuid import UUID

from penstock.codec import temporal
from penstock.codec.temporal import MICROS, MILLIS, NANOS

from .types import Logical

_DECIMAL_BYTES_MAX: Final = 1024  # far above what the precisions that definitions may have need
_UNITS: Final = {"millis": MILLIS, "micros": MICROS, "nanos": NANOS}

# Which logical types stand on which Avro type; a logical type elsewhere is ignored, as the specification says.
CARRIERS: Final = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "timestamp-nanos",
        "local-timestamp-millis",
        "local-timestamp-micros",
        "local-timestamp-nanos",
    ),
    "string": ("uuid",),
    "bytes": ("decimal",),
    "fixed": ("decimal", "uuid"),
}

Convert = Callable[[Any], Any]


def plain_in(logical: Logical, carrier: str, size: int = 0) -> Convert:
    """JSON form to what Avro stores; the function raises ValueError or TypeError."""
    if logical.name == "decimal":
        return lambda value: _unscaled(_decimal(value), logical, size)
    if logical.name == "uuid":
        return (
            (lambda value: str(UUID(_text(value)))) if carrier == "string" else lambda v: UUID(_text(v)).bytes
        )
    parse = _parser(logical.name)
    return lambda value: value if type(value) is int else parse(_text(value))


def plain_out(logical: Logical, carrier: str) -> Convert:
    """What Avro stores to its JSON form; raises ValueError for a decimal of absurd width."""
    name = logical.name
    if name == "decimal":
        return lambda raw: format(_scaled(raw, logical), "f")
    if name == "uuid":
        return (lambda raw: raw) if carrier == "string" else lambda raw: str(UUID(bytes=raw))
    if name == "date":
        return temporal.date_text
    unit = _UNITS[name.rpartition("-")[2]]
    if name.startswith("time-"):
        return lambda raw: temporal.time_text(raw, unit)
    zone = "" if name.startswith("local") else "Z"
    return lambda raw: temporal.timestamp_text(raw, unit, zone)


def native_in(logical: Logical, carrier: str, size: int = 0) -> Convert:
    """Python form, or the stored one, to what Avro stores; the function raises ValueError or TypeError."""
    name = logical.name
    if name == "decimal":
        return lambda value: _unscaled(value if type(value) is Decimal else _number(value), logical, size)
    if name == "uuid":
        if carrier == "string":
            return lambda value: str(value if isinstance(value, UUID) else UUID(_text(value)))
        return lambda value: (value if isinstance(value, UUID) else UUID(_text(value))).bytes
    if name == "date":
        return lambda v: temporal.from_date(v) if type(v) is date else _count(v)
    unit = _UNITS[name.rpartition("-")[2]]
    if name.startswith("time-"):
        return lambda v: temporal.from_time(v, unit) if isinstance(v, time) else _count(v)
    return lambda v: temporal.from_datetime(v, unit) if isinstance(v, datetime) else _count(v)


def native_out(logical: Logical, carrier: str) -> Convert:
    """What Avro stores to its Python form; what Python's types cannot hold stays as it is stored."""
    name = logical.name
    if name == "decimal":
        return lambda raw: _scaled(raw, logical)
    if name == "uuid":
        return _uuid if carrier == "string" else lambda raw: UUID(bytes=raw)
    if name == "date":
        return lambda raw: _or_raw(temporal.to_date, raw)
    unit = _UNITS[name.rpartition("-")[2]]
    if name.startswith("time-"):
        return lambda raw: _or_raw(lambda n: temporal.to_time(n, unit), raw)
    local = name.startswith("local")
    return lambda raw: _or_raw(lambda n: temporal.to_datetime(n, unit, local=local), raw)


def base64_in(value: Any) -> bytes:
    """Base64 text to bytes; raises ValueError or TypeError."""
    return a2b_base64(_text(value), strict_mode=True)


def base64_out(raw: bytes) -> str:
    return b64encode(raw).decode()


def bytes_in(value: Any) -> bytes:
    """Anything bytes-like to bytes; raises TypeError."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError("no bytes")


def _parser(name: str) -> Callable[[str], int]:
    if name == "date":
        return temporal.parse_date
    unit = _UNITS[name.rpartition("-")[2]]
    if name.startswith("time-"):
        return lambda text: temporal.parse_time(text, unit)
    local = name.startswith("local")
    return lambda text: temporal.parse_timestamp(text, unit, local=local)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no count")
    return value


def _number(value: Any) -> Decimal:
    """A number as the decimal that it prints as, so that 0.1 is 0.1."""
    if type(value) is int:
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    raise TypeError("no number")


def _decimal(value: Any) -> Decimal:
    if type(value) is not str:
        return _number(value)
    if (
        len(value) > 400
    ):  # longer than any precision a fixed or bytes decimal is used with; Decimal is quadratic
        raise ValueError("decimal too long")
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ValueError("no decimal") from None


def _unscaled(value: Decimal, logical: Logical, size: int) -> bytes:
    """Two's complement, big-endian, of the value times 10**scale: exactly, or ValueError."""
    if not value.is_finite():
        raise ValueError("no finite decimal")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + logical.scale
    if len(digits) + shift > logical.precision and any(digits):
        raise ValueError("too many digits")
    number = int("".join(map(str, digits)) or "0")
    if shift >= 0:
        power: int = 10 ** min(shift, logical.precision)
        number *= power
    else:
        unit: int = 10 ** min(-shift, len(digits) + 1)
        number, rest = divmod(number, unit)
        if rest:
            raise ValueError("too many digits after the point")
    number = -number if sign else number
    length: int = size or (number.bit_length() // 8 + 1)
    return number.to_bytes(length, "big", signed=True)


def _scaled(raw: bytes, logical: Logical) -> Decimal:
    if len(raw) > _DECIMAL_BYTES_MAX:
        raise ValueError("decimal too wide")
    number = int.from_bytes(raw, "big", signed=True)
    # A context as wide as the number: the default one would round what is longer than 28 digits.
    return Decimal(number).scaleb(-logical.scale, Context(prec=len(raw) * 3 + logical.scale + 3))


def _uuid(raw: str) -> UUID | str:
    try:
        return UUID(raw)
    except ValueError:
        return raw


def _or_raw(convert: Convert, raw: int) -> Any:
    try:
        return convert(raw)
    except (ValueError, OverflowError):
        return raw
