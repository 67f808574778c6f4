"""What a request says about schemas (PIP-64, PIP-43), in all its forms, to a schema.

`key_schema` and `value_schema` are objects `{"type", "schema", "name", "properties"}`, or strings that hold one;
`schema` is the definition as text, as base64, or as the object itself. If `schema_type` names the type, a
definition is enough.
"""

from binascii import a2b_base64
from typing import Annotated, Any, Final, Literal

import msgspec

from penstock.codec.key_value import key_value_schema
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import (
    ANY_JSON,
    BYTES_SCHEMA,
    STRING_SCHEMA,
    KeyValueEncoding,
    SchemaInfo,
    SchemaType,
)

Part = Literal["key", "value"]
Long = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SchemaText = str | dict[str, Any]

_JSON_STARTS: Final = ("{", "[", '"')
_NAMES: Final = {kind.name.replace("_", ""): kind for kind in SchemaType if kind >= SchemaType.BYTES}


class Declaration(msgspec.Struct, frozen=True, kw_only=True):
    """The schema fields of a request or of one message, which inherit it; all None says nothing.

    `key_value_encoding` says how the key of a pair is stored: SEPARATED, the default here because such a key
    chooses the partition, or INLINE.
    """

    schema_type: str | None = None
    schema_version: Long | None = None
    key_schema: SchemaText | None = None
    value_schema: SchemaText | None = None
    key_value_encoding: str | None = None

    @property
    def empty(self) -> bool:
        """Whether no schema is named."""
        return (
            self.schema_type is None
            and self.schema_version is None
            and self.value_schema is None
            and self.key_schema is None
        )


def declared(declaration: Declaration) -> SchemaInfo | None:
    """The schema that is meant, None when none is named; the version is not looked at.

    Raises NEEDS_KEY_VALUE_SCHEMA, NEEDS_VALUE_SCHEMA, BAD_KEY_SCHEMA, BAD_VALUE_SCHEMA, and BAD_PARAMETER for an
    unknown type.
    """
    named = None if declaration.schema_type is None else schema_type(declaration.schema_type)
    key, value = declaration.key_schema, declaration.value_schema
    if key is not None:
        if value is None:
            raise _needs_both("key_schema comes without value_schema")
        if named not in (None, SchemaType.KEY_VALUE):
            raise _bad("key", f"key_schema is for schema_type key_value, not {declaration.schema_type}")
        return key_value_schema(
            _schema(key, None, "key"), _schema(value, None, "value"), _key_value_encoding(declaration)
        )
    if value is not None:
        schema = _schema(value, named, "value")
        if named is SchemaType.KEY_VALUE and schema.type is not SchemaType.KEY_VALUE:
            raise _needs_both("schema_type key_value comes without key_schema")
        return schema
    if named is None:
        return None
    if named is SchemaType.KEY_VALUE:
        raise _needs_both("schema_type key_value comes without key_schema and value_schema")
    if named is SchemaType.STRING:
        return STRING_SCHEMA
    if named in (SchemaType.BYTES, SchemaType.NONE):
        return BYTES_SCHEMA
    if named is SchemaType.JSON:
        return ANY_JSON
    if named.has_definition:
        raise PenstockError(
            ErrorKind.NEEDS_VALUE_SCHEMA, f"schema_type {declaration.schema_type} comes without value_schema"
        )
    return SchemaInfo(named, name=_java_name(named))


def schema_type(name: str) -> SchemaType:
    """The type of that name, however it is written (`KEY_VALUE`, `key-value`, `KeyValue`)."""
    found = _NAMES.get(name.upper().replace("_", "").replace("-", ""))
    if found is None:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"unknown schema_type {name[:80]!r}")
    return found


