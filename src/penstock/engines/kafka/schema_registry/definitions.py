"""Schemas as a registry has them, and as messages name them. Schemas of other types than these three are not in the registry.

Avro types of other subjects are put where they are used first, as Pulsar's definitions have them. A JSON schema of Pulsar's is
defined by an Avro record, which a registry would take for a schema of Avro's encoding: it is registered as the JSON Schema of the
values, and keeps its own definition in `x-pulsar-schema`. A JSON Schema of another's reads as JSON of any shape.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from penstock.codec.proto.native import ProtoFile, of_proto, to_proto
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaInfo, SchemaType

from .client import Definition

_NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
BYTES_MAX: Final = 16 * 1024 * 1024  # of a definition with all that it uses
OWN: Final = "x-pulsar-schema"
DRAFT: Final = "http://json-schema.org/draft-07/schema#"
FOREIGN: Final = "json-schema"  # the property of a schema that has another's JSON Schema
DEPTH_MAX: Final = 64
_PRIMITIVES: Final[dict[str, dict[str, Any]]] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "bytes": {"type": "string"},
    "string": {"type": "string"},
}
HELD: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF_NATIVE))


def with_references(text: str, references: Mapping[str, str]) -> str:
    """The definition that stands for itself; `references` has the texts of the types it uses, by their full names.

    Raises ValueError for texts that are no JSON, and types that nest too deeply.
    """
    if not references:
        return text
    try:
        found = _Inlining(references).of(msgspec.json.decode(text), "")
        made = msgspec.json.encode(found)
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no Avro schema: {error}") from None
    return made.decode()


class _Inlining:
    def __init__(self, references: Mapping[str, str]) -> None:
        self._references = references
        self._defined: set[str] = set()
        self._room = BYTES_MAX

    def of(self, avro: Any, namespace: str) -> Any:
        if isinstance(avro, list):
            return [self.of(one, namespace) for one in avro]
        if isinstance(avro, str):
            return self._named(avro, namespace)
        kind = avro["type"]
        if not isinstance(kind, str):
            return {**avro, "type": self.of(kind, namespace)}
        if kind in _NAMED:
            return self._definition(avro, namespace)
        if kind == "array":
            return {**avro, "items": self.of(avro["items"], namespace)}
        if kind == "map":
            return {**avro, "values": self.of(avro["values"], namespace)}
        return {**avro, "type": self._named(kind, namespace)}

    def _named(self, name: str, namespace: str) -> Any:
        """A type by its name: its definition where it is used first."""
        if name in _PRIMITIVES:
            return name
        for one in (_full(name, namespace), name):
            if one in self._defined:
                return one
            if one in self._references:
                text = self._references[one]
                self._room -= len(text)
                if self._room < 0:
                    raise ValueError(f"more than {BYTES_MAX} bytes with the schemas that are used")
                return self.of(msgspec.json.decode(text), "")
        return name

    def _definition(self, avro: dict[str, Any], outer: str) -> dict[str, Any]:
        namespace = _namespace(avro, outer) or ""
        short = avro["name"].rpartition(".")[2]
        self._defined.add(_full(short, namespace))
        made = {**avro, "name": short, "namespace": namespace}  # said, as it may stand within another one now
        if "fields" in avro:
            made["fields"] = [{**one, "type": self.of(one["type"], namespace)} for one in avro["fields"]]
        return made


def json_schema(definition: str) -> str:
    """The JSON Schema of the values of a JSON schema, whose definition was checked."""
    shape: dict[str, Any] = {"$schema": DRAFT}
    tree = msgspec.json.decode(definition) if definition.strip() else None
    while isinstance(tree, dict) and isinstance(tree["type"], dict):  # a record within a record's type
        tree = tree["type"]
    if tree is not None and not tree["fields"]:  # JSON of any shape
        shape["title"] = tree["name"]
    elif tree is not None:
        names: dict[str, Any] = {}
        shape |= _shape(tree, "", names, 0)
        if names:
            shape["definitions"] = names
    shape[OWN] = definition
    return msgspec.json.encode(shape).decode()


def of_json_schema(text: str) -> SchemaInfo:
    """The schema of what is registered as JSON Schema."""
    try:
        shape = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        shape = None
    own = shape.get(OWN) if isinstance(shape, dict) else None
    if isinstance(own, str):
        return SchemaInfo(SchemaType.JSON, own.encode())
    return SchemaInfo(SchemaType.JSON, properties={FOREIGN: text})


def _shape(avro: Any, namespace: str, names: dict[str, Any], depth: int) -> dict[str, Any]:
    """The JSON Schema of the values of an Avro type; `names` gets those that have names."""
    if depth > DEPTH_MAX:
        return {}
    if isinstance(avro, list):
        return {"oneOf": [_shape(one, namespace, names, depth + 1) for one in avro]}
    if isinstance(avro, str):
        if avro in _PRIMITIVES:
            return dict(_PRIMITIVES[avro])
        return {"$ref": f"#/definitions/{_full(avro, namespace)}"}
    kind = avro["type"]
    if kind in ("record", "error"):
        return _record(avro, namespace, names, depth)
    if kind in ("enum", "fixed"):
        shape: dict[str, Any] = {"enum": avro["symbols"]} if kind == "enum" else {}
        names[_full(avro["name"], _namespace(avro, namespace))] = shape
        return shape
    if kind == "array":
        return {"type": "array", "items": _shape(avro["items"], namespace, names, depth + 1)}
    if kind == "map":
        values = _shape(avro["values"], namespace, names, depth + 1)
        return {"type": "object", "additionalProperties": values}
    # A value of a logical type is shown as what suits it: a number, or a text.
    return {} if "logicalType" in avro else _shape(kind, namespace, names, depth + 1)


def _record(avro: Any, namespace: str, names: dict[str, Any], depth: int) -> dict[str, Any]:
    inner = _namespace(avro, namespace)
    name = _full(avro["name"], inner)
    shape: dict[str, Any] = {"type": "object", "title": avro["name"]}
    names[name] = shape  # before its fields, which may be of itself
    fields = avro["fields"]
    shape["properties"] = {one["name"]: _shape(one["type"], inner, names, depth + 1) for one in fields}
    needed = [one["name"] for one in fields if "default" not in one and not _nullable(one["type"])]
    if needed:
        shape["required"] = needed
    shape["additionalProperties"] = False  # a closed model: to it a registry lets fields be added
    return {"$ref": f"#/definitions/{name}"} if depth else shape


def _namespace(avro: Any, namespace: str) -> str:
    name: str = avro["name"]
    return name.rpartition(".")[0] if "." in name else avro.get("namespace", namespace)


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _nullable(avro: Any) -> bool:
    return avro == "null" or (isinstance(avro, list) and "null" in avro)


class Outgoing(msgspec.Struct, frozen=True):
    """A schema to be registered: `imports` are files that it uses, which are subjects of their own, each after its own imports."""

    definition: Definition
    record: str = ""  # its name, where it has one
    message: int = 0  # which of the file's messages is meant
    file: ProtoFile | None = None
    imports: tuple[ProtoFile, ...] = ()


def to_registry(schema: SchemaInfo) -> Outgoing | None:
    """A schema that was checked; None for one that a registry does not hold."""
    if schema.type is SchemaType.AVRO:
        text = schema.data.decode()
        return Outgoing(Definition("AVRO", text), _avro_name(msgspec.json.decode(text)))
    if schema.type is SchemaType.JSON:
        shape = json_schema(schema.data.decode())
        return Outgoing(Definition("JSON", shape), str(msgspec.json.decode(shape).get("title", "")))
    if schema.type is not SchemaType.PROTOBUF_NATIVE:
        return None
    try:
        proto = to_proto(schema.data)
    except ValueError:  # an edition
        return None
    *imports, file = proto.files
    return Outgoing(Definition("PROTOBUF", file.text), proto.root, proto.message, file, tuple(imports))


def of_registry(definition: Definition, imports: Mapping[str, str]) -> SchemaInfo:
    """The schema; `imports` are the texts it refers to. Raises BAD_VALUE_SCHEMA for what is not understood here."""
    try:
        match definition.type:
            case "AVRO":
                return SchemaInfo(SchemaType.AVRO, with_references(definition.text, imports).encode())
            case "JSON":
                return of_json_schema(definition.text)
            case "PROTOBUF":
                return of_proto(definition.text, imports)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:  # another's text
        raise PenstockError(
            ErrorKind.BAD_VALUE_SCHEMA, f"a {definition.type} schema that is not understood: {error}"
        ) from None
    raise PenstockError(ErrorKind.BAD_VALUE_SCHEMA, f"{definition.type} is no type that is known here")


def same_file(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether two PROTOBUF_NATIVE schemas are registered alike, as the same message."""
    a, b = to_registry(one), to_registry(other)
    return (
        a is not None
        and b is not None
        and (a.definition, a.record, a.imports)
        == (
            b.definition,
            b.record,
            b.imports,
        )
    )


def _avro_name(avro: Any) -> str:
    """The full name of a record, an enum or a fixed; empty for others."""
    if not isinstance(avro, dict) or not isinstance(avro.get("name"), str):
        return ""
    return _full(avro["name"], avro.get("namespace") or "")
