"""The two forms of values, plain (what JSON can hold) and native (Python's own bytes, datetime, Decimal …), and how
each becomes the numbers and bytes that Avro stores, and comes back from them.
"""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from enum import Enum as PythonEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from penstock.codec import temporal
from penstock.codec.temporal import MICROS, MILLIS, NANOS

from .types import Enum, Fixed, Logical, Record, Type

_DECIMAL_BYTES_MAX: Final = 1024  # far above what the precisions that definitions may have need
_UNITS: Final = {"millis": MILLIS, "micros": MICROS, "nanos": NANOS}

# Primitives that are the same in every form, but for a logical type: most values are of these.
_ALIKE: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "string"))
# The logical types of each Avro type; a logical type elsewhere is ignored, as the specification says.
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


class Conversions(NamedTuple):
    """From a form to the stored value, and back; None if they are the same.

    The functions raise ValueError, TypeError or OverflowError. What Python's types cannot hold comes back as stored.
    """

    plain_in: Convert | None = None
    plain_out: Convert | None = None
    native_in: Convert | None = None
    native_out: Convert | None = None


class Form:
    """One of the two forms."""

    def __init__(self, *, native: bool) -> None:
        self.native = native

    def into(self, kind: Type) -> Convert | None:
        """The function from this form to what Avro stores."""
        if kind.kind in _ALIKE and kind.logical is None:  # type: ignore[union-attr]
            return None
        found = _conversions(kind)
        return found.native_in if self.native else found.plain_in

    def out(self, kind: Type) -> Convert | None:
        """The function from what Avro stores to this form."""
        if kind.kind in _ALIKE and kind.logical is None:  # type: ignore[union-attr]
            return None
        found = _conversions(kind)
        return found.native_out if self.native else found.plain_out


PLAIN: Final = Form(native=False)
NATIVE: Final = Form(native=True)


def base64_out(raw: bytes) -> str:
    return b64encode(raw).decode()


def _base64_in(value: Any) -> bytes:
    return a2b_base64(_text(value), strict_mode=True)


def _bytes_in(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError("no bytes")


def _enum_in(value: Any) -> Any:
    """An enumeration's member is written as the symbol of its name."""
    return value.name if isinstance(value, PythonEnum) else value


_SAME: Final = Conversions()
_BYTES: Final = Conversions(_base64_in, base64_out, _bytes_in)
_BY_KIND: Final = {"bytes": _BYTES, "fixed": _BYTES, "enum": Conversions(native_in=_enum_in)}


def _conversions(kind: Type) -> Conversions:
    logical = None if isinstance(kind, Record | Enum) else kind.logical
    if logical is None:
        return _BY_KIND.get(kind.kind, _SAME)
    return _by_logical(logical, kind.kind, kind.size if isinstance(kind, Fixed) else 0)


@lru_cache(maxsize=1024)
def _by_logical(logical: Logical, carrier: str, size: int) -> Conversions:
    """Those of a logical type on its `carrier`; `size` is a fixed carrier's, else 0."""
    name = logical.name
    if name == "decimal":
        return Conversions(
            lambda value: _unscaled(_decimal(value), logical, size),
            lambda raw: format(_scaled(raw, logical), "f"),
            lambda value: _unscaled(value if type(value) is Decimal else _number(value), logical, size),
            lambda raw: _scaled(raw, logical),
        )
    if name == "uuid" and carrier == "string":
        return Conversions(
            lambda value: str(UUID(_text(value))), None, lambda value: str(_uuid(value)), _uuid_or_text
        )
    if name == "uuid":
        return Conversions(
            lambda value: UUID(_text(value)).bytes,
            lambda raw: str(UUID(bytes=raw)),
            lambda value: _uuid(value).bytes,
            lambda raw: UUID(bytes=raw),
        )
    if name == "date":
        return _counted(temporal.parse_date, temporal.date_text, date, _days, temporal.to_date)
    unit = _UNITS[name.rpartition("-")[2]]
    if name.startswith("time-"):
        return _counted(
            lambda text: temporal.parse_time(text, unit),
            lambda raw: temporal.time_text(raw, unit),
            time,
            lambda value: temporal.from_time(value, unit),
            lambda raw: temporal.to_time(raw, unit),
        )
    local = name.startswith("local")
    zone = "" if local else "Z"
    return _counted(
        lambda text: temporal.parse_timestamp(text, unit, local=local),
        lambda raw: temporal.timestamp_text(raw, unit, zone),
        datetime,
        lambda value: temporal.from_datetime(value, unit),
        lambda raw: temporal.to_datetime(raw, unit, local=local),
    )


def _counted(
    parse: Convert, text: Convert, native: type, from_native: Convert, to_native: Convert
) -> Conversions:
    """Those of a date or time, which is stored as a count; the count itself is taken in both forms."""

    def plain_in(value: Any) -> Any:
        return value if type(value) is int else parse(_text(value))

    def native_in(value: Any) -> Any:
        return from_native(value) if isinstance(value, native) else _count(value)

    def native_out(raw: int) -> Any:
        try:
            return to_native(raw)
        except (ValueError, OverflowError):
            return raw

    return Conversions(plain_in, text, native_in, native_out)


def _days(value: Any) -> int:
    return temporal.from_date(value) if type(value) is date else _count(value)  # no datetime


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("no count")
    return value


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(_text(value))


def _uuid_or_text(raw: str) -> UUID | str:
    try:
        return UUID(raw)
    except ValueError:
        return raw


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
    if len(value) > 400:  # longer than any precision that is used; Decimal is quadratic
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
    # A context as wide as the number: the default one would round beyond 28 digits.
    return Decimal(number).scaleb(-logical.scale, Context(prec=len(raw) * 3 + logical.scale + 3))