def _schema(given: SchemaText, named: SchemaType | None, part: Part) -> SchemaInfo:
    """One schema of either form; `named` is the type that `schema_type` names."""
    text = given if isinstance(given, str) else None
    tree: Any = given
    if text is not None:
        try:
            tree = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            tree = None
        if not isinstance(tree, dict):
            return _alone(text, named, part)
    if "schema" not in tree and _is_definition(tree):
        return _alone(text if text is not None else tree, named, part)
    kind = named
    if (name := tree.get("type")) is not None:
        if not isinstance(name, str):
            raise _bad(part, f"{part}_schema: type is no text")
        try:
            kind = schema_type(name)
        except PenstockError:
            raise _bad(part, f"{part}_schema: unknown type {name[:80]!r}") from None
        if named is not None and named is not kind and named is not SchemaType.KEY_VALUE:
            raise _bad(part, f"{part}_schema is of type {kind.name}, schema_type says {named.name}")
    if kind is None:
        raise _bad(part, f"{part}_schema names no type, nor does schema_type")
    data = _definition(tree.get("schema"), kind, part)
    if not data and kind is SchemaType.JSON:
        data = ANY_JSON.data
    if not data and kind.has_definition:
        raise _bad(part, f"{part}_schema: a schema of type {kind.name} needs its definition in `schema`")
    return SchemaInfo(kind, data, _name(tree, kind, part), _properties(tree, kind, part))


def _is_definition(tree: dict[str, Any]) -> bool:
    """Whether an object without `schema` is a definition rather than a schema that needs none."""
    name = tree.get("type")
    return not isinstance(name, str) or name.upper().replace("_", "").replace("-", "") not in _NAMES


def _alone(given: SchemaText, named: SchemaType | None, part: Part) -> SchemaInfo:
    """A definition without a type, which the request names separately."""
    if named is None or not named.has_definition or named is SchemaType.KEY_VALUE:
        raise _bad(
            part,
            f'{part}_schema is no object like {{"type": "AVRO", "schema": …}}, nor does schema_type name its type',
        )
    data = _definition(given, named, part)
    if not data:
        raise _bad(part, f"{part}_schema is empty")
    return SchemaInfo(named, data)


def _definition(given: Any, kind: SchemaType, part: Part) -> bytes:
    if given is None or given == "":
        return b""
    if not kind.has_definition:
        raise _bad(part, f"{part}_schema: a schema of type {kind.name} has no definition")
    if isinstance(given, dict | list) and kind is not SchemaType.KEY_VALUE:
        try:
            return msgspec.json.encode(given)
        except (OverflowError, RecursionError):
            raise _bad(part, f"{part}_schema: the definition cannot be written as JSON") from None
    if not isinstance(given, str):
        raise _bad(part, f"{part}_schema: the definition must be text, base64 or the object itself")
    text = given.strip()
    if text.startswith(_JSON_STARTS) and kind is not SchemaType.KEY_VALUE:
        return text.encode()
    try:
        return a2b_base64(text, strict_mode=True)
    except ValueError:
        raise _bad(part, f"{part}_schema: the definition is neither JSON nor base64") from None


def _name(tree: dict[str, Any], kind: SchemaType, part: Part) -> str:
    name = tree.get("name")
    if name is None:
        return _java_name(kind)
    if not isinstance(name, str):
        raise _bad(part, f"{part}_schema: name is no text")
    return name


def _java_name(kind: SchemaType) -> str:
    """What Java's clients call a schema without a definition: `String`, `INT32`, …"""
    return {SchemaType.STRING: STRING_SCHEMA.name, SchemaType.BYTES: BYTES_SCHEMA.name}.get(kind, kind.name)


def _properties(tree: dict[str, Any], kind: SchemaType, part: Part) -> dict[str, str]:
    properties = tree.get("properties")
    if properties is None:
        return dict(STRING_SCHEMA.properties) if kind is SchemaType.STRING else {}
    if not isinstance(properties, dict) or not all(isinstance(v, str) for v in properties.values()):
        raise _bad(part, f"{part}_schema: properties must map texts to texts")
    return properties


def _key_value_encoding(declaration: Declaration) -> KeyValueEncoding:
    name = declaration.key_value_encoding or "SEPARATED"
    try:
        return KeyValueEncoding(name.upper())
    except ValueError:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"unknown key_value_encoding {name[:80]!r}: INLINE or SEPARATED"
        ) from None


def _bad(part: Part, text: str) -> PenstockError:
    return PenstockError(ErrorKind.BAD_KEY_SCHEMA if part == "key" else ErrorKind.BAD_VALUE_SCHEMA, text)


def _needs_both(text: str) -> PenstockError:
    return PenstockError(ErrorKind.NEEDS_KEY_VALUE_SCHEMA, text)
