"""A definition's JSON to a graph of types, with every rule checked and every bound kept.

Default values, which a definition has in Avro's JSON, are kept encoded, so that they need no second form.
"""

import re
import struct
from typing import Any, Final

import msgspec

from .form import CARRIERS
from .types import (
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Logical,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
    shown,
)
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


DEPTH_MAX: Final = 100  # deeper than any definition written by people or generated from their classes
BRANCHES_MAX: Final = 1000  # branches are compared each with each
TYPES_MAX: Final = 10_000  # codecs are compiled: about a tenth of a millisecond per type

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# Java's reflection gives nested classes a namespace that ends in `$`.
_NAMESPACE = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*", re.ASCII)
_DECIMAL_PRECISION_MAX: Final = 1000


class DefinitionError(ValueError):
    """Why a definition cannot be used, with the path to the place."""


def parse(data: bytes) -> Type:
    """Parse a definition; raises DefinitionError."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the definition is not JSON: {error}") from None
    return parse_tree(tree)


def parse_tree(tree: Any) -> Type:
    """Parse a definition given as decoded JSON; raises DefinitionError."""
    parser = _Parser()
    root = parser.type(tree, "", "", 0)
    for record, field, value in parser.defaults:
        try:
            field.default = encode_default(field.type, value)
        except (ValueError, RecursionError) as error:
            field.default_error = f"the default of {record.short}.{field.name} does not fit: {error}"
    return root


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, Named] = {}
        self.count = 0
        # Defaults are encoded last: they may need types that are defined further on.
        self.defaults: list[tuple[Record, Field, Any]] = []

    def type(self, tree: Any, namespace: str, path: str, depth: int) -> Type:
        self.count += 1
        if self.count > TYPES_MAX:
            raise DefinitionError(f"more than {TYPES_MAX} types")
        if depth > DEPTH_MAX:
            raise DefinitionError(f"{_at(path)}nested deeper than {DEPTH_MAX}")
        if type(tree) is str:
            return self._reference(tree, namespace, path)
        if type(tree) is list:
            return self._union(tree, namespace, path, depth)
        if type(tree) is not dict:
            raise DefinitionError(f"{_at(path)}a type is a name, an object or a list, not {shown(tree)}")
        if "type" not in tree:
            raise DefinitionError(f'{_at(path)}an object without "type"')
        kind = tree["type"]
        if type(kind) is not str:
            return self.type(kind, namespace, path, depth + 1)
        if kind in ("record", "error"):
            return self._record(tree, namespace, path, depth)
        if kind == "enum":
            return self._enum(tree, namespace, path)
        if kind == "fixed":
            return self._fixed(tree, namespace, path)
        if kind == "array":
            return Array(self.type(_need(tree, "items", path), namespace, f"{path}[]", depth + 1))
        if kind == "map":
            return Map(self.type(_need(tree, "values", path), namespace, f"{path}{{}}", depth + 1))
        if kind in PRIMITIVES:
            return Primitive(kind, _logical(tree, kind, 0))
        return self._reference(kind, namespace, path)

    def _reference(self, name: str, namespace: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        known = self.named.get(name if "." in name or not namespace else f"{namespace}.{name}")
        known = known or self.named.get(name)
        if known is None:
            raise DefinitionError(f"{_at(path)}unknown type {shown(name)}")
        assert isinstance(known, Record | Enum | Fixed)
        return known

    def _union(self, tree: list[Any], namespace: str, path: str, depth: int) -> Union:
        if len(tree) > BRANCHES_MAX:
            raise DefinitionError(f"{_at(path)}a union of more than {BRANCHES_MAX} branches")
        branches: list[Type] = []
        seen: set[str] = set()
        for number, branch in enumerate(tree):
            parsed = self.type(branch, namespace, f"{path}|{number}" if path else f"|{number}", depth + 1)
            if isinstance(parsed, Union):
                raise DefinitionError(f"{_at(path)}a union inside a union")
            key = parsed.name if isinstance(parsed, Named) else parsed.kind
            if key in seen:
                raise DefinitionError(f"{_at(path)}the union has {key} twice")
            seen.add(key)
            branches.append(parsed)
        if not branches:
            raise DefinitionError(f"{_at(path)}a union of nothing")
        return Union(tuple(branches))

    def _record(self, tree: dict[str, Any], namespace: str, path: str, depth: int) -> Record:
        name, inner, aliases = self._name(tree, namespace, path)
        record = Record(name, aliases)
        self._define(record, path)
        fields: list[Field] = []
        seen: set[str] = set()
        given = _need(tree, "fields", path)
        if type(given) is not list:
            raise DefinitionError(f'{_at(path)}"fields" is no list')
        for item in given:
            if type(item) is not dict:
                raise DefinitionError(f"{_at(path)}a field is an object, not {shown(item)}")
            field_name = item.get("name")
            if type(field_name) is not str or not _NAME.fullmatch(field_name):
                raise DefinitionError(f"{_at(path)}bad field name {shown(field_name)}")
            inside = f"{path}.{field_name}" if path else field_name
            if field_name in seen:
                raise DefinitionError(f"{_at(path)}field {field_name} is there twice")
            seen.add(field_name)
            kind = self.type(_need(item, "type", inside), inner, inside, depth + 1)
            field = Field(field_name, kind, _aliases(item, inside))
            if "default" in item:
                self.defaults.append((record, field, item["default"]))
            fields.append(field)
        record.fields = tuple(fields)
        return record

    def _enum(self, tree: dict[str, Any], namespace: str, path: str) -> Enum:
        name, _, aliases = self._name(tree, namespace, path)
        symbols = _need(tree, "symbols", path)
        if type(symbols) is not list or not all(type(s) is str and _NAME.fullmatch(s) for s in symbols):
            raise DefinitionError(f'{_at(path)}"symbols" is no list of names')
        if len(set(symbols)) != len(symbols):
            raise DefinitionError(f"{_at(path)}a symbol of {name} is there twice")
        default = tree.get("default")
        if default is not None and default not in symbols:
            raise DefinitionError(f"{_at(path)}the default of {name} is none of its symbols")
        kind = Enum(name, aliases, tuple(symbols), default)
        self._define(kind, path)
        return kind

    def _fixed(self, tree: dict[str, Any], namespace: str, path: str) -> Fixed:
        name, _, aliases = self._name(tree, namespace, path)
        size = _need(tree, "size", path)
        if type(size) is not int or not 0 <= size < 2**31:
            raise DefinitionError(f"{_at(path)}the size of {name} is no size")
        kind = Fixed(name, aliases, size, _logical(tree, "fixed", size))
        self._define(kind, path)
        return kind

    def _name(self, tree: dict[str, Any], outer: str, path: str) -> tuple[str, str, tuple[str, ...]]:
        """Full name, the namespace of inner types, aliases."""
        name = _need(tree, "name", path)
        if type(name) is not str:
            raise DefinitionError(f"{_at(path)}a name is text, not {shown(name)}")
        namespace, _, short = name.rpartition(".")
        if not namespace:
            namespace = tree.get("namespace", outer)
            if namespace is None:
                namespace = ""
            if type(namespace) is not str:
                raise DefinitionError(f"{_at(path)}a namespace is text, not {shown(namespace)}")
        if not _NAME.fullmatch(short) or (namespace and not _NAMESPACE.fullmatch(namespace)):
            raise DefinitionError(f"{_at(path)}bad name {shown(name)} in namespace {shown(namespace)}")
        if not namespace and short in PRIMITIVES:
            raise DefinitionError(f"{_at(path)}{short} is the name of a primitive type")
        full = _full(short, namespace)
        return full, namespace, tuple(a if "." in a else _full(a, namespace) for a in _aliases(tree, path))

    def _define(self, kind: Named, path: str) -> None:
        if kind.name in self.named:
            raise DefinitionError(f"{_at(path)}{kind.name} is defined twice")
        self.named[kind.name] = kind


def _logical(tree: dict[str, Any], carrier: str, size: int) -> Logical | None:
    """The logical type, or None for one that is unknown, misplaced or malformed: the specification ignores it."""
    name = tree.get("logicalType")
    if type(name) is not str or name not in CARRIERS.get(carrier, ()):
        return None
    if name == "uuid" and carrier == "fixed" and size != 16:
        return None
    if name != "decimal":
        return Logical(name)
    precision, scale = tree.get("precision"), tree.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not (0 < precision <= _DECIMAL_PRECISION_MAX and 0 <= scale <= precision):
        return None
    if carrier == "fixed" and 10**precision > 2 ** (8 * size - 1 if size else 0):
        return None
    return Logical(name, precision, scale)


def _full(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _aliases(tree: dict[str, Any], path: str) -> tuple[str, ...]:
    aliases = tree.get("aliases", [])
    if type(aliases) is not list or not all(type(alias) is str for alias in aliases):
        raise DefinitionError(f'{_at(path)}"aliases" is no list of names')
    return tuple(aliases)


def _need(tree: dict[str, Any], key: str, path: str) -> Any:
    if key not in tree:
        raise DefinitionError(f'{_at(path)}"{key}" is missing')
    return tree[key]


def _at(path: str) -> str:
    return f"at {path}: " if path else ""
