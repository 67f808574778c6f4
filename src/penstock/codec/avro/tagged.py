"""Values in Avro's JSON encoding as plain values.

In that encoding a value of a union is `{"branch": value}`, and bytes are text with a character for each byte (ISO-8859-1). Plain
values of unions are taken, too, if they do not look like such an object.
"""

from base64 import b64encode
from decimal import Decimal, InvalidOperation
from typing import Any

from .fit import Chosen
from .types import Array, Fixed, Logical, Map, Named, Primitive, Record, Type, Union


def untagged(kind: Type, value: Any) -> Any:
    """A value of a type as `form.PLAIN` has it. What does not fit the type is left as it is: writing it fails."""
    if isinstance(kind, Union):
        return _branch(kind, value)
    if isinstance(kind, Record):
        if not isinstance(value, dict):
            return value
        types = {field.name: field.type for field in kind.fields}
        return {name: untagged(types[name], item) if name in types else item for name, item in value.items()}
    if isinstance(kind, Array):
        return [untagged(kind.items, item) for item in value] if isinstance(value, list) else value
    if isinstance(kind, Map):
        if not isinstance(value, dict):
            return value
        return {name: untagged(kind.values, item) for name, item in value.items()}
    if isinstance(value, str) and kind.kind in ("bytes", "fixed"):
        return _bytes(kind, value)
    return value


def _branch(kind: Union, value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for number, branch in enumerate(kind.branches):
            if _name(branch) == name:
                plain = untagged(branch, inner)
                return plain if kind.optional else Chosen(number, plain)
    if kind.optional:
        (branch,) = (one for one in kind.branches if one.kind != "null")
        return untagged(branch, value)
    return value


def _name(branch: Type) -> str:
    return branch.name if isinstance(branch, Named) else branch.kind


def _bytes(kind: Type, text: str) -> str:
    logical = kind.logical if isinstance(kind, Primitive | Fixed) else None
    if logical is not None and _is_number(text):
        return text
    try:
        raw = text.encode("latin-1")
    except UnicodeEncodeError:
        return text
    if isinstance(kind, Fixed) and len(raw) != kind.size:
        return text  # it may be base64
    return b64encode(raw).decode() if logical is None else _logical(logical, raw, text)


def _logical(logical: Logical, raw: bytes, text: str) -> str:
    if logical.name != "decimal" or len(raw) > logical.precision:  # a byte is more than two digits
        return text
    return format(Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-logical.scale), "f")


def _is_number(text: str) -> bool:
    try:
        return len(text) <= 400 and Decimal(text).is_finite()
    except InvalidOperation:
        return False
