"""Values in Avro's JSON encoding, which the shipped dialect uses, to plain ones.

Avro writes a union's value as `{"branch": value}` and bytes as a text of the characters 0 to 255. Plain values,
which have neither, pass as they are.
"""

from typing import Any

import msgspec

from penstock.codec.avro.types import Array, Fixed, Map, Named, Primitive, Record, Type, Union


def plain(kind: Type, value: Any) -> Any:
    """`value` in plain form; what fits nowhere is left for the codec to refuse."""
    if isinstance(kind, Union):
        return _branch(kind, value)
    if isinstance(kind, Record) and isinstance(value, dict):
        types = {field.name: field.type for field in kind.fields}
        return {name: plain(types[name], v) if name in types else v for name, v in value.items()}
    if isinstance(kind, Map) and isinstance(value, dict):
        return {name: plain(kind.values, v) for name, v in value.items()}
    if isinstance(kind, Array) and isinstance(value, list):
        return [plain(kind.items, v) for v in value]
    if isinstance(kind, Primitive | Fixed) and kind.kind in ("bytes", "fixed") and kind.logical is None:
        return _bytes(value)
    return value


def _branch(union: Union, value: Any) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in union.branches:
            if name == branch.kind or (isinstance(branch, Named) and name in (branch.name, branch.short)):
                return plain(branch, inner)
    others = [branch for branch in union.branches if branch.kind != "null"]
    return plain(others[0], value) if len(others) == 1 and value is not None else value


def _bytes(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        return value
    return msgspec.to_builtins(raw)
