"""Default values: written in a definition as Avro's own JSON, kept encoded, so that they need no second form."""

import struct
from typing import Any, Final

from .types import Array, Enum, Fixed, Map, Record, Type, Union, shown
from .varint import encode_long

BYTES_MAX: Final = 64 * 1024  # defaults may contain one another: without a bound they double at every level
_STEPS_MAX: Final = 100_000  # the same for trying the branches of unions inside unions


def encode_default(kind: Type, value: Any) -> bytes:
    """Encode a default; raises ValueError.

    Bytes are text of code points up to 255. A union's default may be of any branch, the first that fits
    (Avro 1.12; before it only the first branch counted).
    """
    try:
        return _Encoder().encode(kind, value)
    except (_TooComplexError, RecursionError):
        raise ValueError("too large or too deep") from None


class _TooComplexError(Exception):
    """Not a ValueError, so that trying the next branch does not hide it."""


class _Encoder:
    def __init__(self) -> None:
        self.steps = 0

    def encode(self, kind: Type, value: Any) -> bytes:
        self.steps += 1
        if self.steps > _STEPS_MAX:
            raise _TooComplexError
        if isinstance(kind, Union):
            return self._union(kind, value)
        if isinstance(kind, Record):
            return self._record(kind, value)
        if isinstance(kind, Array):
            if type(value) is not list:
                raise ValueError(f"{shown(value)} is no list")
            return _block(len(value), [self.encode(kind.items, item) for item in value])
        if isinstance(kind, Map):
            if type(value) is not dict:
                raise ValueError(f"{shown(value)} is no object")
            pairs = [_text(key) + self.encode(kind.values, item) for key, item in value.items()]
            return _block(len(value), pairs)
        if isinstance(kind, Enum):
            if value not in kind.symbols:
                raise ValueError(f"{shown(value)} is no symbol of {kind.short}")
            return encode_long(kind.symbols.index(value))
        if isinstance(kind, Fixed):
            raw = _latin(value)
            if len(raw) != kind.size:
                raise ValueError(f"{shown(value)} is not {kind.size} bytes long")
            return raw
        return _primitive(kind.kind, value)

    def _union(self, kind: Union, value: Any) -> bytes:
        for number, branch in enumerate(kind.branches):
            try:
                return encode_long(number) + self.encode(branch, value)
            except ValueError:
                continue
        raise ValueError(f"{shown(value)} fits no branch of the union")

    def _record(self, kind: Record, value: Any) -> bytes:
        if type(value) is not dict:
            raise ValueError(f"{shown(value)} is no object")
        parts = []
        for field in kind.fields:
            if field.name in value:
                parts.append(self.encode(field.type, value[field.name]))
            elif field.default is not None:
                parts.append(field.default)
            else:
                raise ValueError(f"{field.name} is missing")
        if sum(map(len, parts)) > BYTES_MAX:
            raise _TooComplexError
        return b"".join(parts)


def _block(count: int, items: list[bytes]) -> bytes:
    if sum(map(len, items)) > BYTES_MAX:
        raise _TooComplexError
    return encode_long(count) + b"".join(items) + b"\0" if count else b"\0"


def _primitive(kind: str, value: Any) -> bytes:
    given = type(value)
    if kind == "null" and value is None:
        return b""
    if kind == "boolean" and given is bool:
        return b"\1" if value else b"\0"
    if kind in ("int", "long") and given is int:
        bits = 31 if kind == "int" else 63
        if -(2**bits) <= value < 2**bits:
            return encode_long(value)
    if kind in ("float", "double") and given in (int, float):
        try:
            return struct.pack("<f" if kind == "float" else "<d", value)
        except (OverflowError, struct.error):
            pass
    if kind == "string" and given is str:
        return _text(value)
    if kind == "bytes" and given is str:
        raw = _latin(value)
        return encode_long(len(raw)) + raw
    raise ValueError(f"{shown(value)} is no {kind}")


def _text(value: str) -> bytes:
    raw = value.encode()
    return encode_long(len(raw)) + raw


def _latin(value: Any) -> bytes:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is no text of bytes")
    return value.encode("latin-1")
