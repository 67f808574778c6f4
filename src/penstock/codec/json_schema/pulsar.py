"""JSON schemas of Pulsar's as a registry has them, and the other way round.

A JSON schema of Pulsar's is defined by an Avro record, which a registry would take for a schema of Avro's encoding: it is
registered as the JSON Schema of the values, and keeps its own definition in `x-pulsar-schema`. A JSON Schema of another's reads
as JSON of any shape.
"""

from typing import Any, Final

import msgspec

from penstock.model.schema import SchemaInfo, SchemaType

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
    """The schema of a registered JSON Schema."""
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
        return {"$ref": f"#/definitions/{full_name(avro, namespace)}"}
    kind = avro["type"]
    if kind in ("record", "error"):
        return _record(avro, namespace, names, depth)
    if kind in ("enum", "fixed"):
        shape: dict[str, Any] = {"enum": avro["symbols"]} if kind == "enum" else {}
        names[full_name(avro["name"], _namespace(avro, namespace))] = shape
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
    name = full_name(avro["name"], inner)
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


def full_name(name: str, namespace: str) -> str:
    """An Avro name with its namespace."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _nullable(avro: Any) -> bool:
    return avro == "null" or (isinstance(avro, list) and "null" in avro)
