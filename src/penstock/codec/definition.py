"""Definitions of schemas: checked within bounds, compared as Pulsar compares them."""

from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from penstock.model.errors import PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .avro.parse import DefinitionError, parse
from .avro.types import PRIMITIVES, Record, Type
from .codec import Part, bad_schema
from .json_schema.pulsar import FOREIGN
from .key_value import ENCODING_PROPERTY, key_value_parts

SCHEMA_BYTES_MAX: Final = 1024 * 1024
_PARSED_MAX: Final = 512  # definitions kept parsed: more than a server has in use at a time
PARSING_INFO: Final = "__PARSING_INFO__"

# Types whose definition is Avro's JSON.
AVRO_DEFINED: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))


def check_definition(
    schema: SchemaInfo, *, max_schema_bytes: int = SCHEMA_BYTES_MAX, part: Part = "value"
) -> None:
    """Raises BAD_VALUE_SCHEMA, or BAD_KEY_SCHEMA, if `schema` cannot be used."""
    if len(schema.data) > max_schema_bytes:
        raise bad_schema(
            part, f"a definition of {len(schema.data)} bytes, at most {max_schema_bytes} are allowed"
        )
    if schema.type in (SchemaType.AUTO_CONSUME, SchemaType.AUTO_PUBLISH):
        raise bad_schema(part, f"{schema.type.name} is no type that can be stored")
    if schema.type is SchemaType.KEY_VALUE:
        if part == "key":
            raise bad_schema(part, "a key cannot be a pair of key and value")
        key, value, _ = key_value_parts(schema)
        check_definition(key, max_schema_bytes=max_schema_bytes, part="key")
        check_definition(value, max_schema_bytes=max_schema_bytes, part="value")
    elif schema.type is SchemaType.PROTOBUF_NATIVE:
        from .descriptors import native_message

        native_message(schema, part)
    elif schema.type in AVRO_DEFINED:
        avro_type(schema, part)


def avro_type(schema: SchemaInfo, part: Part = "value") -> Type | None:
    """The parsed definition of an AVRO, JSON or PROTOBUF schema; None for JSON of any shape, whose definition is empty
    or a record without fields.

    The same bytes give the same object while they are remembered. Raises as `check_definition`.
    """
    if schema.type is SchemaType.JSON and not schema.data.strip():
        return None
    try:
        kind = _parse(schema.data)
    except DefinitionError as error:
        text = str(error)
        if schema.type is SchemaType.JSON and _is_json_schema(schema.data):
            text = "this is a JSON Schema; the definition of a JSON schema is an Avro record (PIP-464)"
        raise bad_schema(part, f"bad {schema.type.name} definition: {text}") from None
    if schema.type is not SchemaType.AVRO and kind.kind != "record":
        raise bad_schema(
            part, f"the definition of a {schema.type.name} schema is an Avro record, not {kind.kind}"
        )
    if schema.type is SchemaType.JSON and isinstance(kind, Record) and not kind.fields:
        return None
    return kind


@lru_cache(maxsize=_PARSED_MAX)
def _parse(data: bytes) -> Type:
    try:
        return parse(data)
    except RecursionError:
        raise DefinitionError("nested too deeply") from None


def _is_json_schema(data: bytes) -> bool:
    """Whether this looks like what Pulsar before 2.1 registered for JSON, or like a draft of JSON Schema."""
    try:
        tree = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return False
    return type(tree) is dict and ("$schema" in tree or "properties" in tree or tree.get("type") == "object")


def same(a: SchemaInfo, b: SchemaInfo) -> bool:
    """Whether two schemas are one version (docs/schemas.md): equal definitions by their meaning, else by their bytes.

    Unlike Pulsar, a pair's parts are compared by their meaning, and schemas whose payloads differ are never
    one: pairs that keep the key in different places, texts of two charsets, Protobuf of other field numbers.
    Types without a definition are their type, whatever is given in its place: Python's client sends `null`.
    """
    return a.type == b.type and fingerprint(a) == fingerprint(b)


def fingerprint(schema: SchemaInfo) -> bytes:
    """A hash that is equal for schemas that are the same; malformed definitions are hashed by their bytes."""
    digest = sha256(b"%d:" % schema.type)
    if schema.type is SchemaType.KEY_VALUE:
        try:
            key, value, encoding = key_value_parts(schema)
        except PenstockError:
            digest.update(schema.data)
        else:
            digest.update(fingerprint(key) + fingerprint(value) + encoding.value.encode())
    elif schema.type in AVRO_DEFINED:
        digest.update(_canonical(schema.data))
        digest.update(schema.properties.get(FOREIGN, "").encode())  # a JSON Schema, which has no definition
        if schema.type is SchemaType.PROTOBUF:  # the field numbers: without them payloads mean something else
            digest.update(b"\0" + schema.properties.get(PARSING_INFO, "").encode())
    elif schema.type.has_definition:
        digest.update(schema.data)
    elif schema.type is SchemaType.STRING:
        digest.update((schema.properties.get("__charset") or "UTF-8").upper().encode())
    return digest.digest()


def cache_key(schema: SchemaInfo) -> tuple[Any, ...]:
    """What a codec depends on, and nothing else."""
    if schema.type is SchemaType.KEY_VALUE:
        names = (
            ENCODING_PROPERTY,
            *(f"{p}.schema.{x}" for p in ("key", "value") for x in ("type", "properties")),
        )
    elif schema.type is SchemaType.STRING:
        names = ("__charset",)
    elif schema.type is SchemaType.PROTOBUF:
        names = (PARSING_INFO,)
    else:
        return (schema.type, schema.data, ())
    return (schema.type, schema.data, tuple((n, schema.properties.get(n, "")) for n in names))


@lru_cache(maxsize=_PARSED_MAX)
def _canonical(data: bytes) -> bytes:
    """A definition reduced to the compared parts; its bytes if it is malformed."""
    try:
        return msgspec.json.encode(_strip(msgspec.json.decode(data), ""), order="sorted")
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return data


_DEFINING: Final = frozenset(("record", "error", "enum", "fixed"))


def _strip(tree: Any, namespace: str) -> Any:
    """Full names, no `doc`, no aliases, no wrapping of bare names: what Java's Schema.equals looks at."""
    if type(tree) is str:
        return tree if "." in tree or tree in PRIMITIVES or not namespace else f"{namespace}.{tree}"
    if type(tree) is list:
        return [_strip(branch, namespace) for branch in tree]
    out = {name: value for name, value in tree.items() if name not in ("doc", "aliases", "namespace")}
    kind = tree["type"]
    if type(kind) is str and kind in _DEFINING:
        name = tree["name"]
        if "." not in name:
            outer = tree.get("namespace", namespace) or ""
            name = f"{outer}.{name}" if outer else name
        out["name"] = name
        inner = name.rpartition(".")[0]
        if "fields" in tree:
            out["fields"] = [_strip_field(field, inner) for field in tree["fields"]]
    elif kind == "array":
        out["items"] = _strip(tree["items"], namespace)
    elif kind == "map":
        out["values"] = _strip(tree["values"], namespace)
    elif len(out) == 1:
        return _strip(kind, namespace)
    else:
        out["type"] = _strip(kind, namespace)
    return out


def _strip_field(field: dict[str, Any], namespace: str) -> dict[str, Any]:
    out = {name: value for name, value in field.items() if name not in ("doc", "aliases")}
    out["type"] = _strip(field["type"], namespace)
    if out.get("order") == "ascending":
        del out["order"]
    return out
